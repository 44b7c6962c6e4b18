"""What a set of episodes says, in one place: the same numbers for ``eval``, training and reports.

Only valid episodes are measurements. Invalid ones (a tool server died, say) stand in no mean; they are counted
beside it. An invalid attempt that was tried again is ``retried`` and is not an episode of its own.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from aworld_gym.types import Episode

Z_95 = 1.959963984540054
"""The 97.5 % quantile of the standard normal distribution."""
BOOTSTRAP_SAMPLES = 2000
METRIC = "pass@1"
"""The number that stands for a run: :meth:`Metrics.summary`'s ``pass_at_1``."""
_RESAMPLE_BLOCK = 1 << 20


@dataclass(frozen=True)
class _Row:
    """What the summary needs of one episode (a few hundred bytes, so that runs of any length can be summed)."""

    item: Hashable
    attempt: int
    cluster: Hashable
    task_id: str
    seed: int | None
    level: str | None
    valid: bool
    outcome: str
    failure: str | None
    score: float | None
    total: float
    turns: int
    calls: int
    errors: Counter[str]

    @classmethod
    def of(cls, episode: Episode) -> _Row:
        results = [result for step in episode.steps for result in step.results]
        level = episode.task.get("level")  # a whole number of the task source, or whatever else its metadata has
        return cls(
            item=(episode.seed, episode.sample, episode.agent_id, episode.parent, episode.forked_at),
            attempt=episode.attempt,
            cluster=episode.group_id if episode.group_id is not None else (episode.task_id, episode.seed),
            task_id=episode.task_id,
            seed=episode.seed,
            level=None if level is None else str(level),
            valid=episode.valid,
            outcome=_outcome(episode),
            failure=None if episode.valid else episode.error_kind or _outcome(episode),
            score=episode.score,
            total=episode.total_reward,
            turns=len(episode.steps),
            calls=len(results),
            errors=Counter(result.error for result in results if result.error),
        )


class Metrics:
    """Adds up episodes as they finish; ``summary()`` at any time.

    Example:
        >>> Metrics().summary()["episodes"]
        0
    """

    def __init__(self, episodes: Iterable[Episode] = ()):
        self._rows: list[_Row] = []
        for episode in episodes:
            self.add(episode)

    def add(self, episode: Episode) -> None:
        """Count one more record; the episode itself is not kept."""
        self._rows.append(_Row.of(episode))

    def summary(self) -> dict[str, Any]:
        """The numbers as JSON values; a mean over nothing is None.

        ``episodes`` = ``valid`` + ``invalid``; ``retried`` counts the invalid attempts that a later attempt
        replaced. ``failures`` counts all invalid attempts by what spoiled them
        (:data:`~aworld_gym.errors.INFRA_KINDS` for infrastructure). ``scored`` counts the valid episodes with a score:
        those of tasks without a true answer have none. ``success_rate`` is the share of valid, scored
        episodes with score 1, and ``success_ci95`` its 95 % interval (:func:`success_interval`); an episode that
        ended without an answer (outcome ``no_answer``, ``max_turns``, ...) is scored and is no success.

        The episodes of a group are samples of one task; the following are means over tasks of one number per task,
        each with ``..._ci95``, its 95 % interval over tasks (:func:`success_interval`), and stand in each
        ``by_level`` too. ``k`` is the size of the largest group (that of the whole run, in ``by_level`` as well).

        * ``pass_at_1``: the share of a task's samples that succeeded;
        * ``pass_at_k``: the probability that one of ``k`` samples succeeds (:func:`pass_at`), over the tasks that
          have ``k`` scored samples; None where ``k`` is 1;
        * ``avg_at_k``: the mean score of a task's samples; equal to ``pass_at_1`` where every score is 0 or 1;
        * ``pass_at``: ``pass_at_k`` for 1, 2, 4, ... and ``k``, as ``{"4": {"value", "ci95", "tasks"}}``.

        ``tool_calls`` and ``tool_errors`` are totals over valid episodes.
        """
        rows = [row for row, keep in zip(self._rows, _is_final(self._rows), strict=True) if keep]
        valid = [row for row in rows if row.valid]
        scored = [row for row in valid if row.score is not None]
        errors: Counter[str] = sum((row.errors for row in valid), Counter())
        k = max(Counter(row.cluster for row in scored).values(), default=None)
        return {
            "episodes": len(rows),
            "valid": len(valid),
            "invalid": len(rows) - len(valid),
            "scored": len(scored),
            "retried": len(self._rows) - len(rows),
            "failures": dict(sorted(Counter(row.failure for row in self._rows if row.failure is not None).items())),
            "success_rate": _mean([_success(row) for row in scored]),
            "success_ci95": success_interval([(row.cluster, _success(row)) for row in scored]),
            "mean_score": _mean([row.score for row in scored if row.score is not None]),
            "mean_return": _mean([row.total for row in valid]),
            "mean_turns": _mean([row.turns for row in valid]),
            "tool_calls": sum(row.calls for row in valid),
            "tool_errors": errors.total(),
            "tool_errors_by_kind": dict(sorted(errors.items())),
            "outcomes": dict(sorted(Counter(row.outcome for row in rows).items())),
            "by_level": _by_level(rows, k),
            "k": k,
            **_over_tasks(scored, k),
        }


