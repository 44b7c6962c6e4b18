"""The episodes of a run: where they are written, how they ended, what is logged of them. No framework, no torch."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from aworld_gym.errors import AWorldGymError, ConfigError
from aworld_gym.play import Item
from aworld_gym.token_policy import TokenEpisode
from aworld_gym.trajectory import Journal, read_jsonl
from aworld_gym.types import Episode, Outcome

log = logging.getLogger(__name__)

FILES = {"train": "episodes", "eval": "eval_episodes"}
"""The journal of each split, without its suffix."""
WRITERS = 10_000
"""Files that :meth:`Journals.free` tries before it gives up."""


OpenJournal = Callable[[], Journal | None]
"""Opens a journal, or gives the one that is open; None where episodes are not written."""


def lost_episode(item: Item, why: str, attempts: int, journal: OpenJournal) -> TokenEpisode:
    """The result of an episode that was given up without one: no measurement, no ids, and why in the journal."""
    record = Episode(
        env_id="",
        task_id="",
        seed=item.seed,
        attempt=attempts - 1,
        group_id=item.group_id,
        sample=item.sample,
        outcome=Outcome.INFRA_FAILURE,
        error=why,
        error_kind="env_failed",
    )
    try:
        if (opened := journal()) is not None:
            opened.append(record)
    except AWorldGymError:
        log.exception("an episode that was given up could not be written down: %s", why)
    return TokenEpisode(record, None, attempts)


class EpisodeCounts(Counter[str]):
    """How episodes ended: ``episodes``, ``invalid``, ``retried`` and one count per outcome."""

    def add(self, played: TokenEpisode) -> None:
        """Count one item of a rollout."""
        self["episodes"] += 1
        self["invalid"] += not played.episode.valid
        self["retried"] += played.attempts - 1
        self[str(played.episode.outcome)] += 1

    def add_batch(self, played: Sequence[TokenEpisode], *, step: int, room: str) -> None:
        """Count a batch, and say aloud what of it is no measurement, and which prompts leave no room for a turn.

        Args:
            played: the batch.
            step: the trainer's.
            room: what to do for longer prompts.
        """
        for one in played:
            self.add(one)
        bad = [one.episode for one in played if not one.episode.valid]
        if bad:
            in_run = f"{self['invalid']} of {self['episodes']} in this run"
            say_invalid(len(bad), len(played), step=step, more=f"{in_run}; for example: {bad[0].error}")
        full = [len(one.trajectory.prompt_ids) for one in played if one.trajectory and not one.trajectory.response_ids]
        if full:
            text = "step %d: %d of %d prompts (of up to %d ids) leave no room for a turn; %s"
            log.warning(text, step, len(full), len(played), max(full), room)

    @classmethod
    def of_journal(cls, path: Path) -> EpisodeCounts:
        """Of the episodes in a file, each by its last attempt."""
        last = {}
        for episode in read_jsonl(path) if path.exists() else ():
            last[episode.group_id, episode.sample] = (episode.outcome, episode.valid, episode.attempt)
        counts = cls()
        for outcome, valid, attempt in last.values():
            counts.update({"episodes": 1, "invalid": not valid, "retried": attempt, str(outcome): 1})
        return counts


def say_invalid(lost: int, played: int, *, step: int, more: str) -> None:
    """Say aloud that episodes of a batch are not measurements; a batch without one is more than a warning."""
    text = "step %d: %d of %d episodes failed with their infrastructure and are left out of loss and baseline (%s)"
    log.log(logging.ERROR if lost == played else logging.WARNING, text, step, lost, played, more)


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


def mean_metrics(rows: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """The mean of each metric over the rows that have it."""
    values: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        for name, value in row.items():
            values[name].append(value)
    return {name: sum(of_name) / len(of_name) for name, of_name in values.items()}


class Journals:
    """Where the episodes of a run are written, by split and process; opened when the first one comes.

    Args:
        paths: by split (``"train"``, ``"eval"``), the file of the first process.
    """

    def __init__(self, paths: Mapping[str, Path] | None = None):
        self.paths = dict(paths or {})
        self._open: dict[str, Journal] = {}

    @classmethod
    def into(cls, folder: Path) -> Journals:
        """``episodes.jsonl`` and ``eval_episodes.jsonl`` in a folder."""
        return cls({split: folder / f"{name}.jsonl" for split, name in FILES.items()})

    def get(self, split: str, rank: int = 0) -> Journal | None:
        """The journal of a split, for the process of this rank (``episodes.rank1.jsonl``); None where it has none."""
        if split not in self._open and split in self.paths:
            path = self.paths[split]
            self._open[split] = Journal(path if rank == 0 else path.with_suffix(f".rank{rank}{path.suffix}"))
        return self._open.get(split)

    def free(self, split: str) -> Journal | None:
        """As :meth:`get`, for a process without a rank: the first file (``episodes.<k>.jsonl``) that no other writes.

        Raises:
            ConfigError: the folder cannot be written.
        """
        path = self.paths.get(split)
        for k in range(WRITERS if path is not None and split not in self._open else 0):
            mine = path.with_suffix(f".{k}{path.suffix}")
            try:
                self._open[split] = Journal(mine)
                break
            except ConfigError:
                if not mine.exists():
                    raise  # not another's lock
        return self._open.get(split)

    def collect(self) -> None:
        """Put together what processes without a rank wrote; each file in order of completion, one after the other."""
        for path in self.paths.values():
            named = {part: part.name.split(".") for part in path.parent.glob(f"{path.stem}.*{path.suffix}")}
            parts = [part for part, name in named.items() if len(name) == 3 and name[1].isdecimal()]  # no user's copies
            for part in sorted(parts, key=lambda part: int(named[part][1])):
                with part.open("rb") as file, path.open("ab") as whole:
                    whole.writelines(line for line in file if line.endswith(b"\n"))  # a process may have been killed
                part.unlink()

    def close(self) -> None:
        """Close those that are open."""
        for journal in self._open.values():
            journal.close()
        self._open.clear()
