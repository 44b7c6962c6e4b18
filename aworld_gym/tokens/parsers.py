"""A sampled message, read: reasoning, content, tool calls, and what was wrong with them.

Reading never raises for what the text says. A tag counts whether the model sampled it as one control token or spelled
it with ordinary ones: the text is the model's own, and servers of the same models read it in the same way.

=============  =====================================================================================
``hermes``     ``<tool_call>{"name": ..., "arguments": {...}}</tool_call>``: Hermes, Qwen2.5, Qwen3
``llama``      the whole message is ``{"name": ..., "parameters": {...}}``, several joined by ``;``: Llama 3.x
``qwen_xml``   ``<tool_call><function=NAME><parameter=KEY>VALUE</parameter></function></tool_call>``:
               Qwen3-Coder, Qwen3.5, Nemotron 3
``glm``        ``<tool_call>NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value></tool_call>``: GLM-4.5, 4.6
=============  =====================================================================================
"""

from __future__ import annotations

from dataclasses import dataclass

from aworld_gym.tokens.json_forms import hermes, llama
from aworld_gym.tokens.pieces import ToolFormat, Tools
from aworld_gym.tokens.strict_json import dumps
from aworld_gym.tokens.xml_forms import glm, qwen_xml
from aworld_gym.types import Message

THINK, END_THINK = "<think>", "</think>"

FORMATS: dict[str, ToolFormat] = {"hermes": hermes, "qwen_xml": qwen_xml, "glm": glm, "llama": llama}
"""The forms by name."""


@dataclass(frozen=True)
class Parsed:
    """A sampled message, read."""

    message: Message
    """Ready to be an env's action: ``role``, ``content`` (text, maybe empty), and where there are any ``tool_calls``
    (ids ``call_0``, ``call_1``, ...; arguments as JSON text), ``reasoning_content`` and ``parse_errors``."""
    closed: bool = True
    """Whether a stop token ended it; False where it was cut off."""

    @property
    def errors(self) -> list[dict[str, str]]:
        """``{"type", "raw", "detail"}`` each; ``type`` is one of :data:`ERROR_KINDS`. Also in the message."""
        errors: list[dict[str, str]] = self.message.get("parse_errors", [])
        return errors


def parse_text(
    text: str,
    tool_format: str | ToolFormat = "hermes",
    *,
    closed: bool = True,
    in_reasoning: bool = False,
    tools: Tools | None = None,
) -> Parsed:
    """Read one sampled message. Never raises for what ``text`` says.

    Args:
        text: the message, without the stop token.
        tool_format: a name in :data:`FORMATS`, or a function like those.
        closed: whether a stop token followed; passed on.
        in_reasoning: the generation prompt ends inside ``<think>``, so the text begins as reasoning.
        tools: the tools the model was given; only the XML forms need them, to type bare values.

    Raises:
        ValueError: an unknown ``tool_format``.
    """
    reader = find_format(tool_format)
    message: Message = {"role": "assistant", "content": ""}
    errors: list[dict[str, str]] = []
    body, opened = text, in_reasoning
    if body.lstrip().startswith(THINK):
        body, opened = body.lstrip()[len(THINK) :], True
    if opened:
        reasoning, ended, body = body.partition(END_THINK)
        message["reasoning_content"] = reasoning.strip("\n")
        if not ended:
            detail = f"the message ended inside its reasoning: {END_THINK} was expected before any answer or tool call"
            errors.append({"type": "unclosed_reasoning", "raw": reasoning.strip(), "detail": detail})
    pieces = reader(body, tools or ())
    message["content"] = "\n".join(part for part in (p.strip() for p in pieces.content) if part)
    if pieces.calls:
        message["tool_calls"] = [
            {"id": f"call_{k}", "type": "function", "function": {"name": name, "arguments": dumps(arguments)}}
            for k, (name, arguments) in enumerate(pieces.calls)
        ]
    errors += pieces.errors
    if errors:
        message["parse_errors"] = errors
    return Parsed(message, closed)


def find_format(tool_format: str | ToolFormat) -> ToolFormat:
    """The function for a name. Raises ValueError for a name that is not in :data:`FORMATS`."""
    if callable(tool_format):
        return tool_format
    try:
        return FORMATS[tool_format]
    except KeyError:
        raise ValueError(f"tool_format must be one of {sorted(FORMATS)} or a function, got {tool_format!r}") from None
