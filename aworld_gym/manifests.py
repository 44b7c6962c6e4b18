"""Manifests: fixed lists of tasks with digests, so that two scores are known to be of the same tasks.

A manifest is a JSON file: the ids of its tasks in order, each with digests of its parts, the arguments that the env
is made with so that it has them, and one hash over all of that. It holds no answers, only salted digests of them: that
keeps them out of text searches and of corpora made of repositories, not from those who have the task source and
can ask it.

    {"format": 1, "name": "validation", "env_id": "AWorld/Gaia-v0", "env_kwargs": {"split": "validation"},
     "made_with": "0.1.0", "hash": "sha256:...", "tasks": [{"id": ..., "level": 1, "prompt": ..., "answer": ...}, ...]}

An env names its own manifests in ``ToolEnv.manifests``. A task source says by :func:`digests` what a task is made of.
This module plays nothing (:mod:`aworld_gym.rollout`) and reports nothing (:mod:`aworld_gym.metrics`).
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from gymnasium.envs.registration import EnvSpec, load_env_creator

from aworld_gym.errors import ConfigError, UnknownTaskError, did_you_mean
from aworld_gym.play import Item
from aworld_gym.tasks import TaskSource
from aworld_gym.types import Task

FORMAT = 1
DIGEST_CHARS = 32
"""Hexadecimal digits of each digest of a task's part: 128 bits."""


@dataclass(frozen=True)
class ManifestTask:
    """One task of a manifest."""

    id: str
    level: int | None
    digests: Mapping[str, str]
    """By part: ``prompt``, ``answer`` (salted), ``files``, and whatever else its source names."""

    def to_dict(self) -> dict[str, Any]:
        """One flat JSON object."""
        return {"id": self.id, "level": self.level, **self.digests}