def summarize(episodes: Iterable[Episode]) -> dict[str, Any]:
    """:meth:`Metrics.summary` of these episodes."""
    return Metrics(episodes).summary()


def final(episodes: Iterable[Episode]) -> list[Episode]:
    """The episodes, in order, without the invalid attempts that a later attempt of the same item replaced."""
    episodes = list(episodes)
    return [e for e, keep in zip(episodes, _is_final([_Row.of(e) for e in episodes]), strict=True) if keep]


def pass_at(k: int, samples: int, successes: int) -> float:
    r"""The probability that at least one of ``k`` samples of a task succeeds, from ``samples`` >= ``k`` of them.

    .. math:: 1 - \binom{n-c}{k} / \binom{n}{k}

    It is unbiased for independent samples, which 1 - (1 - c/n)^k is not: M. Chen et al., Evaluating Large Language
    Models Trained on Code, arXiv:2107.03374 (2021), equation 1. Evaluated as the product that they give.

    Raises:
        ValueError: not 1 <= k <= samples, or not 0 <= successes <= samples.
    """
    if not (1 <= k <= samples and 0 <= successes <= samples):
        raise ValueError(
            f"pass@k takes 1 <= k <= samples and 0 <= successes <= samples, got k={k}, samples={samples}, "
            f"successes={successes}"
        )
    failures = samples - successes
    if failures < k:
        return 1.0
    return 1.0 - math.prod(1.0 - k / i for i in range(failures + 1, samples + 1))


def success_interval(successes: Iterable[tuple[Hashable, float]]) -> list[float] | None:
    """A 95 % interval of the success rate, from ``(cluster, 0 or 1)`` pairs; None for fewer than two clusters.

    Episodes of one group share a task, so a group is one cluster and clusters are what is sampled. Where their
    means differ it is the cluster bootstrap (:func:`bootstrap_ci`). Where they do not (all right, all wrong), there is
    nothing to resample and the bootstrap would claim certainty; then it is Wilson's score interval
    (:func:`wilson_interval`) with the number of clusters for the sample size, as if each cluster were one episode:
    the most that episodes of a cluster can depend on each other.
    """
    table = _by_cluster(successes)
    means = table[:, 0] / table[:, 1]
    if len(table) >= 2 and np.all(means == means[0]):
        return wilson_interval(float(means[0]), len(table))
    return _resampled(table)


def wilson_interval(rate: float, count: int) -> list[float]:
    r"""Wilson's 95 % score interval of a success rate in ``count`` independent trials.

    .. math:: \frac{p + z^2/2n \pm z \sqrt{p(1-p)/n + z^2/4n^2}}{1 + z^2/n}

    E. B. Wilson, Probable inference, the law of succession, and statistical inference, J. Am. Stat. Assoc. 22
    (1927); for why it and not the normal interval: Brown, Cai and DasGupta, Stat. Sci. 16 (2001).
    """
    share = Z_95**2 / count
    middle = (rate + share / 2) / (1 + share)
    half = math.sqrt(rate * (1 - rate) * share + share**2 / 4) / (1 + share)
    # At rates of 0 and 1 one end is exactly the rate, which floating point misses by a last digit.
    return [0.0 if rate == 0.0 else middle - half, 1.0 if rate == 1.0 else middle + half]


def bootstrap_ci(values: Iterable[tuple[Hashable, float]], *, seed: int = 0) -> list[float] | None:
    """The 95 % percentile bootstrap interval of the mean of ``(cluster, value)`` pairs.

    Clusters are resampled whole (a cluster bootstrap: Davison and Hinkley, Bootstrap Methods, 1997, section
    3.8), by a fixed seed. None where there are fewer than two clusters. Of clusters with equal means it has no
    width: see :func:`success_interval`.
    """
    return _resampled(_by_cluster(values), seed)


