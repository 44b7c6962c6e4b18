"""What is installed here, what can run, what is missing and how to get it.

Everything is read from package metadata, from the system and (for a trainer that should run) by importing it in a
process of its own, so that a broken one cannot take this process with it. Nothing is installed or changed.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from aworld_gym.errors import MissingDependencyError, describe

DISTRIBUTION = "aworld-gym"
CORE = ("gymnasium", "mcp", "numpy", "openai", "jsonschema", "typer", "rich")
OTHERS = ("torch", "transformers", "trl", "verl", "ms-swift", "vllm", "peft", "datasets", "accelerate", "ray")
EXTRAS = {"host": "aworld-gym serve", "lean": "lean HTTP client", "ray": "eval --engine ray"}
"""Extras that are neither an env's nor a trainer's, and what each is for."""
SERVICES = "aworld_gym.doctor"
PROBE_TIMEOUT_S = 120.0
_COMMAND_TIMEOUT_S = 20.0
_TEXT: dict[str, Any] = {"text": True, "encoding": "utf-8", "errors": "replace"}
"""What programs of others print may be in any encoding."""
_HOME = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Trainer:
    """A trainer that this project adapts."""

    extra: str
    """The extra that installs it, and the module ``adapters.<extra>``."""
    probe: str
    """A statement that fails where the framework does not work."""
    distribution: str = ""
    """Its name for pip; that of the extra where empty."""
    tested: tuple[str, ...] = ()
    """Versions of it that this project's tests pass with; the adapters say the same (``TESTED``)."""
    beside: tuple[str, ...] = ("torch", "transformers")
    """Distributions whose versions matter to it."""


TRAINERS = (
    Trainer("trl", "from trl import GRPOConfig, GRPOTrainer", "trl", ("1.16.0",)),
    Trainer("verl", "import verl.trainer.main_ppo", "verl", ("0.9.1",), ("torch", "transformers", "ray")),
    Trainer(
        "swift", "from swift.rlhf_trainers import GRPOTrainer", "ms-swift", ("4.6.0",), ("torch", "transformers", "trl")
    ),
)


def adapters_here() -> list[str]:
    """The trainers that this version has an adapter for."""
    return [trainer.extra for trainer in TRAINERS if _has_adapter(trainer)]


def report(*, probe: bool = True, say: Callable[[str], None] = lambda text: None) -> dict[str, Any]:
    """The findings as JSON values; ``problems`` lists what to fix and how.

    Args:
        probe: import the trainers that should run (up to half a minute each).
        say: told what takes its time.
    """
    trainers = {trainer.extra: check_trainer(trainer, probe=probe, say=say) for trainer in TRAINERS}
    names = {name: foreign_owners(name) for name in ("adapters", "envs")}
    gaia = unmet("gaia")
    found: dict[str, Any] = {
        "python": {"version": platform.python_version(), "executable": sys.executable},
        "platform": platform.platform(),
        "packages": {name: _version(name) for name in (DISTRIBUTION, *CORE, *OTHERS)},
        "trainers": trainers,
        "gaia": {"complete": not gaia, "missing": gaia},
        "extras": {extra: {"what": what, "missing": unmet(extra)} for extra, what in EXTRAS.items()},
        "isolation": isolation(),
        "vllm": vllm(),
        "gpu": gpus(),
        "node": {name: _first_line([name, "--version"]) for name in ("node", "npx")},
        "endpoint": {
            "LLM_BASE_URL": os.environ.get("LLM_BASE_URL"),
            "LLM_MODEL_NAME": os.environ.get("LLM_MODEL_NAME"),
            "LLM_API_KEY": "set" if os.environ.get("LLM_API_KEY") else None,
        },
        "foreign_packages": names,
        "services": services(),
    }
    found["problems"] = list(_problems(found))
    return found


def check_trainer(
    trainer: Trainer, *, probe: bool = True, say: Callable[[str], None] = lambda text: None
) -> dict[str, Any]:
    """Whether one trainer can run in this environment, and with which versions.

    Returns:
        ``can_run``; ``why_not`` and ``how`` to get it; ``versions`` of the framework and of what stands beside it (None
        where that is not installed); ``tested``, whether the framework's is one that the tests pass with.
    """
    name = trainer.distribution or trainer.extra
    versions = {each: _version(each) for each in (name, *trainer.beside)}
    return {**_can_run(trainer, probe, say), "versions": versions, "tested": versions[name] in trainer.tested}


