"""A swift template that encodes nothing: its messages *are* token ids.

swift encodes messages by its own template of the model, at every turn anew and once more for training. Here a
message's content is the ids that :class:`~aworld_gym.tokens.ChatCodec` made or the model sampled, and "encoding" is
putting them one after the other. So the same ids reach every engine of swift (transformers, vLLM colocated, vLLM
server) and its loss, whatever the model's family, and nothing is ever truncated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from swift.template import Template, TemplateMeta, register_template
from swift.template.utils import get_token_backed_response_ids

from aworld_gym.errors import ConfigError

TEMPLATE = "aworld"
"""Its name: ``--template aworld``."""


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


def register() -> None:
    """Make the template known to swift."""
    meta = TemplateMeta(TEMPLATE, prefix=[], prompt=["{{QUERY}}"], chat_sep=[], suffix=[], template_cls=IdTemplate)
    register_template(meta, exist_ok=True)
