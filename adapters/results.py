"""What a run leaves: its result, counts of its episodes, their metrics, and the files. No framework, no torch."""

from __future__ import annotations

import json
import logging
import math
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aworld_gym.errors import ConfigError
from aworld_gym.token_policy import TokenEpisode
from aworld_gym.types import Outcome

log = logging.getLogger(__name__)


class EpisodeCounts(Counter[str]):
    """How episodes ended: ``episodes``, ``invalid``, ``retried`` and one count per outcome."""

    def add(self, played: TokenEpisode) -> None:
        """Count one item of a rollout."""
        self["episodes"] += 1
        self["invalid"] += not played.episode.valid
        self["retried"] += played.attempts - 1
        self[str(played.episode.outcome)] += 1

    def warn_of_invalid(self, played: Sequence[TokenEpisode], step: int) -> None:
        """Say aloud, with one cause, where episodes of a batch are not measurements."""
        bad = [p.episode for p in played if not p.episode.valid]
        if bad:
            level = logging.ERROR if len(bad) == len(played) else logging.WARNING
            log.log(
                level,
                "step %d: %d of %d episodes failed with their infrastructure (%d of %d in this run) and are left out "
                "of loss and baseline; for example: %s",
                step,
                len(bad),
                len(played),
                self["invalid"],
                self["episodes"],
                bad[0].error,
            )


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


def episode_metrics(played: TokenEpisode) -> dict[str, float]:
    """What to log of an episode; means over a batch are meaningful. Invalid ones only count as such."""
    episode = played.episode
    out = {"env/invalid": float(not episode.valid), "env/retried": float(played.attempts - 1)}
    if not episode.valid:
        return out
    results = [result for step in episode.steps for result in step.results]
    out |= {
        "env/return": episode.total_reward,
        "env/turns": float(len(episode.steps)),
        "env/tool_calls": float(len(results)),
        "env/tool_errors": float(sum(result.error is not None for result in results)),
        "env/sampled_tokens": float(played.trajectory.sampled_count if played.trajectory else 0),
    }
    if episode.score is not None:
        out["env/score"] = episode.score
    for outcome in Outcome:
        if outcome.valid:
            out[f"env/outcome/{outcome}"] = float(episode.outcome is outcome)
    for step in episode.steps:
        for name, value in step.components.items():
            out[f"env/reward/{name}"] = out.get(f"env/reward/{name}", 0.0) + value
    return out


class MetricsFile:
    """``metrics.jsonl``: one JSON object per logging step, written at once.

    Args:
        path: the file.
        resume_step: lines after this step are dropped: the resumed run writes them again.
    """

    def __init__(self, path: Path, resume_step: int | None = None):
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        kept = [row for row in self.read(path) if resume_step is not None and row.get("step", 0) <= resume_step]
        partial = path.with_name(path.name + ".partial")
        partial.write_text("".join(json.dumps(row) + "\n" for row in kept), encoding="utf-8")
        os.replace(partial, path)

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
