"""Credit assignment by turns, and who is in a baseline. Plain numbers: the same for every trainer.

``credit="episode"`` is each framework's own advantage of an episode's summed reward, over :func:`measured` episodes.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Literal, get_args

import numpy as np

from aworld_gym.errors import ConfigError

Credit = Literal["episode", "step"]
Scale = Literal["group", "batch", "none"]

STD_EPSILON = 1e-4
"""Added to a standard deviation before dividing by it, as TRL does."""


def check_credit(credit: Any) -> None:
    """Raises ConfigError for what is no :data:`Credit`."""
    if credit not in get_args(Credit):
        raise ConfigError(f"credit must be 'episode' or 'step', got {credit!r}")


def measured(valid: Sequence[bool], groups: Sequence[Hashable], *, least: int = 1) -> list[int]:
    """The places of the episodes that a baseline is made of: valid ones, in groups with ``least`` of them or more."""
    places: dict[Hashable, list[int]] = defaultdict(list)
    for place, (ok, group) in enumerate(zip(valid, groups, strict=True)):
        if ok:
            places[group].append(place)
    return sorted(place for group in places.values() if len(group) >= least for place in group)


def rewards_to_go(rewards: Sequence[float]) -> list[float]:
    """For each turn, the sum of its reward and all later ones."""
    return [float(x) for x in np.cumsum(np.asarray(rewards, dtype=float)[::-1])[::-1]]


def turn_advantages(
    turn_rewards: Sequence[Sequence[float] | None],
    *,
    group_size: int = 0,
    groups: Sequence[Hashable] | None = None,
    scale: Scale = "group",
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
            mean and has no advantage.
        group_size: episodes per group, where groups are consecutive.
        groups: of each episode its group, where they are not.
        scale: divide by the group's standard deviation, the whole batch's, or not at all.

    Returns:
        Of each episode, one advantage per turn; zeros where fewer than two episodes of the group are valid.
    """
    if groups is None:
        if len(turn_rewards) % group_size:
            raise ValueError(f"expected whole groups of {group_size}, got {len(turn_rewards)} episodes")
        groups = [place // group_size for place in range(len(turn_rewards))]
    # An episode that never came to a turn has earned 0, and counts.
    returns = [None if r is None else np.asarray(rewards_to_go(r) or [0.0]) for r in turn_rewards]
    batch_std = _spread([g for g in returns if g is not None])[1]
    out: list[list[float]] = [[0.0] * len(rewards or ()) for rewards in turn_rewards]
    members: dict[Hashable, list[int]] = defaultdict(list)
    for place in measured([g is not None for g in returns], groups, least=2):
        members[groups[place]].append(place)
    for places in members.values():
        mean, std = _spread([returns[place] for place in places])
        scaling = {"group": std + STD_EPSILON, "batch": batch_std + STD_EPSILON, "none": 1.0}[scale]
        if not math.isfinite(std) or not math.isfinite(scaling):
            continue
        for place in places:
            advantages = (returns[place] - mean) / scaling
            out[place] = [float(x) for x in advantages][: len(out[place])]
    return out


def mask_turns(mask: Any) -> list[tuple[int, int]]:
    """The turns of a row (T,): runs of ones in its mask, as half-open ranges."""
    edges = np.diff(np.pad(np.asarray(mask, dtype=int), 1))
    starts, stops = (edges == 1).nonzero()[0], (edges == -1).nonzero()[0]
    return [(int(start), int(stop)) for start, stop in zip(starts, stops, strict=True)]


def credit_by_token(rewards: Any, mask: Any, groups: Sequence[Hashable], *, scale: Scale) -> np.ndarray:
    """:func:`turn_advantages` over token-level tensors.

    Args:
        rewards: (episodes, T), a turn's anywhere from its first id to the next turn's: a trainer may have masked the
            id at which it stood.
        mask: (episodes, T), 1 where an id is trained on. A row without a one is no measurement.
        groups: of each episode its group.
        scale: as for ``turn_advantages``.

    Returns:
        (episodes, T); 0 where the mask is.
    """
    turns = [mask_turns(row) for row in mask]
    by_turn: list[list[float] | None] = []
    for row, spans in zip(np.asarray(rewards, dtype=float), turns, strict=True):
        starts = [start for start, _ in spans]
        ends = [*starts[1:], len(row)]
        earned = [float(row[start:end].sum()) for start, end in zip(starts, ends, strict=False)]
        by_turn.append(earned if spans else None)
    return token_advantages(turns, turn_advantages(by_turn, groups=groups, scale=scale), len(mask[0]))


def token_advantages(
    turns: Sequence[Sequence[tuple[int, int]]], advantages: Sequence[Sequence[float]], width: int
) -> np.ndarray:
    """Each turn's advantage at its sampled ids.

    Args:
        turns: of each episode, the half-open range of each turn's ids.
        advantages: of each episode, one for each turn.
        width: ids of a row.

    Returns:
        (episodes, width); 0 at ids that no turn sampled.
    """
    out = np.zeros((len(turns), width))
    for row, spans, values in zip(out, turns, advantages, strict=True):
        for (start, stop), value in zip(spans, values, strict=True):
            row[start:stop] = value
    return out


def _spread(returns: Iterable[np.ndarray]) -> tuple[float, float]:
    """Mean and sample standard deviation over episodes that weigh the same; NaN for fewer than two."""
    returns = list(returns)
    if len(returns) < 2:
        return math.nan, math.nan
    mean = float(np.mean([g.mean() for g in returns]))
    return mean, math.sqrt(sum(float(((g - mean) ** 2).mean()) for g in returns) / (len(returns) - 1))
