"""The episodes of a batch, for trainers that sample on their own thread, in one process or in several.

What is the same for TRL and ms-swift stands here: how a batch is numbered, played, counted and written down, and how
the processes of a distributed run keep in step, whose sampling may be a collective operation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from accelerate.utils import gather_object
from gymnasium.envs.registration import EnvSpec

from adapters.episodes import EpisodeCounts, Journals, episode_metrics
from adapters.options import RolloutOptions
from adapters.tasks import number_items
from aworld_gym.errors import ConfigError
from aworld_gym.generation import Generate, PoolStats
from aworld_gym.token_policy import TokenEpisode, token_rollout
from aworld_gym.tokens import ChatCodec


class Batches:
    """Plays batches, and counts.

    Args:
        options: how episodes are played.
        journals: where they are written as they finish.
    """

    def __init__(self, options: RolloutOptions, journals: Journals):
        self.options, self.journals = options, journals
        self.counts = {"train": EpisodeCounts(), "eval": EpisodeCounts()}

    def play(
        self,
        spec: EnvSpec,
        codec: ChatCodec,
        sample: Generate,
        seeds: Sequence[int],
        *,
        split: str,
        group_size: int,
        step: int,
        accelerator: Any,
        max_tokens: int | None,
        max_context: int | None,
        room: str,
    ) -> tuple[list[TokenEpisode], list[dict[str, float]]]:
        """Play one episode per seed.

        Args:
            spec: the env's.
            codec: tokenises and parses.
            sample: called on this thread with all that wait; in a distributed run by all processes together.
            seeds: of this process's rows; those of a group are consecutive in the whole batch.
            split: ``"train"`` or ``"eval"``.
            group_size: episodes per group.
            step: the trainer's.
            accelerator: which process this is, and of how many.
            max_tokens: ids of a whole episode after its prompt; None is as many as ``max_context`` leaves.
            max_context: ids of prompt and episode together.
            room: what to do for prompts that leave no room for a turn.

        Returns:
            The episodes in the order of their seeds, and what to log of each.

        Raises:
            ConfigError: nothing bounds an episode.
        """
        bound = max_context if max_tokens is None else max_tokens
        if bound is None:
            raise ConfigError("nothing says how many tokens an episode may have: set max_completion_length")
        rank, stats = accelerator.process_index, PoolStats()
        played = token_rollout(
            spec,
            codec,
            sample,
            number_items(seeds, group_size, first=rank * len(seeds), step=step),
            max_tokens=bound,
            max_context=max_context,
            journal=self.journals.get(split, rank),
            rendezvous=_rendezvous if accelerator.num_processes > 1 else None,
            model_version=str(step),
            stats=stats,
            **vars(self.options),
        )
        self.counts[split].add_batch(played, step=step, room=room)
        metrics = [episode_metrics(one) for one in played]
        metrics[0] |= {"env/late": float(stats.late), "time/generate_s": stats.generate_s, "time/env_s": stats.wait_s}
        return played, metrics


def round_of_all(rows: int, limit: int) -> tuple[int, int]:
    """Of a round in which all processes sample together: the most rows of any, and the largest limit."""
    rounds = gather_object([(rows, limit)])
    return max(rows for rows, _ in rounds), max(limit for _, limit in rounds)


def _rendezvous(alive: bool, waiting: bool) -> tuple[bool, bool]:
    """Of all processes: is any alive, does any wait for a batch?"""
    flags = gather_object([(alive, waiting)])
    return any(alive for alive, _ in flags), any(waiting for _, waiting in flags)