@dataclass(frozen=True)
class Manifest:
    """A fixed list of tasks.

    Example:
        >>> from aworld_gym.tasks import TaskList
        >>> source = TaskList([Task("a", "How much is 1 + 1?", "2"), Task("b", "And 2 + 2?", "4")])
        >>> manifest = Manifest.of(source, ["b"], name="small")
        >>> [item.options for item in manifest.items(group_size=2)]
        [{'task_id': 'b'}, {'task_id': 'b'}]
    """

    name: str
    tasks: tuple[ManifestTask, ...]
    env_id: str | None = None
    """The env that it was made for; any env that has the tasks may play it."""
    env_kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Arguments that the env must be made with to have these tasks; None stands for leaving one out."""
    made_with: str = ""
    """The version of aworld-gym that made it, for messages."""

    def __post_init__(self) -> None:
        ids = [task.id for task in self.tasks]
        if not ids:
            raise ConfigError(f"manifest {self.name!r} has no tasks")
        if len(set(ids)) != len(ids):
            double = next(name for name in ids if ids.count(name) > 1)
            raise ConfigError(f"manifest {self.name!r} has the task {double!r} more than once; ids are unique")

    @property
    def hash(self) -> str:
        """``sha256:`` and 64 hexadecimal digits, over the tasks in order and the env's arguments."""
        content = {"format": FORMAT, "env_kwargs": dict(self.env_kwargs), "tasks": [t.to_dict() for t in self.tasks]}
        return f"sha256:{hashlib.sha256(_canonical(content)).hexdigest()}"

    @classmethod
    def of(
        cls,
        source: TaskSource,
        ids: Iterable[str],
        *,
        name: str,
        env_id: str | None = None,
        env_kwargs: Mapping[str, Any] | None = None,
    ) -> Manifest:
        """The manifest of these tasks of a source, in this order.

        Raises:
            UnknownTaskError: the source has no such task.
            ConfigError: no ids, or one twice.
        """
        tasks = [source.get(task_id) for task_id in ids]
        entries = tuple(ManifestTask(task.id, task.level, digests(source, task)) for task in tasks)
        return cls(name, entries, env_id, dict(env_kwargs or {}), _version())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Manifest:
        """The manifest of a file.

        Raises:
            ConfigError: it is not there, is no manifest, or its content is not what its hash says.
        """
        try:
            data = json.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise ConfigError(f"cannot read the manifest {path}: {error}") from error
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            found = data.get("format") if isinstance(data, dict) else type(data).__name__
            raise ConfigError(f"{path} is not a manifest: expected a JSON object with format {FORMAT}, got {found!r}")
        try:
            tasks = tuple(
                ManifestTask(t["id"], t.get("level"), {k: v for k, v in t.items() if k not in ("id", "level")})
                for t in data["tasks"]
            )
            known = {key: data[key] for key in ("env_id", "env_kwargs", "made_with") if key in data}
            if not all(isinstance(text, str) for text in (data["name"], *(task.id for task in tasks))):
                raise TypeError("its name and the ids of its tasks are texts")
            made = cls(data["name"], tasks, **known)
            found, said = made.hash, data["hash"]
        except ConfigError:
            raise
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ConfigError(f"{path} is not a manifest: {type(error).__name__}: {error}") from error
        if found != said:
            raise ConfigError(
                f"the manifest {path} was changed after it was made: its content has the hash {found}, and it says "
                f"{said}. Take the file as it was, or make a new one with Manifest.of(...).save(...)"
            )
        return made

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it as JSON, one task a line; the same manifest is the same bytes. Makes the folder where absent."""
        head = {
            "format": FORMAT,
            "name": self.name,
            "env_id": self.env_id,
            "env_kwargs": dict(self.env_kwargs),
            "made_with": self.made_with,
            "hash": self.hash,
        }
        lines = ",\n".join(f"  {json.dumps(task.to_dict())}" for task in self.tasks)
        text = f'{json.dumps(head, indent=1)[:-2]},\n "tasks": [\n{lines}\n ]\n}}\n'
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(text, encoding="utf-8", newline="\n")

    def items(self, *, group_size: int = 1, seed: int = 0) -> list[Item]:
        """What a rollout plays: ``group_size`` samples of each task in order, task i with seed ``seed + i``.

        Raises:
            ConfigError: a number is out of range.
        """
        for name, value, least in (("group_size", group_size, 1), ("seed", seed, 0)):
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ConfigError(f"{name} must be a whole number of at least {least}, got {value!r}")
        return [
            Item(i * group_size + k, seed + i, k, task.id, {"task_id": task.id}, manifest=self.hash)
            for i, task in enumerate(self.tasks)
            for k in range(group_size)
        ]

    def describe(self) -> dict[str, Any]:
        """What a report says of it: ``name``, ``hash``, and how many ``tasks`` by level."""
        levels = Counter(str(task.level) for task in self.tasks if task.level is not None)
        return {
            "name": self.name,
            "hash": self.hash,
            "tasks": len(self.tasks),
            "tasks_by_level": dict(sorted(levels.items())),
        }

    def check(self, source: TaskSource) -> Iterator[str]:
        """Compare the tasks of a source with the manifest, one at a time; yields the id of each that is the same.

        Raises:
            ConfigError: a task is not there, or differs; it says which, in which part, and what to do.
        """
        for number, wanted in enumerate(self.tasks, start=1):
            where = f"task {wanted.id!r} ({number} of {len(self.tasks)}) of manifest {self.name!r} ({self.hash[:19]}…)"
            try:
                task = source.get(wanted.id)
            except UnknownTaskError as error:
                raise ConfigError(f"{where} is not among this env's tasks: {error} {self._why()}") from error
            found = digests(source, task)
            parts = [part for part in (*wanted.digests, *found) if wanted.digests.get(part) != found.get(part)]
            parts += ["level"] if wanted.level != task.level else []
            if parts:
                raise ConfigError(f"{where} is another one here: it differs in its {_listed(parts)}. {self._why()}")
            yield wanted.id

    def applied(self, spec: EnvSpec) -> EnvSpec:
        """The spec of an env that has the tasks: with ``env_kwargs``.

        Raises:
            ConfigError: the spec asks for something else.
        """
        spec = copy.deepcopy(spec)
        for name, value in self.env_kwargs.items():
            if spec.kwargs.get(name, value) != value:
                fixed = f"{name} left out" if value is None else f"{name}={value!r}"
                raise ConfigError(
                    f"manifest {self.name!r} is played with {fixed}, and this env has {name}={spec.kwargs[name]!r}; "
                    f"leave {name} out, or choose another manifest"
                )
            if value is not None:
                spec.kwargs[name] = value
        return spec

    def _why(self) -> str:
        made, here = self.made_with or "an unknown version", _version()
        than = f"version {made} of aworld-gym, here is {here if here != made else 'another state of that version'}"
        return (
            f"Scores would not be comparable. The manifest was made with {than}: install the version that goes with "
            "it, or make the manifest anew from these tasks."
        )


def find(env: Any, named: str | os.PathLike[str] | Manifest) -> Manifest:
    """A manifest by the name that an env has for it, or by its file.

    Args:
        env: what to ask for names: a spec, or anything with ``manifests``.
        named: a name, a path, or a manifest, which is returned as it is.

    Raises:
        ConfigError: the env has no such manifest and there is no such file, or it is damaged.
    """
    if isinstance(named, Manifest):
        return named
    known = names(env)
    if isinstance(named, str) and named in known:
        return Manifest.load(known[named])
    if Path(named).is_file():
        return Manifest.load(named)
    has = f"it has {', '.join(known)}" if known else "it has none"
    raise ConfigError(
        f"no manifest {str(named)!r} of this env ({has}), and no such file.{did_you_mean(str(named), known)}"
    )


def names(env: Any) -> Mapping[str, Path]:
    """The manifests that an env offers: name to file."""
    if isinstance(env, EnvSpec):
        entry = env.entry_point
        env = load_env_creator(entry) if isinstance(entry, str) else entry
    found: Mapping[str, Path] = getattr(env, "manifests", None) or {}
    return found


def digests(source: TaskSource, task: Task) -> dict[str, str]:
    """What a task is made of, as digests by part.

    ``prompt``, ``answer``, and ``files``: names and bytes of what the source's ``setup`` writes. A source that knows
    better may have ``evidence(task) -> Mapping[str, str]``, texts by part, instead of ``files``: for example where
    the bytes depend on the versions of the libraries that write them, or where a task rests on more than files.
    """
    evidence: Callable[[Task], Mapping[str, str]] | None = getattr(source, "evidence", None)
    parts = _written(source, task) if evidence is None else evidence(task)
    public = {"public": _canonical(task.public).decode()} if task.public else {}
    salted = f"{task.id}\x1f{_canonical(task.answer).decode()}"
    texts = {"prompt": task.prompt, **public, **parts, "answer": salted}
    return {part: _digest(text.encode("utf-8", "surrogatepass")) for part, text in texts.items()}


def _written(source: TaskSource, task: Task) -> dict[str, str]:
    with tempfile.TemporaryDirectory(prefix="aworld-gym-manifest-") as folder:
        root = Path(folder)
        source.setup(task, root)
        files = sorted(path for path in root.rglob("*") if path.is_file())
        return {"files": "\n".join(f"{p.relative_to(root).as_posix()} {_digest(p.read_bytes())}" for p in files)}


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:DIGEST_CHARS]


def _canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=_plain).encode("ascii")


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence):
        return list(value)
    raise TypeError(f"a task's answer and public part are JSON values, got {type(value).__name__}: {value!r}")


def _listed(parts: list[str]) -> str:
    parts = list(dict.fromkeys(parts))
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _version() -> str:
    try:
        return version("aworld-gym")
    except PackageNotFoundError:  # a source tree that was not installed
        return ""
