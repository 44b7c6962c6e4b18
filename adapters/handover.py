"""From one process and one batch to the next: specs as JSON, items, codecs and journals. No framework, no torch."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec

from aworld_gym.errors import ConfigError
from aworld_gym.making import make_tool_env
from aworld_gym.play import Item
from aworld_gym.tokens import ChatCodec
from aworld_gym.trajectory import Journal


def env_spec(env: str | EnvSpec | gym.Env) -> EnvSpec:
    """The spec that ``env`` is rebuilt from, wrappers included; proved by making it once.

    Raises:
        ConfigError: no such env, an env that was not made by ``gym.make``, one that cannot be made, or no tool env.
    """
    named = env.spec if isinstance(env, gym.Env) else env
    if named is None:
        raise ConfigError(
            f"{env!r} has no spec to rebuild it from, and live envs are not shared with a trainer; "
            "register it and make it with gym.make"
        )
    if not isinstance(named, str | EnvSpec):
        raise ConfigError(f"env must be an id, an EnvSpec or an env made by gym.make, got {type(env).__name__}")
    made = make_tool_env(named)
    spec = named if isinstance(named, EnvSpec) else made.spec
    made.close()
    assert spec is not None  # gym.make has just given it one
    return copy.deepcopy(spec)


def spec_json(spec: EnvSpec) -> str:
    """The spec as JSON, for workers.

    Raises:
        ConfigError: it holds what JSON cannot.
    """
    try:
        return str(spec.to_json())
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"the spec of {spec.id} does not go through JSON, so no worker can rebuild it: {error}"
        ) from error


@lru_cache(maxsize=256)
def spec_of(text: str) -> EnvSpec:
    """The spec that :func:`spec_json` gave ``text`` for; read once for many rows."""
    return EnvSpec.from_json(text)


def number_items(seeds: Sequence[int], group_size: int, *, first: int = 0, step: int = 0) -> list[Item]:
    """The episodes of a batch: which of its group's each is, and the group's name, ``step/seed`` and, if need be, more.

    Args:
        seeds: the task seed of each row; rows of a group are consecutive in the whole batch.
        group_size: episodes per group.
        first: the place of the first row in the whole batch, of which this may be one process's part.
        step: the trainer's.
    """
    groups: dict[int, list[int]] = defaultdict(list)  # seed -> its groups in this batch, usually one
    items = []
    for index, seed in enumerate(seeds):
        group, sample = divmod(first + index, group_size)
        if group not in groups[seed]:
            groups[seed].append(group)
        again = groups[seed].index(group)
        group_id = f"{step}/{seed}" + (f"/{again}" if again else "")
        items.append(Item(index, seed, sample + group_size * again, group_id))
    return items


def checked_codec(tokenizer: Any, ends: int | Iterable[int] | None = None, **settings: Any) -> ChatCodec:
    """A codec for a tokenizer, checked (:meth:`~aworld_gym.tokens.ChatCodec.self_check`).

    Args:
        tokenizer: the model's.
        ends: ids that the model itself declares as ends of generation; they end a turn too.
        **settings: ChatCodec's.

    Raises:
        UnsupportedTemplateError: the chat template cannot be used token-exactly.
    """
    codec = ChatCodec(tokenizer, **settings)
    also = {ends} if isinstance(ends, int) else set(ends or ())
    if "stop_ids" not in settings and not also <= codec.stop_ids:
        codec = ChatCodec(tokenizer, stop_ids=codec.stop_ids | also, **settings)
    codec.self_check()
    return codec


class Journals:
    """Where the episodes of a run are written, by split and process; opened when the first one comes.

    Args:
        paths: by split (``"train"``, ``"eval"``), the file of the first process.
    """

    def __init__(self, paths: dict[str, Path] | None = None):
        self.paths = dict(paths or {})
        self._open: dict[str, Journal] = {}

    @classmethod
    def into(cls, folder: Path) -> Journals:
        """``episodes.jsonl`` and ``eval_episodes.jsonl`` in a folder."""
        return cls({"train": folder / "episodes.jsonl", "eval": folder / "eval_episodes.jsonl"})

    def get(self, split: str, rank: int = 0) -> Journal | None:
        """The journal of a split, for the process of this rank (``episodes.rank1.jsonl``); None where it has none."""
        if split not in self._open and split in self.paths:
            path = self.paths[split]
            self._open[split] = Journal(path if rank == 0 else path.with_suffix(f".rank{rank}{path.suffix}"))
        return self._open.get(split)

    def close(self) -> None:
        """Close those that are open."""
        for journal in self._open.values():
            journal.close()
        self._open.clear()