def _can_run(trainer: Trainer, probe: bool, say: Callable[[str], None]) -> dict[str, Any]:
    if not _has_adapter(trainer):
        return _verdict(f"this version of {DISTRIBUTION} has no adapter for it", None)
    how = (
        f"pip install '{DISTRIBUTION}[{trainer.extra}]' (in a virtual environment of its own: trainers' pins conflict)"
    )
    missing = unmet(trainer.extra)
    if missing:
        return _verdict("; ".join(missing), how)
    if probe:
        say(f"importing {trainer.extra} to see whether it works (up to half a minute; --fast leaves this out) ...")
        why = _probe(trainer.probe)
        if why is not None:
            return _verdict(f"it is installed and does not import: {why}", how)
    return _verdict(None, None)


def unmet(extra: str) -> list[str]:
    """What of an extra of this project is not there or does not fit, its own requirements included."""
    try:
        declared = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        return [f"{DISTRIBUTION} itself is not installed (a bare source tree): pip install -e '.[{extra}]'"]
    wanted = [r for r in map(Requirement, declared) if r.marker is not None and _for_extra(r, extra)]
    if not wanted:
        return [f"this version of {DISTRIBUTION} has no extra {extra!r}"]
    return _unmet(wanted, asked_by=f"{DISTRIBUTION}[{extra}]", seen=set())


def isolation() -> dict[str, Any]:
    """How ``run_python`` of the GAIA tools is confined here."""
    try:
        from envs.gaia.sandbox import isolation as in_force
    except ImportError as error:
        return {"mechanism": "unknown", "confined": False, "detail": f"the GAIA tools cannot be imported: {error}"}
    found = in_force()
    return {"mechanism": found.mechanism, "confined": found.confined, "detail": found.detail}


def services() -> list[dict[str, Any]]:
    """What optional servers of the installed envs can start: rows of ``what``, ``ready`` and ``detail``.

    An env tells of them through an entry point of the group ``aworld_gym.doctor``, a function that gives such rows.
    """
    rows: list[dict[str, Any]] = []
    for point in sorted(metadata.entry_points(group=SERVICES), key=lambda point: point.name):
        try:
            rows += point.load()()
        except Exception as error:  # somebody else's: it is reported, and the others are asked
            rows.append({"what": point.name, "ready": False, "detail": f"its check failed: {describe(error)}"})
    return rows


def vllm() -> dict[str, Any]:
    """Whether ``--policy vllm`` can start a server here, and with which program."""
    found: dict[str, Any] = {"can_start": False, "program": None, "version": None, "why_not": None}
    try:
        from aworld_gym.vllm.server import find_vllm, version_of
    except ImportError as error:  # what it stands on is not here, which is told elsewhere
        return found | {"why_not": f"it cannot be imported: {error}"}
    try:
        program = find_vllm()
    except MissingDependencyError as error:
        return found | {"why_not": str(error)}
    why_not = None
    if _version("transformers") is None:
        why_not = f"it tokenises with transformers, which is not installed: pip install '{DISTRIBUTION}[vllm]'"
    return {"can_start": why_not is None, "program": program, "version": version_of(program), "why_not": why_not}


def gpus() -> dict[str, Any]:
    """NVIDIA devices, and whether the installed torch can use them."""
    listing = _run(["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"])
    torch = _version("torch")
    return {
        "devices": [line.strip() for line in (listing or "").splitlines() if line.strip()],
        "torch": torch,
        "torch_is_cpu_build": None if torch is None else torch.endswith("+cpu"),
    }


def foreign_owners(package: str) -> list[str]:
    """Other distributions, or folders, that provide a top-level package of this name.

    They would shadow this project's own, or be shadowed by it.
    """
    owners = {name for name in metadata.packages_distributions().get(package, ()) if name != DISTRIBUTION}
    spec = importlib.util.find_spec(package)
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    owners |= {place for place in places if Path(place).resolve().parent != _HOME}
    return sorted(owners)


