"""What a trainer is given of one episode, and the form in which a rollout path can be called on its own.

A trainer's adapter ends in that trainer's tensors. So that adapters can be compared with each other and checked from
outside (:func:`aworld_gym.testing.check_adapter`), its rollout path can be written as a plain function, a
:class:`RolloutRows`: the same code as in training, but for the sampler.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from aworld_gym.generation import Generate
from aworld_gym.play import Item
from aworld_gym.rollout import EnvLike
from aworld_gym.token_policy import TokenEpisode
from aworld_gym.tokens import ChatCodec


@dataclass(frozen=True)
class TrainedRow:
    """One episode as it reaches a trainer's loss.

    Most trainers cannot take a row without ids. For an episode that is no measurement, or in which nothing was
    sampled, *filler* ids may stand in ``prompt_ids`` and ``response_ids``, with mask 0.
    """

    prompt_ids: tuple[int, ...]
    response_ids: tuple[int, ...]
    mask: tuple[int, ...]
    """Aligned with ``response_ids``: 1 where the id is trained on, which is where it was sampled."""
    turn_rewards: tuple[float, ...]
    """Of each turn, the reward of its env step."""
    turn_ends: tuple[int, ...]
    """Aligned with ``turn_rewards``: the index in ``response_ids`` of the turn's last sampled id."""
    valid: bool
    """False where the episode is no measurement: then ``mask`` is all zeros, and it is out of its group's baseline."""
    logprobs: tuple[float, ...] | None = None
    """Aligned with ``response_ids``: the sampler's log-probabilities (nats), 0.0 where the mask is 0; None without."""

    @classmethod
    def of(cls, played: TokenEpisode, *, filler: int) -> TrainedRow:
        """The row of an episode.

        Args:
            played: the episode.
            filler: an id that stands where there is none to train on, in rows without a sampled id of a valid
                episode.
        """
        trajectory, valid = played.trajectory, played.episode.valid
        prompt = (filler,) if trajectory is None else trajectory.prompt_ids
        if trajectory is None or not valid or not trajectory.response_ids:
            return cls(prompt, (filler,), (0,), (), (), valid, (0.0,))
        return cls(
            prompt,
            trajectory.response_ids,
            trajectory.mask,
            trajectory.turn_rewards,
            trajectory.turn_ends,
            valid,
            trajectory.logprobs,
        )

    @property
    def turns(self) -> tuple[tuple[int, int], ...]:
        """Each turn's trained ids as a half-open range ``(start, stop)`` of ``response_ids``."""
        starts = [k for k, bit in enumerate(self.mask) if bit and (k == 0 or not self.mask[k - 1])]
        return tuple((start, end + 1) for start, end in zip(starts, self.turn_ends, strict=True))

    @property
    def token_rewards(self) -> tuple[float, ...]:
        """Aligned with ``response_ids``: each turn's reward at its last sampled id, 0.0 elsewhere."""
        at = dict(zip(self.turn_ends, self.turn_rewards, strict=True))
        return tuple(at.get(k, 0.0) for k in range(len(self.response_ids)))

    def to_dict(self) -> dict[str, Any]:
        """A JSON-serialisable dict; ``from_dict`` is its inverse."""
        return {name: list(v) if isinstance(v, tuple) else v for name, v in vars(self).items()}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> TrainedRow:
        """The row that ``to_dict`` gave ``data`` for."""
        fields: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in data.items()}
        return cls(**fields)


class RolloutRows(Protocol):
    """An adapter's rollout path over a sampler that is given."""

    def __call__(
        self, env: EnvLike, codec: ChatCodec, generate: Generate, items: Sequence[Item], *, max_tokens: int
    ) -> Sequence[TrainedRow]:
        """Play one episode per item, through the same code as training does.

        Args:
            env: an id, a spec, or an env made by ``gym.make`` (its spec is rebuilt, wrappers included).
            codec: tokenises and parses; its tokenizer is the model's.
            generate: the sampler, in the place of the trainer's own: id lists and limits in, ids and log-probabilities
                out, for one episode or for many at a time.
            items: the episodes; (seed, sample) pairs are unique, episodes of one seed are a group.
            max_tokens: ids of a whole episode after its prompt, observations included.

        Returns:
            One row per item, in their order.
        """
