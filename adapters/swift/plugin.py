"""What swift is told, for ``--external_plugins``: the reward function, the template, the trainer, rows of a data set.

The template encodes nothing: its messages *are* token ids. swift encodes messages by its own template of the model, at
every turn anew and once more for training. Here a message's content is the ids that
:class:`~aworld_gym.tokens.ChatCodec` made or the model sampled, and "encoding" is putting them one after the other. So
the same ids reach every engine of swift (transformers, vLLM colocated, vLLM server) and its loss, whatever the model's
family, and nothing is ever truncated.

A row of the data set names its episode in the column ``aworld``, as JSON of :func:`adapters.tasks.task_rows`: ``env``
(an EnvSpec, itself as JSON), ``seed``, and optionally ``split`` (``"train"`` or ``"eval"``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from swift.rewards import ORM, orms
from swift.template import Template, TemplateMeta, register_template
from swift.template.utils import get_token_backed_response_ids
from swift.trainers.trainer_factory import TrainerFactory

from adapters import common
from adapters.common import Credit, Env, RolloutOptions, TurnwiseOptions
from adapters.credit import check_credit
from aworld_gym.errors import ConfigError
from aworld_gym.tokens import ChatCodec

TEMPLATE, REWARD, COLUMN = "aworld", "aworld_env_reward", "aworld"
"""``--template``, ``--reward_funcs``, and the column of the data set."""
TRAINER = "adapters.swift.trainer.EnvGRPOTrainer"


@dataclass
class Settings:
    """What the adapter needs and swift's arguments have no place for."""

    credit: Credit = "episode"
    rollout: TurnwiseOptions = field(default_factory=TurnwiseOptions)
    logprob_threshold: float | None = None
    codec: ChatCodec | None = None
    """By default made for the model's tokenizer."""
    trainer: Any = None
    """The trainer that was made last."""


SETTINGS = Settings()
"""Of this process, as swift's own registries are."""


def register(
    *,
    credit: Credit = "episode",
    rollout: RolloutOptions | Mapping[str, Any] | None = None,
    logprob_threshold: float | None = None,
    codec: ChatCodec | None = None,
) -> None:
    """Make reward function, template and trainer known to swift: for a file of ``--external_plugins``.

    From then on ``rlhf_type="grpo"`` trains with :class:`adapters.swift.EnvGRPOTrainer`, which needs
    ``template="aworld"``, ``reward_funcs=["aworld_env_reward"]`` and a data set of :func:`write_tasks`. Arguments are
    those of :func:`adapters.swift.train`.

    Raises:
        ConfigError: unknown settings.
    """
    check_credit(credit)
    vars(SETTINGS).update(vars(Settings(credit, TurnwiseOptions.of(rollout), logprob_threshold, codec)))
    orms[REWARD] = EnvReward
    meta = TemplateMeta(TEMPLATE, prefix=[], prompt=["{{QUERY}}"], chat_sep=[], suffix=[], template_cls=IdTemplate)
    register_template(meta, exist_ok=True)
    TrainerFactory.TRAINER_MAPPING["grpo"] = TRAINER


def write_tasks(path: str | Path, env: Env, tasks: int | Sequence[int], *, seed: int = 0, split: str = "train") -> Path:
    """Write a data set for swift: one row per task. A row's message only tells groups apart; the env makes the prompt.

    Args:
        path: the file, JSONL.
        env: as for :func:`adapters.swift.train`.
        tasks: how many tasks, or their seeds.
        seed: where task seeds begin, where ``tasks`` is a number.
        split: ``"train"`` or ``"eval"``.
    """
    path, seeds = Path(path), common.task_seeds(tasks, seed * common.SEEDS_PER_RUN)
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [
        {"messages": [common.task_message(row["seed"], split)], COLUMN: json.dumps(row)}
        for row in common.task_rows(common.env_spec(env), seeds, split)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def row_of(data: Mapping[str, Any]) -> Any:
    """What a row of the data set, of these columns, says of its episode."""
    if COLUMN not in data:
        why = f"a row of the data set has no column {COLUMN!r} (columns: {sorted(data)})"
        raise ConfigError(f"{why}; write the data set with adapters.swift.write_tasks")
    return json.loads(data[COLUMN])


class IdTemplate(Template):
    """See the module.

    Raises:
        ConfigError: a setting that is meant for a template that writes messages.
    """

    def __init__(self, *args: Any, enable_thinking: bool | None = None, **kwargs: Any):
        for name in ("response_prefix", "agent_template"):
            if kwargs.get(name):
                raise ConfigError(
                    f"{name}={kwargs[name]!r} has no effect: prompts are those of the model's own chat template. Give "
                    "train() or register() a codec: ChatCodec(tokenizer, template=..., template_kwargs=...)"
                )
        super().__init__(*args, **kwargs)
        self.template_kwargs = {} if enable_thinking is None else {"enable_thinking": enable_thinking}

    def _encode_truncated(self, inputs: Any) -> dict[str, Any]:
        """``inputs.messages`` as ids; a label where an assistant's id was sampled."""
        ids: list[int] = []
        labels: list[int] = []
        for message in inputs.messages:
            content = message["content"]
            these = get_token_backed_response_ids(content)
            if these is None:  # a row of the data set that no episode has been made of yet
                these = self.tokenizer.encode(content or "", add_special_tokens=False)
            mask = [0] * len(these)
            if message["role"] == "assistant":
                mask = list(content["loss_scale"]) if isinstance(content, Mapping) else [1] * len(these)
            ids += these
            labels += [i if bit else -100 for i, bit in zip(these, mask, strict=True)]
        return {"input_ids": ids, "labels": labels if self.is_training else None, "length": len(ids)}


def request_messages(ids: Sequence[int]) -> list[dict[str, Any]]:
    """Messages of a request to sample after ``ids``."""
    return [{"role": "user", "content": list(ids)}]


class EnvReward(ORM):
    """What the env paid, summed over an episode; 0 for one that is no measurement (the trainer leaves it out)."""

    def __call__(self, completions: Sequence[Any], rollout_infos: Any = None, **kwargs: Any) -> list[float]:
        """One reward per completion.

        Raises:
            ConfigError: an episode without a reward, which swift would train on as if it had earned 0.
        """
        try:
            played = [info["played"].episode for info in rollout_infos]
        except (TypeError, KeyError) as error:
            raise ConfigError(
                f"the reward function {REWARD!r} found no reward: the episodes were not played by the adapter's "
                "trainer. Call adapters.swift.register(), and leave gym_env and use_gym_env out"
            ) from error
        return [episode.total_reward if episode.valid else 0.0 for episode in played]
