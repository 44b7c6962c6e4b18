"""``train``, and the two functions from which people build their own ``swift rlhf``: ``register``, ``write_tasks``."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gymnasium.envs.registration import EnvSpec
from swift.arguments import RLHFArguments
from swift.model import MODEL_MAPPING
from swift.pipelines import rlhf_main
from swift.trainers.trainer_factory import TrainerFactory
from transformers.trainer_utils import get_last_checkpoint

from adapters.common import (
    EVAL_SEEDS,
    MODELS,
    SEEDS_PER_RUN,
    Env,
    RolloutOptions,
    TrainResult,
    TurnwiseOptions,
    check_model_folder,
    env_spec,
    read_config,
    refuse_mixing,
    say,
    say_what_is_trained,
    spec_json,
    take_rollout,
    task_seeds,
)
from adapters.credit import Credit
from adapters.hf import on_this_machine, tasks_needed
from adapters.settings import check_names, numbers
from adapters.swift import scheduler, template
from adapters.swift.scheduler import COLUMN, REWARD, SCHEDULER, SETTINGS
from aworld_gym.errors import ConfigError
from aworld_gym.tokens import ChatCodec

log = logging.getLogger(__name__)

TRAINER = "adapters.swift.trainer.EnvGRPOTrainer"
OWN = {"rlhf_type": "grpo", "template": template.TEMPLATE, "multi_turn_scheduler": SCHEDULER}
"""Settings of swift without which episodes are not played by the adapter."""


def train(
    env: Env,
    *,
    model: str | Path,
    output_dir: str | Path,
    config: Mapping[str, Any] | str | Path | None = None,
    eval_env: Env | None = None,
    credit: Credit = "episode",
    tasks: int | Sequence[int] | None = None,
    eval_tasks: int | Sequence[int] = 64,
    rollout: RolloutOptions | Mapping[str, Any] | None = None,
    logprob_threshold: float | None = None,
    codec: ChatCodec | None = None,
    **overrides: Any,
) -> TrainResult:
    """Train ``model`` on ``env`` with ms-swift's GRPOTrainer.

    Rows of a batch that belong to one group (``num_generations`` in a row) play the same task.
    ``max_completion_length`` bounds a whole episode after its prompt, tool results included; ``max_length`` bounds
    both together. An episode that infrastructure spoiled is played again in a fresh env, and if that fails too it
    is out of the loss and out of its group's baseline. Turns go in step, as swift plays them: the next one is sampled
    when every episode has its observation, so that a slow tool holds up its batch, until its call times out at most.

    Args:
        env: an id, an EnvSpec or an env made by ``gym.make``, whose spec (wrappers included) is rebuilt.
        model: a path or a hub name.
        output_dir: gets ``final/`` (model and tokenizer), swift's ``checkpoint-*``, ``metrics.jsonl`` and
            ``episodes.jsonl`` (``eval_episodes.jsonl`` for ``eval_env``; further processes write
            ``episodes.rank<k>.jsonl``).
        config: RLHFArguments as a mapping, or a YAML or JSON file of them, passed through untouched. It may have a
            section ``rollout`` with :class:`~adapters.common.TurnwiseOptions`. ``resume_from_checkpoint`` may be True:
            the last checkpoint in ``output_dir``.
        eval_env: played by swift's evaluation; its metrics are logged with the prefix ``eval_``.
        credit: ``"episode"``: GRPO's advantage, from the plain sum of an episode's rewards. ``"step"``: each turn
            has its own, from its reward and the later ones (:func:`adapters.credit.turn_advantages`).
        tasks: how many tasks an epoch has, or their seeds. By default as many as ``max_steps`` needs, each new;
            without ``max_steps``, 1000. They follow the config's ``seed``.
        eval_tasks: how many tasks an evaluation has, or their seeds; always the same.
        rollout: how episodes are played.
        logprob_threshold: mean difference of log-probabilities above which a warning is logged. By default 1e-3
            where everything is fp32, else 0.05.
        codec: tokenises and parses, for templates that need settings; by default made for the tokenizer.
        **overrides: further RLHFArguments, over those of ``config``.

    Raises:
        ConfigError: settings that cannot work, an env or model that cannot be had, a template that cannot be used
            token-exactly, or an ``output_dir`` that holds another run's episodes.
    """
    if not isinstance(model, str | Path):
        raise ConfigError(f"ms-swift loads models itself: give a path or a name on a hub, got a {type(model).__name__}")
    check_model_folder(model)
    output_dir, spec = Path(output_dir).absolute(), env_spec(env)
    eval_spec = None if eval_env is None else env_spec(eval_env)
    given = {**read_config(config), **overrides}
    options = take_rollout(given, rollout)
    resumed = given.get("resume_from_checkpoint")
    if resumed is True:
        given["resume_from_checkpoint"] = get_last_checkpoint(str(output_dir)) if output_dir.is_dir() else None
        if given["resume_from_checkpoint"] is None:
            raise ConfigError(f"there is no checkpoint in {output_dir} to resume from")
    elif not resumed:
        refuse_mixing(output_dir)
    files = [output_dir / "tasks.jsonl"] + [output_dir / "eval_tasks.jsonl"] * (eval_spec is not None)
    settings = arguments(given, model, output_dir, files)
    with _registered(credit=credit, rollout=options, logprob_threshold=logprob_threshold, codec=codec):
        try:
            args = RLHFArguments(**settings)
        except OSError as error:
            why = str(error).strip().split("\n")[0].rstrip(".")
            raise ConfigError(f"the model {str(model)!r} cannot be loaded: {why}. {MODELS}") from error
        count = tasks if tasks is not None else tasks_needed(args.training_args)
        seeds = task_seeds(count, args.seed * SEEDS_PER_RUN)
        write_tasks(files[0], spec, seeds)
        if eval_spec is not None:
            write_tasks(files[1], eval_spec, task_seeds(eval_tasks, EVAL_SEEDS), split="eval")
        say_what_is_trained(spec.id, len(seeds), args.num_generations, args.max_completion_length, credit)
        try:
            rlhf_main(args)
        finally:
            trainer, SETTINGS.trainer = SETTINGS.trainer, None
            if trainer is not None:
                trainer.scheduler.journals.close()
        trainer.save_model(str(output_dir / "final"))
        if trainer.is_world_process_zero():  # swift leaves it out where an adapter is trained
            trainer.template.tokenizer.save_pretrained(output_dir / "final")
    counts = trainer.scheduler.counts["train"]
    log.info("trained %d steps; episodes: %s", trainer.state.global_step, dict(sorted(counts.items())))
    return TrainResult(output_dir / "final", trainer.state.log_history, output_dir / "episodes.jsonl", counts)


def register(
    *,
    credit: Credit = "episode",
    rollout: RolloutOptions | Mapping[str, Any] | None = None,
    logprob_threshold: float | None = None,
    codec: ChatCodec | None = None,
) -> None:
    """Make scheduler, reward function, template and trainer known to swift: for a file of ``--external_plugins``.

    From then on ``rlhf_type="grpo"`` trains with :class:`adapters.swift.EnvGRPOTrainer`, which needs
    ``template="aworld"``, ``multi_turn_scheduler="aworld"``, ``reward_funcs=["aworld_env_reward"]`` and a data set of
    :func:`write_tasks`. Arguments are those of :func:`train`.

    Raises:
        ConfigError: unknown settings.
    """
    if credit not in ("episode", "step"):
        raise ConfigError(f"credit must be 'episode' or 'step', got {credit!r}")
    SETTINGS.credit, SETTINGS.rollout = credit, TurnwiseOptions.of(rollout)
    SETTINGS.logprob_threshold, SETTINGS.codec, SETTINGS.trainer = logprob_threshold, codec, None
    scheduler.register()
    template.register()
    TrainerFactory.TRAINER_MAPPING["grpo"] = TRAINER


def write_tasks(path: str | Path, env: Env, tasks: int | Sequence[int], *, seed: int = 0, split: str = "train") -> Path:
    """Write a data set for swift: one row per task.

    Args:
        path: the file, JSONL.
        env: as for :func:`train`.
        tasks: how many tasks, or their seeds.
        seed: where task seeds begin, where ``tasks`` is a number.
        split: ``"train"`` or ``"eval"``.
    """
    spec = env if isinstance(env, EnvSpec) else env_spec(env)
    rows = [task_row(spec, task_seed, split) for task_seed in task_seeds(tasks, seed * SEEDS_PER_RUN)]
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def task_row(spec: EnvSpec, seed: int, split: str = "train") -> dict[str, Any]:
    """A row of a data set. Its message only tells groups apart; the env makes the prompt."""
    said = [{"role": "user", "content": f"{split} task {seed}"}]
    return {"messages": said, COLUMN: json.dumps({"env": spec_json(spec), "seed": seed, "split": split})}


def arguments(given: Mapping[str, Any], model: str | Path, output_dir: Path, files: Sequence[Path]) -> dict[str, Any]:
    """RLHFArguments: those given, and what the env needs, which is logged.

    Raises:
        ConfigError: unknown settings, or some that the adapter has to set.
    """
    check_names(given, RLHFArguments, train)
    for name, value in given.items():
        if name in ("dataset", "val_dataset", "output_dir") or OWN.get(name, value) != value:
            raise ConfigError(f"{name!r} is set by the adapter: leave it out")
    ours: dict[str, Any] = {**OWN, "model": str(model), "output_dir": str(output_dir), "add_version": False}
    ours |= {"dataset": [str(files[0])], "reward_funcs": [REWARD, *given.get("reward_funcs", ())]}
    if len(files) > 1:
        ours["val_dataset"] = [str(files[1])]
        ours |= {k: v for k, v in {"eval_strategy": "steps", "num_generations_eval": 1}.items() if k not in given}
    ours |= on_this_machine(given, torch_dtype="float32")
    if Path(model).is_dir() and "check_model" not in given:
        ours["check_model"] = False  # else swift asks a hub whether it has a newer version of the folder
    kind = _model_type(model)
    if kind is not None and "model_type" not in given:
        ours["model_type"] = kind
    say(ours)
    return {**numbers(given, RLHFArguments), **ours}


def _model_type(model: str | Path) -> str | None:
    """What a folder's config calls the model, where swift has a loader of that name: one architecture has several."""
    path = Path(model) / "config.json"
    kind = json.loads(path.read_text(encoding="utf-8")).get("model_type") if path.is_file() else None
    return kind if kind in MODEL_MAPPING else None


@contextmanager
def _registered(**settings: Any) -> Iterator[None]:
    """Leave swift's registry of trainers as it was: other trainings of this process are not ours."""
    before = TrainerFactory.TRAINER_MAPPING["grpo"]
    register(**settings)
    try:
        yield
    finally:
        TrainerFactory.TRAINER_MAPPING["grpo"] = before
