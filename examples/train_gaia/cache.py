"""Warm checkpoints on disk, under the hash of everything that they come from. A cache: never required."""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import aworld_gym.tokens
from examples.train_gaia.warm import WarmSettings

_SOURCES = (
    "envs.gaia.mini",
    "examples.train_gaia.tokenizer",
    "examples.train_gaia.traces",
    "examples.train_gaia.model",
    "examples.train_gaia.muon",
    "examples.train_gaia.warm",
)
_PACKAGES = ("torch", "transformers", "tokenizers", "numpy", "Jinja2")


def key(settings: WarmSettings, tools: Sequence[dict[str, Any]]) -> str:
    """Hash of settings, tool schemas, the sources that make tasks, tokens and weights, and library versions."""
    digest = hashlib.sha256()
    sources = [Path(str(importlib.import_module(name).__file__)) for name in _SOURCES]
    sources += sorted(Path(str(aworld_gym.tokens.__file__)).parent.glob("*.py"))
    for source in sources:
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    about = {
        "settings": asdict(settings),
        "tools": tools,
        "versions": {package: version(package) for package in _PACKAGES},
    }
    digest.update(json.dumps(about, sort_keys=True).encode())
    return digest.hexdigest()[:24]


def folder() -> Path:
    """Where checkpoints are kept: ``aworld-gym/warm`` below ``$XDG_CACHE_HOME`` or ``~/.cache``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "aworld-gym" / "warm"


def find(name: str) -> Path | None:
    """The checkpoint kept under a key, if there is one."""
    path = folder() / name
    return path if (path / "config.json").exists() else None


def keep(checkpoint: Path, name: str) -> Path:
    """Copy a checkpoint into the cache, whole or not at all.

    Raises:
        OSError: the cache cannot be written.
    """
    target = folder() / name
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".partial-") as partial:
        shutil.copytree(checkpoint, Path(partial) / "checkpoint")
        if not target.exists():
            try:
                (Path(partial) / "checkpoint").replace(target)
            except OSError:  # another run was faster
                if find(name) is None:
                    raise
    return target