def _by_cluster(values: Iterable[tuple[Hashable, float]]) -> np.ndarray:
    """Sum and count of each cluster, (clusters, 2)."""
    sums: dict[Hashable, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for cluster, value in values:
        sums[cluster][0] += value
        sums[cluster][1] += 1.0
    return np.array(list(sums.values()), dtype=float).reshape(-1, 2)


def _resampled(table: np.ndarray, seed: int = 0) -> list[float] | None:
    count = len(table)
    if count < 2:
        return None
    rng, means = np.random.default_rng(seed), []
    block = max(1, _RESAMPLE_BLOCK // count)
    for start in range(0, BOOTSTRAP_SAMPLES, block):
        draw = rng.integers(count, size=(min(block, BOOTSTRAP_SAMPLES - start), count))
        total = table[draw].sum(axis=1)
        means.append(total[:, 0] / total[:, 1])
    low, high = np.quantile(np.concatenate(means), [0.025, 0.975])
    return [float(low), float(high)]


def _is_final(rows: list[_Row]) -> list[bool]:
    """False for each invalid row that has a later attempt. A task that was never reached has the empty id."""
    last: dict[Hashable, int] = defaultdict(lambda: -1)
    for row in rows:
        for task_id in {row.task_id, ""}:
            last[row.item, task_id] = max(last[row.item, task_id], row.attempt)
    return [row.valid or last[row.item, row.task_id] <= row.attempt for row in rows]


def _outcome(episode: Episode) -> str:
    return "unfinished" if episode.outcome is None else str(episode.outcome)


def _success(row: _Row) -> float:
    return float(row.score == 1.0)


def _mean(values: list[float] | list[int]) -> float | None:
    return float(np.mean(values)) if values else None


def _by_level(final_rows: list[_Row], k: int | None) -> dict[str, dict[str, Any]]:
    """The numbers of each level; an invalid episode whose task was never reached has none, and is in no level."""
    out = {}
    for level in sorted({row.level for row in final_rows if row.level is not None}, key=_in_order):
        rows = [row for row in final_rows if row.level == level]
        valid = [row for row in rows if row.valid]
        scored = [row for row in valid if row.score is not None]
        out[level] = {
            "episodes": len(valid),
            "invalid": len(rows) - len(valid),
            "success_rate": _mean([_success(row) for row in scored]),
            "success_ci95": success_interval([(row.cluster, _success(row)) for row in scored]),
            "mean_turns": _mean([row.turns for row in valid]),
            **_over_tasks(scored, k),
        }
    return out


def _in_order(level: str) -> tuple[bool, int, str]:
    """Levels that are numbers by size, then others by their letters."""
    number = level.isdecimal()
    return not number, int(level) if number else 0, level


def _over_tasks(scored: list[_Row], k: int | None) -> dict[str, Any]:
    """Means over tasks with their intervals."""
    tasks: dict[Hashable, list[_Row]] = defaultdict(list)
    for row in scored:
        tasks[row.cluster].append(row)
    counts = {task: (len(rows), sum(row.score == 1.0 for row in rows)) for task, rows in tasks.items()}
    curve = {}
    for j in _doublings(k or 0):
        values = [(task, pass_at(j, n, c)) for task, (n, c) in counts.items() if n >= j]
        curve[str(j)] = _with_interval(values) | {"tasks": len(values)}
    nothing: dict[str, Any] = {"value": None, "ci95": None}
    named = {
        "pass_at_1": curve.get("1", nothing),
        "pass_at_k": curve[str(k)] if k is not None and k > 1 else nothing,
        "avg_at_k": _with_interval(
            [(task, sum(row.score or 0.0 for row in rows) / len(rows)) for task, rows in tasks.items()]
        ),
    }
    out: dict[str, Any] = {"tasks": len(tasks)}
    for name, found in named.items():
        out |= {name: found["value"], f"{name}_ci95": found["ci95"]}
    return out | {"pass_at": curve}


def _with_interval(values: list[tuple[Hashable, float]]) -> dict[str, Any]:
    return {"value": _mean([value for _, value in values]), "ci95": success_interval(values)}


def _doublings(k: int) -> list[int]:
    """1, 2, 4, ... and ``k``."""
    return sorted({2**i for i in range(k.bit_length())} | ({k} if k else set()))