def _problems(found: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    for name in CORE:
        if found["packages"][name] is None:
            yield {"what": f"{name} is not installed", "fix": f"pip install {DISTRIBUTION}"}
    for name, owners in found["foreign_packages"].items():
        if owners:
            yield {
                "what": f"a top-level package {name!r} also comes from {', '.join(owners)}",
                "fix": f"pip uninstall it here, or use an environment without it: `import {name}` may be either",
            }
    if found["gaia"]["missing"]:
        yield {
            "what": f"AWorld/Gaia-v0 lacks {'; '.join(found['gaia']['missing'])}",
            "fix": f"pip install '{DISTRIBUTION}[gaia]'",
        }
    if not found["isolation"]["confined"]:
        yield {
            "what": "run_python cannot be confined here and will refuse to run",
            "fix": found["isolation"]["detail"],
        }
    if found["gpu"]["devices"] and found["gpu"]["torch_is_cpu_build"]:
        yield {
            "what": f"a GPU is here and torch {found['gpu']['torch']} is a CPU build",
            "fix": "pip install --force-reinstall torch (from the index for your CUDA version)",
        }
    if not any(trainer["can_run"] for trainer in found["trainers"].values()):
        yield {"what": "no trainer can run here", "fix": f"pip install '{DISTRIBUTION}[trl]'"}
    if found["node"]["npx"] is None:
        yield {"what": "npx is not here: MCP servers from npm cannot start", "fix": "install Node.js 20 or later"}


def _unmet(wanted: list[Requirement], *, asked_by: str, seen: set[str]) -> list[str]:
    absent: list[str] = []
    unfit: list[str] = []
    deeper: list[str] = []
    for requirement in wanted:
        name = canonicalize_name(requirement.name)
        have = _version(name)
        if have is None:
            absent.append(requirement.name)
            continue
        if not requirement.specifier.contains(have, prereleases=True):
            unfit.append(f"{requirement.name} {have} is installed; {asked_by} needs {requirement.specifier}")
        if name not in seen:
            seen.add(name)
            deeper += _unmet(list(_requires(name, requirement.extras)), asked_by=f"{name} {have}", seen=seen)
    are = "is" if len(absent) == 1 else "are"
    missing = [f"{', '.join(absent)} {are} not installed (asked for by {asked_by})"] if absent else []
    return list(dict.fromkeys(missing + unfit + deeper))


def _requires(name: str, extras: set[str]) -> Iterator[Requirement]:
    for text in metadata.requires(name) or ():
        try:
            requirement = Requirement(text)
        except InvalidRequirement:  # old metadata of somebody else's package; pip ignores it too
            continue
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in extras or {""}):
            yield requirement


def _for_extra(requirement: Requirement, extra: str) -> bool:
    marker = requirement.marker
    return marker is not None and marker.evaluate({"extra": extra}) and not marker.evaluate({"extra": ""})


def _has_adapter(trainer: Trainer) -> bool:
    adapter = _HOME / "adapters" / trainer.extra
    return adapter.is_dir() or adapter.with_suffix(".py").is_file()


def _verdict(why_not: str | None, how: str | None) -> dict[str, Any]:
    return {"can_run": why_not is None, "why_not": why_not, "how": how}


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _probe(statement: str) -> str | None:
    """Why the statement fails in a fresh interpreter; None where it does not."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", statement], capture_output=True, timeout=PROBE_TIMEOUT_S, check=False, **_TEXT
        )
    except subprocess.TimeoutExpired:
        return f"`{statement}` took more than {PROBE_TIMEOUT_S:.0f} s"
    if done.returncode == 0:
        return None
    return (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]


def _run(command: list[str]) -> str | None:
    """The output of a command; None where it is not here or fails."""
    if shutil.which(command[0]) is None:
        return None
    try:
        done = subprocess.run(command, capture_output=True, timeout=_COMMAND_TIMEOUT_S, check=False, **_TEXT)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def _first_line(command: list[str]) -> str | None:
    lines = (_run(command) or "").strip().splitlines()
    return lines[0] if lines else None
