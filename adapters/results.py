"""What a run leaves beside its episodes: its result, and the file of its metrics. No framework, no torch."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from adapters.episodes import EpisodeCounts
from aworld_gym.errors import ConfigError


@dataclass(frozen=True)
class TrainResult:
    """What a training run leaves."""

    checkpoint: Path
    """The trained model (or its PEFT adapter) and the tokenizer."""
    metrics: list[dict[str, Any]]
    """What the trainer logged, in order; the same lines are in ``metrics.jsonl``."""
    episodes: Path
    """Every training episode, as JSONL, in order of completion."""
    counts: EpisodeCounts = field(default_factory=EpisodeCounts)
    """How the episodes of this run ended."""


class MetricsFile:
    """``metrics.jsonl``: one JSON object per logging step, written at once.

    Args:
        path: the file.
        resume_step: lines after this step are dropped: the resumed run writes them again.
    """

    def __init__(self, path: Path, resume_step: float | None = None):
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        kept = [row for row in self.read(path) if resume_step is not None and row.get("step", 0) <= resume_step]
        partial = path.with_name(path.name + ".partial")
        partial.write_text("".join(json.dumps(row) + "\n" for row in kept), encoding="utf-8")
        os.replace(partial, path)

    @classmethod
    def take_over(cls, path: Path, rows: Sequence[Mapping[str, Any]], *, resumes: bool) -> list[dict[str, Any]]:
        """Write what a framework logged elsewhere, after what an earlier run logged before; all rows of the file."""
        first = min((row["step"] for row in rows), default=math.inf)  # it logged nothing, and wrote over nothing
        file = cls(path, resume_step=first - 1 if resumes else None)
        for row in rows:
            file.append(row)
        return cls.read(path)

    @classmethod
    def move(cls, source: Path, path: Path, *, resumes: bool) -> list[dict[str, Any]]:
        """:meth:`take_over` what a framework logged to a file, as ``{"step": ..., "data": {...}}``, and remove that.

        Args:
            source: the framework's file; there need be none.
            path: ``metrics.jsonl``.
            resumes: False forgets what both hold: they are of another run.
        """
        rows = [{"step": row["step"], **row["data"]} for row in cls.read(source)] if resumes else []
        metrics = cls.take_over(path, rows, resumes=resumes)
        source.unlink(missing_ok=True)
        return metrics

    def append(self, row: Mapping[str, Any]) -> None:
        """Write one row; numbers that JSON lacks become null."""
        clean = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()}
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(clean) + "\n")

    @staticmethod
    def read(path: Path) -> list[dict[str, Any]]:
        """The rows of a file; a torn last line is left out; none where there is no file."""
        if not path.exists():
            return []
        lines = path.read_text(encoding="utf-8").split("\n")
        return [json.loads(line) for line in lines[:-1] if line]


def refuse_mixing(output_dir: Path) -> None:
    """Raises ConfigError where a folder holds another run's episodes."""
    for path in sorted(output_dir.glob("*episodes*.jsonl")):
        if path.stat().st_size:
            raise ConfigError(
                f"{path} is of an earlier run; pass resume_from_checkpoint=True to continue that run, or another "
                "output_dir"
            )
