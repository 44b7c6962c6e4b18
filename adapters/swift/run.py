"""``train``: from an env to swift's trainer, its checkpoint, its metrics and its episodes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from swift.arguments import RLHFArguments
from swift.model import MODEL_MAPPING
from swift.pipelines import rlhf_main
from swift.trainers.trainer_factory import TrainerFactory
from transformers.trainer_utils import get_last_checkpoint

from adapters import common
from adapters.common import Credit, Env, Job, RolloutOptions, TrainResult
from adapters.hf import for_evaluation, on_this_machine, run_seeds
from adapters.settings import checked
from adapters.swift import plugin
from adapters.swift.plugin import REWARD, SETTINGS, TEMPLATE
from aworld_gym.errors import ConfigError
from aworld_gym.tokens import ChatCodec

OWN = {"rlhf_type": "grpo", "template": TEMPLATE}
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
    is out of the loss and out of its group's baseline.

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
    folder = Path(output_dir).absolute()
    job = Job.of(env, eval_env, model, folder, credit, tasks, eval_tasks)
    given = {**common.read_config(config), **overrides}
    options = common.take_rollout(given, rollout)
    resumed = given.get("resume_from_checkpoint")
    if resumed is True:
        given["resume_from_checkpoint"] = get_last_checkpoint(str(folder)) if folder.is_dir() else None
        if given["resume_from_checkpoint"] is None:
            raise ConfigError(f"there is no checkpoint in {folder} to resume from")
    elif not resumed:
        common.refuse_mixing(folder)
    files = {split: folder / f"{'' if split == 'train' else split + '_'}tasks.jsonl" for split in job.specs}
    settings = arguments(given, model, folder, list(files.values()))
    trainers = TrainerFactory.TRAINER_MAPPING
    with ExitStack() as at_end:
        at_end.callback(trainers.__setitem__, "grpo", trainers["grpo"])  # other trainings of this process are not ours
        plugin.register(credit=credit, rollout=options, logprob_threshold=logprob_threshold, codec=codec)
        with job.loading():
            args = RLHFArguments(**settings)
        seeds = run_seeds(job, args.training_args)
        for split, file in files.items():
            plugin.write_tasks(file, job.specs[split], seeds[split], split=split)
        job.say(len(seeds["train"]), args.num_generations, args.max_completion_length)
        try:
            rlhf_main(args)
        finally:
            trainer, SETTINGS.trainer = SETTINGS.trainer, None
            if trainer is not None:
                trainer.rollouts.journals.close()
        trainer.save_model(str(folder / "final"))
        if trainer.is_world_process_zero():  # swift leaves it out where an adapter is trained
            trainer.template.tokenizer.save_pretrained(folder / "final")
    return job.result(trainer.state.log_history, trainer.rollouts.counts["train"])


def arguments(given: Mapping[str, Any], model: str | Path, output_dir: Path, files: Sequence[Path]) -> dict[str, Any]:
    """RLHFArguments: those given, and what the env needs, which is logged.

    Raises:
        ConfigError: unknown settings, or some that the adapter has to set.
    """
    given = checked(given, RLHFArguments, train)
    for name, value in given.items():
        if name in ("dataset", "val_dataset", "output_dir") or OWN.get(name, value) != value:
            raise ConfigError(f"{name!r} is set by the adapter: leave it out")
    ours: dict[str, Any] = {**OWN, "model": str(model), "output_dir": str(output_dir), "add_version": False}
    ours |= {"dataset": [str(files[0])], "reward_funcs": [REWARD, *given.get("reward_funcs", ())]}
    if len(files) > 1:
        ours["val_dataset"] = [str(files[1])]
        ours |= for_evaluation(given)
    ours |= on_this_machine(given, torch_dtype="float32")
    if Path(model).is_dir() and "check_model" not in given:
        ours["check_model"] = False  # else swift asks a hub whether it has a newer version of the folder
    if "model_type" not in given and (kind := _model_type(model)):
        ours["model_type"] = kind
    common.say(ours)
    return {**given, **ours}


def _model_type(model: str | Path) -> str | None:
    """What a folder's config calls the model, where swift has a loader of that name: one architecture has several."""
    path = Path(model) / "config.json"
    kind = json.loads(path.read_text(encoding="utf-8")).get("model_type") if path.is_file() else None
    return kind if kind in MODEL_MAPPING else None
