"""Token-exact chat: initial ids, ids appended after a sampled turn, and the sampled message read back.

What was sampled is never rendered again. The ids of a new observation are the difference that the chat template
itself makes: a two-message dummy dialogue is rendered with the observation after it, and what follows the dummy's
closing token is what belongs after the sampled turn. That needs no template that preserves prefixes, and costs the
same after one turn and after a hundred.

This module speaks ids and messages only: it samples nothing, and keeps no history.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

from aworld_gym.tokens.check import check, detect_format
from aworld_gym.tokens.errors import UnsupportedTemplateError
from aworld_gym.tokens.parsers import END_THINK, THINK, Parsed, find_format, parse_text
from aworld_gym.tokens.pieces import ToolFormat, Tools
from aworld_gym.tokens.rendering import Rendered, Renderer, Watched, clean, clean_message, unseen
from aworld_gym.tokens.strict_json import dumps
from aworld_gym.tokens.vocabulary import Control, Vocabulary
from aworld_gym.types import Message

logger = logging.getLogger(__name__)

IMAGE_TEXT = "[an image, which this model cannot see]"
"""What stands in the place of an image part for a model that reads text only."""

_CLOSERS = frozenset("<|im_end|> <|eot_id|> <|observation|> <|call|> <|return|> <turn|> <end_of_turn>".split())
"""Tokens that end a turn where the template uses them."""
_ENDS = frozenset("<|endoftext|> <|end_of_text|> <|eom_id|> </s>".split())
"""Tokens that end a text wherever they are in the vocabulary: generation configs list them beside the closing one."""

_TODAY = "26 Jul 2024"
"""What templates would else take from the clock: the default of those that have one."""
_CLOCK = "{% macro strftime_now(format) %}" + _TODAY + "{% endmacro %}{{ '' }}"
"""Before a template that asks the clock itself, which every template may. It writes nothing."""

_DUMMY = 1999
"""The witness of the dummy assistant turn."""
_SAID = "Okay."
"""What dummy messages say: part of no control string, so that it never has to be told apart from one."""


class ChatCodec:
    """Messages to ids and back for one tokenizer and one chat template.

    Thread-safe; changes neither the tokenizer nor what it is given. No text from a message, tool or schema becomes a
    control token. Text only: an image part of a message is not encoded, a short text stands in its place.

    Args:
        tokenizer: a fast Hugging Face tokenizer.
        stop_ids: ids that end a sampled turn; give the sampler the same. By default the tokens with which the template
            closes an assistant turn, and those of the vocabulary that end a text.
        template: the chat template's source, instead of the tokenizer's own.
        template_kwargs: arguments for the template, such as ``enable_thinking=False``.
        tool_format: how the model writes tool calls: a name in :data:`~aworld_gym.tokens.parsers.FORMATS` or a
            function. By default the form that reads back what the template writes.
        image_text: what stands for an image part in a message; None refuses images.

    Raises:
        UnsupportedTemplateError: no fast tokenizer, or no chat template. What else may be wrong with a template,
            :meth:`self_check` says.

    Example:
        >>> codec = ChatCodec(tokenizer)                                         # doctest: +SKIP
        >>> ids = codec.prompt(messages, tools)                                  # doctest: +SKIP
        >>> sampled = generate(ids, stop=codec.stop_ids)                         # doctest: +SKIP
        >>> observation, *_ = env.step(codec.parse(sampled, tools).message)      # doctest: +SKIP
        >>> ids += sampled + codec.extend(sampled, observation)                  # doctest: +SKIP
    """

    def __init__(
        self,
        tokenizer: Any,
        *,
        stop_ids: Iterable[int] | None = None,
        template: str | None = None,
        template_kwargs: Mapping[str, Any] | None = None,
        tool_format: str | ToolFormat | None = None,
        image_text: str | None = IMAGE_TEXT,
    ):
        self.tokenizer = tokenizer
        self.template = template if template is not None else _own_template(tokenizer)
        self.template_kwargs = dict(template_kwargs or {})
        if any(name in self.template for name in ("date_string", "strftime_now")):
            logger.info("the chat template asks for today's date: by default it is %s", _TODAY)
            if "date_string" in self.template:
                self.template_kwargs.setdefault("date_string", _TODAY)
            elif not self.template.startswith(_CLOCK):
                self.template = _CLOCK + self.template
        self.vocabulary = Vocabulary(tokenizer, self.template)
        self.image_text = image_text
        self._renderer = Renderer(tokenizer, self.vocabulary, self.template, self.template_kwargs)
        self._stop_ids = None if stop_ids is None else frozenset(int(i) for i in stop_ids)
        if tool_format is not None:
            find_format(tool_format)
        self._tool_format = tool_format

    @property
    def control_ids(self) -> frozenset[int]:
        """Ids that no text can become."""
        return self.vocabulary.control_ids

    @cached_property
    def stop_ids(self) -> frozenset[int]:
        """Ids that end a sampled turn."""
        return self._stop_ids if self._stop_ids is not None else self._find_stops()

    @cached_property
    def tool_format(self) -> str | ToolFormat | None:
        """How the model writes tool calls; None where the template's form is not known."""
        return self._tool_format if self._tool_format is not None else detect_format(self)

    @cached_property
    def opens_reasoning(self) -> bool:
        """Whether the generation prompt ends inside ``<think>``, so that a turn begins with reasoning."""
        rendered = self._render([_user(0)], generate=True)
        tail = rendered.text[rendered.seen.get(0, 0) :]
        return tail.rfind(THINK) > tail.rfind(END_THINK)

    def prompt(self, messages: Sequence[Message], tools: Tools | None = None) -> list[int]:
        """Ids of a conversation, with the generation prompt.

        Args:
            messages: system and user messages; earlier assistant and tool messages too, where a new segment begins
                with a rewritten history.
            tools: OpenAI tool schemas.

        Raises:
            UnsupportedTemplateError: the template refuses the messages, or would drop one of them or a tool.
            ValueError: something that is not a chat message.
        """
        watched = [self._watched(message, k) for k, message in enumerate(messages)]
        rendered = self._render(watched, _watch_tools(tools, len(watched)), generate=True)
        self._require_rendered(rendered, watched, 0)
        for k, tool in enumerate(tools or ()):
            if unseen(rendered, [len(watched) + k]):
                raise UnsupportedTemplateError(
                    f"the chat template does not show the tool {tool['function']['name']!r} to the model; use a "
                    "template with tool support (ChatCodec(template=...))"
                )
        return rendered.ids()

    def extend(self, sampled: Sequence[int], new_messages: Sequence[Message]) -> list[int]:
        """Ids to append after ``sampled``; none of them is sampled, so all have mask 0.

        The cost depends on ``new_messages`` alone: of ``sampled`` only the last id is looked at. Where that is not
        the token with which the template closes the turn (it was cut off, or another stop token came), the closing
        token is appended first.

        Args:
            sampled: the turn just sampled, its stop id included where there was one.
            new_messages: what the env answered; no assistant messages, which are sampled and never rendered.

        Raises:
            UnsupportedTemplateError: the template refuses the messages or would drop one.
            ValueError: an assistant message, or something that is not a chat message.
        """
        close, appended = self._appended(new_messages)
        return appended if len(sampled) and sampled[-1] == close else [close, *appended]

    def parse(self, ids: Sequence[int], tools: Tools | None = None) -> Parsed:
        """Read a sampled turn. Never raises for what was sampled.

        The turn ends at the first stop id, decided by id: text that only spells a stop token is text. Other tags
        (``<tool_call>``, ``<think>``) count however they were sampled, see :mod:`aworld_gym.tokens.parsers`.

        Args:
            ids: the sampled ids, with or without the stop id.
            tools: the tools the model was given: forms that write values bare need them to tell 7 from "7".

        Raises:
            UnsupportedTemplateError: the form of this template's tool calls is not known.
        """
        end = next((k for k, i in enumerate(ids) if i in self.stop_ids), None)
        text = self.vocabulary.decode(ids if end is None else ids[:end])
        return parse_text(
            text, self._required_format(), closed=end is not None, in_reasoning=self.opens_reasoning, tools=tools
        )

    def encode_assistant(self, message: Message) -> list[int]:
        """Ids of an assistant turn as the template renders it when it is the last one, closing stop id included.

        For supervised traces: what a model should sample after ``prompt`` or ``extend``. As in sampling, tokens never
        merge across the end of the generation prompt.

        Raises:
            UnsupportedTemplateError: the template refuses the message, would drop a part of it, or renders it
                otherwise than its own generation prompt begins it.
            ValueError: not an assistant message.
        """
        turn = self._watched(message, 0)
        if turn["role"] != "assistant":
            raise ValueError(f"expected an assistant message, got role {turn['role']!r}")
        needed = [0] if str(turn["content"]).strip() else []
        if str(turn.get("reasoning_content", "")).strip():
            turn["reasoning_content"] = Watched(turn["reasoning_content"], 1)
            needed.append(1)
        for k, call in enumerate(turn.get("tool_calls", ())):
            call["function"]["name"] = Watched(call["function"]["name"], k + 2)
            needed.append(k + 2)
        user = {"role": "user", "content": _SAID}
        begin = self._render([user], generate=True).text
        rendered = self._render([user, turn], generate=False)
        if lost := unseen(rendered, needed):
            parts = {0: "content", 1: "reasoning_content"}
            raise UnsupportedTemplateError(
                f"the chat template drops {parts.get(lost[0], 'the tool calls')} of an assistant message; leave it "
                "out, or use a template that renders it"
            )
        if not rendered.text.startswith(begin):
            raise UnsupportedTemplateError(
                "the chat template does not render this message as a continuation of its generation prompt, "
                f"{begin[-40:]!r}; where that opens <think>, give the message reasoning_content or pass "
                "template_kwargs={'enable_thinking': False}"
            )
        last = max((rendered.seen[k] for k in needed), default=len(begin))
        stop = self._stop_after(rendered, max(last, len(begin)))
        if stop is not None:
            return rendered.ids(len(begin), stop.end)
        close, _ = self._appended(_replies(turn))
        return [*rendered.ids(len(begin)), close]

    def self_check(self) -> None:
        """Prove on a few dialogues that this template can be used token-exactly; takes milliseconds.

        Raises:
            UnsupportedTemplateError: with the reason.
        """
        check(self)

    # ---- inside -------------------------------------------------------------------------------------------------

    def _render(self, messages: Sequence[Mapping[str, Any]], tools: Tools | None = None, *, generate: bool) -> Rendered:
        return self._renderer.render(messages, tools, generate=generate)

    def _watched(self, message: Message, k: int) -> dict[str, Any]:
        """A clean copy of a message, witness ``k`` in its content."""
        fresh = clean_message(message, self.image_text)
        fresh["content"] = Watched(fresh["content"], k)
        return fresh

    def _require_rendered(self, rendered: Rendered, messages: Sequence[Mapping[str, Any]], after: int) -> None:
        needed = [k for k, message in enumerate(messages) if message["content"].strip()]
        if lost := unseen(rendered, needed, after):
            message = messages[lost[0]]
            raise UnsupportedTemplateError(
                f"the chat template drops a message of role {message['role']!r}: {str(message['content'])[:60]!r}; "
                "give such messages another role, or use a template that renders them"
            )

    def _appended(self, new_messages: Sequence[Message]) -> tuple[int, list[int]]:
        """The id that closes a turn before ``new_messages``, and the ids that follow it."""
        watched = [self._watched(message, k) for k, message in enumerate(new_messages)]
        if not watched:
            raise ValueError("expected at least one new message, got none")
        if any(message["role"] == "assistant" for message in watched):
            raise ValueError("assistant turns are sampled, never rendered; extend takes what came after them")
        results = [message for message in watched if message["role"] == "tool"]
        for k, result in enumerate(results):
            result.setdefault("name", "tool")
            result.setdefault("tool_call_id", f"call{k:05d}")
        error: UnsupportedTemplateError | None = None
        # One call per result; one call at all (Llama); none, where a template renders no calls.
        for count in dict.fromkeys((len(results), min(1, len(results)), 0)):
            for as_text in (False, True) if count else (False,):
                dummy = [_user(_DUMMY - 1), _dummy_turn(results[:count], as_text), *watched]
                try:
                    rendered = self._render(dummy, generate=True)
                except UnsupportedTemplateError as problem:
                    error = error or problem
                    continue
                if unseen(rendered, [_DUMMY]):
                    continue
                stop = self._stop_after(rendered, rendered.seen[_DUMMY])
                if stop is None:
                    raise UnsupportedTemplateError(
                        "the chat template closes an assistant turn with none of the stop tokens "
                        f"{sorted(self.vocabulary.decode([i]) for i in self.stop_ids)}; pass stop_ids"
                    )
                self._require_rendered(rendered, watched, stop.end)
                return stop.id, rendered.ids(stop.end)
        raise error or UnsupportedTemplateError("the chat template renders no assistant message before these messages")

    def _stop_after(self, rendered: Rendered, at: int) -> Control | None:
        return next((c for c in rendered.controls if c.start >= at and c.id in self.stop_ids), None)

    def _find_stops(self) -> frozenset[int]:
        """Ids that end a text, the known closing tokens in the template, and what closes a plain answer in it."""
        control = self.vocabulary.control
        stops = {control[literal] for literal in _CLOSERS if literal in control and literal in self.template}
        stops |= {control[literal] for literal in _ENDS if literal in control}
        eos = self.tokenizer.eos_token_id
        stops |= {int(eos)} if eos is not None else set()
        try:
            answer = {"role": "assistant", "content": Watched(_SAID, 1)}
            rendered = self._render([_user(0), answer, _user(2)], generate=True)
        except UnsupportedTemplateError:  # no such dialogue: self_check says so, with the reason
            return frozenset(stops)
        between = [c for c in rendered.controls if rendered.seen.get(1, 0) <= c.start < rendered.seen.get(2, 0)]
        if between and not any(c.id in stops for c in between):
            stops.add(between[0].id)
        return frozenset(stops)

    def _required_format(self) -> str | ToolFormat:
        if self.tool_format is None:
            raise UnsupportedTemplateError(
                "the form of this template's tool calls is not known; pass tool_format to ChatCodec"
            )
        return self.tool_format


