"""Credit assignment by turns. Plain numbers: the same for every trainer.

``credit="episode"`` needs nothing here: it is each framework's own advantage of an episode's summed reward.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np

Credit = Literal["episode", "step"]
Scale = Literal["group", "batch", "none"]

STD_EPSILON = 1e-4
"""Added to a standard deviation before dividing by it, as TRL does."""


def rewards_to_go(rewards: Sequence[float]) -> list[float]:
    """For each turn, the sum of its reward and all later ones."""
    return [float(x) for x in np.cumsum(np.asarray(rewards, dtype=float)[::-1])[::-1]]


def turn_advantages(
    turn_rewards: Sequence[Sequence[float] | None], *, group_size: int, scale: Scale = "group"
) -> list[list[float]]:
    r"""One advantage per turn (``credit="step"``).

    With rewards-to-go :math:`G_{i,t} = \sum_{k \ge t} r_{i,k}` of the n valid episodes i of a group, of
    :math:`T_i` turns each,

    .. math::
        \mu = \frac{1}{n} \sum_i \frac{1}{T_i} \sum_t G_{i,t}, \qquad
        \sigma^2 = \frac{1}{n-1} \sum_i \frac{1}{T_i} \sum_t (G_{i,t} - \mu)^2, \qquad
        A_{i,t} = \frac{G_{i,t} - \mu}{\sigma + 10^{-4}} .

    Rewards-to-go are those of policy gradients with causality (Sutton et al., 2000); the baseline is GRPO's group
    mean (Shao et al., 2024, arXiv:2402.03300), of all turns of the group together. It is one constant per group,
    as GRPO's is: a baseline for each turn *index* would be over those episodes only that came so far, which the
    policy itself decides by when it stops, and is biased for that reason (verl issue 7244). Each episode weighs
    the same however many turns it took. Where only the last turn is rewarded, all this *is* GRPO's advantage.

    Args:
        turn_rewards: of each episode the rewards of its turns; None for an invalid one, which is left out of every
            mean and has no advantage. Groups are consecutive.
        group_size: episodes per group.
        scale: divide by the group's standard deviation, the whole batch's, or not at all.

    Returns:
        Of each episode, one advantage per turn; zeros where fewer than two episodes of the group are valid.
    """
    if len(turn_rewards) % group_size:
        raise ValueError(f"expected whole groups of {group_size}, got {len(turn_rewards)} episodes")
    # An episode that never came to a turn has earned 0, and counts.
    returns = [None if r is None else np.asarray(rewards_to_go(r) or [0.0]) for r in turn_rewards]
    batch_std = _spread([g for g in returns if g is not None])[1]
    out: list[list[float]] = []
    for start in range(0, len(returns), group_size):
        group = returns[start : start + group_size]
        mean, std = _spread([g for g in group if g is not None])
        scaling = {"group": std + STD_EPSILON, "batch": batch_std + STD_EPSILON, "none": 1.0}[scale]
        for to_go, rewards in zip(group, turn_rewards[start : start + group_size], strict=True):
            if to_go is None or not math.isfinite(std) or not math.isfinite(scaling):
                out.append([0.0] * len(rewards or ()))
            else:
                out.append([float(x) for x in (to_go - mean) / scaling][: len(rewards or ())])
    return out


def _spread(returns: Iterable[np.ndarray]) -> tuple[float, float]:
    """Mean and sample standard deviation over episodes that weigh the same; NaN for fewer than two."""
    returns = list(returns)
    if len(returns) < 2:
        return math.nan, math.nan
    mean = float(np.mean([g.mean() for g in returns]))
    return mean, math.sqrt(sum(float(((g - mean) ** 2).mean()) for g in returns) / (len(returns) - 1))
