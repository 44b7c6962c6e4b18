"""A call of ``train``: what of it needs no framework, from its arguments to its result. No torch."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gymnasium.envs.registration import EnvSpec

from adapters.credit import Credit, check_credit
from adapters.episodes import EpisodeCounts
from adapters.handover import Env, env_spec
from adapters.results import TrainResult
from adapters.tasks import EVAL_SEEDS, SEEDS_PER_RUN, task_seeds
from aworld_gym.errors import ConfigError

log = logging.getLogger(__name__)

MODELS = (
    "Give a folder written by save_pretrained (`make train` leaves one in runs/gaia/final), or the name of a model on "
    "a hub that this machine can reach."
)


@dataclass(frozen=True)
class Job:
    """What ``train`` was asked for."""

    specs: dict[str, EnvSpec]
    """By split: ``"train"``, and ``"eval"`` where there is an ``eval_env``."""
    model: Any
    output_dir: Path
    credit: Credit
    tasks: int | Sequence[int] | None
    eval_tasks: int | Sequence[int]

    @classmethod
    def of(
        cls,
        env: Env,
        eval_env: Env | None,
        model: Any,
        output_dir: str | Path,
        credit: Credit,
        tasks: int | Sequence[int] | None,
        eval_tasks: int | Sequence[int],
        *,
        takes_objects: bool = False,
    ) -> Job:
        """Arguments of ``train``, checked; ``takes_objects`` where the model may be loaded already.

        Raises:
            ConfigError: an env or a model that cannot be had, or an unknown credit.
        """
        check_credit(credit)
        if not takes_objects and not isinstance(model, str | Path):
            kind = type(model).__name__
            raise ConfigError(f"this trainer loads models itself: give a path or a name on a hub, got a {kind}")
        check_model_folder(model)
        specs = {"train": env_spec(env)} | ({} if eval_env is None else {"eval": env_spec(eval_env)})
        return cls(specs, model, Path(output_dir), credit, tasks, eval_tasks)

    @property
    def evaluates(self) -> bool:
        """Is there an ``eval_env``?"""
        return "eval" in self.specs

    def seeds(self, needed: int, seed: int) -> dict[str, list[int]]:
        """By split, the seeds of its tasks.

        Args:
            needed: tasks of training, where the call does not say.
            seed: the framework's.
        """
        tasks = needed if self.tasks is None else self.tasks
        return {"train": task_seeds(tasks, seed * SEEDS_PER_RUN), "eval": task_seeds(self.eval_tasks, EVAL_SEEDS)}

    @contextmanager
    def loading(self, what: str = "model") -> Iterator[None]:
        """Whatever cannot be read while a framework loads the model is a ConfigError that says what would help."""
        try:
            yield
        except OSError as error:
            why = str(error).strip().split("\n")[0].rstrip(".")
            raise ConfigError(f"the {what} {str(self.model)!r} cannot be loaded: {why}. {MODELS}") from error

    def say(self, tasks: int, group_size: int, max_tokens: int | None) -> None:
        """Log what is about to be trained; ``max_tokens`` None is as many as the model holds."""
        log.info(
            "training on %s: %d tasks an epoch, %d episodes a group, at most %s tokens an episode after its prompt; "
            "the reward of %s",
            self.specs["train"].id,
            tasks,
            group_size,
            "the model's" if max_tokens is None else max_tokens,
            "an episode is the sum of its steps' rewards"
            if self.credit == "episode"
            else "each turn is its own and the later",
        )

    def result(
        self, metrics: list[dict[str, Any]], counts: EpisodeCounts, checkpoint: Path | None = None
    ) -> TrainResult:
        """What the run leaves in ``output_dir``: by default its checkpoint is ``final``."""
        steps = metrics[-1].get("step", 0) if metrics else 0
        log.info("trained %d steps; episodes: %s", steps, dict(sorted(counts.items())))
        return TrainResult(checkpoint or self.output_dir / "final", metrics, self.output_dir / "episodes.jsonl", counts)


def check_model_folder(model: Any) -> None:
    """Raises ConfigError where ``model`` is a path and no model is there; a name may still be one of a hub."""
    if not isinstance(model, str | Path):
        return
    path = Path(model)
    if path.is_dir():
        if not any((path / name).is_file() for name in ("config.json", "adapter_config.json")):
            raise ConfigError(f"the folder {str(model)!r} holds no model (no config.json). {MODELS}")
    elif isinstance(model, Path) or model.startswith((".", "/", "~")) or model.count("/") > 1:
        raise ConfigError(f"there is no folder {str(model)!r} (seen from {Path.cwd()}). {MODELS}")