def _own_template(tokenizer: Any) -> str:
    template = getattr(tokenizer, "chat_template", None)
    if isinstance(template, dict):  # several templates by name: the one for tools, in every call
        template = template.get("tool_use", template.get("default"))
    if not isinstance(template, str) or not template:
        raise UnsupportedTemplateError(
            "the tokenizer has no chat template (a base model?); pass one to ChatCodec(template=...)"
        )
    return template


def _user(k: int) -> dict[str, Any]:
    return {"role": "user", "content": Watched(_SAID, k)}


def _dummy_turn(results: Sequence[Mapping[str, Any]], as_text: bool) -> dict[str, Any]:
    """An assistant turn with one call per result, or a plain answer; its witness is the last thing it says."""
    if not results:
        return {"role": "assistant", "content": Watched(_SAID, _DUMMY)}
    arguments = Watched(dumps({_SAID: _SAID}), _DUMMY) if as_text else {_SAID: Watched(_SAID, _DUMMY)}
    return {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {"id": result["tool_call_id"], "function": {"name": result["name"], "arguments": arguments}}
            for result in results
        ],
    }


def _watch_tools(tools: Tools | None, first: int) -> list[dict[str, Any]] | None:
    """Copies of tool schemas, a witness in each tool's name."""
    if not tools:
        return None
    watched = []
    for k, tool in enumerate(tools):
        fresh: dict[str, Any] = clean(tool)
        function = fresh.get("function")
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise ValueError(f'a tool is {{"type": "function", "function": {{"name": ...}}}}, got {tool!r:.200}')
        function["name"] = Watched(function["name"], first + k)
        watched.append(fresh)
    return watched


def _replies(turn: Mapping[str, Any]) -> list[Message]:
    """A message of the kind that answers an assistant turn."""
    calls = turn.get("tool_calls")
    if not calls:
        return [{"role": "user", "content": _SAID}]
    return [{"role": "tool", "tool_call_id": c["id"], "name": c["function"]["name"], "content": _SAID} for c in calls]
