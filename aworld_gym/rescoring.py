"""Scoring recorded episodes again, from what they submitted: no tools, no model, no env.

Only the verdict changes. Rewards stay as they were paid: a policy was trained on them, or shaped by them.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from aworld_gym.errors import ConfigError, describe
from aworld_gym.metrics import Metrics
from aworld_gym.records.verdicts import Scorer, scorer_of
from aworld_gym.tasks import as_score
from aworld_gym.types import Episode, Score

NOT_SCORED = {
    "invalid": "no measurements: infrastructure failed",
    "no_truth": "tasks without a true answer in the record",
}
"""Why an episode is left as it is."""


@dataclass
class Rescoring:
    """Scores episodes with one scorer, and keeps count of what that changed.

    Args:
        scorer: a name (:mod:`aworld_gym.records.verdicts`), the import path of a function ``(truth, answer) -> float
            | Score``, or such a function.

    Raises:
        ConfigError: there is no such scorer.

    Example:
        >>> from aworld_gym.trajectory import read_jsonl
        >>> again = Rescoring("official")
        >>> episodes = list(again.of(read_jsonl("runs/qwen/episodes.jsonl")))  # doctest: +SKIP
        >>> again.changed  # doctest: +SKIP
    """

    scorer: str | Scorer
    before: Metrics = field(default_factory=Metrics)
    after: Metrics = field(default_factory=Metrics)
    scored: int = 0
    left: Counter[str] = field(default_factory=Counter)
    """Episodes that were not scored, by why (:data:`NOT_SCORED`)."""
    changed: list[dict[str, Any]] = field(default_factory=list)
    """Each changed episode's key, task, submission, truth, scores and the scorer's reason."""

    def __post_init__(self) -> None:
        self._score = scorer_of(self.scorer)
        self.name = self.scorer if isinstance(self.scorer, str) else getattr(self.scorer, "__qualname__", "a function")

    def of(self, episodes: Iterable[Episode]) -> Iterator[Episode]:
        """The episodes with their new scores; those that cannot be scored as they are.

        Raises:
            ConfigError: the scorer makes no sense of a true answer; it names the episode.
        """
        for episode in episodes:
            why_not = None if episode.valid else "invalid"
            why_not = why_not or ("no_truth" if episode.answer is None else None)
            again = episode if why_not else self._again(episode)
            self.before.add(episode)
            self.after.add(again)
            if why_not:
                self.left[why_not] += 1
            self.scored += not why_not
            yield again

    def _again(self, episode: Episode) -> Episode:
        if episode.submitted is None:
            verdict = Score(0.0, "no answer was submitted")
        else:
            try:
                verdict = as_score(self._score(episode.answer, episode.submitted))
            except Exception as error:
                raise ConfigError(
                    f"scorer {self.name!r} cannot judge episode {episode.key}: {describe(error)}; its true answer is "
                    f"{episode.answer!r:.200}"
                ) from error
        if verdict.value != episode.score:
            self.changed.append(
                {
                    "episode": episode.key,
                    "task_id": episode.task_id,
                    "submitted": episode.submitted,
                    "answer": episode.answer,
                    "old": episode.score,
                    "new": float(verdict.value),
                    "reason": verdict.reason,
                }
            )
        return dataclasses.replace(
            episode, score=float(verdict.value), versions={**episode.versions, "scorer": self.name}
        )
