"""Messages to text through the chat template, remembering which characters are data.

Before rendering, marks are put into every text that comes from a message, a tool or a schema; after rendering they
are taken out again and their places kept. The marks are lone surrogates, which no real text can hold (inputs are
cleaned of them first), so they cannot be forged, and no template looks at them.

* A *cut* stands inside every control string in the data, and where data begins or ends with a part of one (a schema
  key ``tool_call`` that a template sets in angle brackets, a name ending in ``<|im_end|`` before a ``>``). A control
  string of the rendered text that lies over a cut is data.
* A *witness* stands in every text that must not get lost, and says afterwards whether and where it was rendered.
"""

from __future__ import annotations

import bisect
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Self

from aworld_gym.tokens.errors import UnsupportedTemplateError
from aworld_gym.tokens.vocabulary import Control, Vocabulary

_CUT = "\udfff"
_SINGLE = "\udffe"
"""Before a control token of one character, which has no inside."""
_WITNESS, WITNESSES = 0xD800, 2000
"""Witness ``k`` is the code point ``_WITNESS + k``; all stay within the surrogates, below the marks above."""
_MARK = re.compile("[\ud800-\udfff]")

_KEYWORDS = frozenset(
    "type function name description parameters properties required items enum default title format anyOf oneOf allOf "
    "const $ref $defs additionalProperties minimum maximum nullable strict".split()
)
"""Keys that templates look up by name: never marked."""


class Rendered:
    """A rendered text without its marks."""

    def __init__(self, marked: str, vocabulary: Vocabulary):
        self._vocabulary = vocabulary
        parts: list[str] = []
        self._cuts: list[int] = []
        self._singles: set[int] = set()
        self.seen: dict[int, int] = {}
        """Witness to its last place: the index of the character after it."""
        length = last = 0
        for match in _MARK.finditer(marked):
            parts.append(marked[last : match.start()])
            length += match.start() - last
            last = match.end()
            mark = match.group()
            if mark == _SINGLE:
                self._singles.add(length)
                continue
            self._cuts.append(length)
            if mark != _CUT:
                self.seen[ord(mark) - _WITNESS] = length
        parts.append(marked[last:])
        self.text = "".join(parts)

    @cached_property
    def controls(self) -> list[Control]:
        """The control strings that the template wrote, left to right."""
        found: list[Control] = []
        at = 0
        while control := self._vocabulary.find(self.text, at):
            if self._is_data(control):
                at = control.at + 1
            else:
                found.append(control)
                at = control.end
        return found

    def _is_data(self, control: Control) -> bool:
        if len(control.literal) == 1:
            return control.at in self._singles
        k = bisect.bisect_right(self._cuts, control.at)
        return k < len(self._cuts) and self._cuts[k] < control.at + len(control.literal)

    def ids(self, start: int = 0, end: int | None = None) -> list[int]:
        """Token ids of the text from ``start`` to ``end``, neither of them inside a control string."""
        ids: list[int] = []
        at, end = start, len(self.text) if end is None else end
        for control in self.controls:
            if control.start < at or control.end > end:
                continue
            ids += self._vocabulary.text_ids(self.text[at : control.start], mid=at > 0)
            ids.append(control.id)
            at = control.end
        return ids + self._vocabulary.text_ids(self.text[at:end], mid=at > 0)


class Renderer:
    """One chat template of one tokenizer, with fixed template arguments."""

    def __init__(self, tokenizer: Any, vocabulary: Vocabulary, template: str, template_kwargs: Mapping[str, Any]):
        self._tokenizer, self.vocabulary = tokenizer, vocabulary
        self._kwargs = {**template_kwargs, "chat_template": template}
        literals = vocabulary.control
        self._longest = max(map(len, literals), default=0)
        self._heads = {text[:k] for text in literals for k in range(1, len(text))}
        self._tails = {text[k:] for text in literals for k in range(1, len(text))}
        self._singles = frozenset(text.casefold() for text in literals if len(text) == 1)
        self._first = frozenset(text[0] for text in literals)
        self._last = frozenset(text[-1] for text in literals)

    def render(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None, *, generate: bool
    ) -> Rendered:
        """The template's text for clean messages (see :func:`clean_message`), with the data marked.

        Args:
            messages: those texts :class:`Watched` whose fate matters.
            tools: OpenAI tool schemas, or None.
            generate: with the generation prompt.

        Raises:
            UnsupportedTemplateError: the template does not take these messages.
        """
        short: set[str] = set()
        rendered = self._render(messages, tools, generate, frozenset(), short)
        written = {control.literal for control in rendered.controls}
        # A short text that is the inside of a control string may have become one between a template's brackets.
        # Marking it shows whether it did; unless the template looks at it, in which case its text changes.
        suspects = frozenset(text for text in short if any(text in literal[1:-1] for literal in written))
        if not suspects:
            return rendered
        trial = self._render(messages, tools, generate, suspects, set())
        if trial.text == rendered.text:
            return trial
        known: frozenset[str] = frozenset()
        for suspect in sorted(suspects):
            trial = self._render(messages, tools, generate, known | {suspect}, set())
            if trial.text == rendered.text:
                known, rendered = known | {suspect}, trial
        return rendered

    def _render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None,
        generate: bool,
        known: frozenset[str],
        short: set[str],
    ) -> Rendered:
        guard = _Guard(self, known, short)
        marked_messages = [guard.message(message) for message in messages]
        marked_tools = [guard.value(tool) for tool in tools] if tools else None
        try:
            text = self._tokenizer.apply_chat_template(
                marked_messages, tools=marked_tools, add_generation_prompt=generate, tokenize=False, **self._kwargs
            )
        except Exception as error:  # a template is a program: it may raise anything
            roles = ", ".join(message["role"] for message in messages)
            raise UnsupportedTemplateError(
                f"the chat template does not take these messages ({roles}): {type(error).__name__}: {error}"
            ) from error
        return Rendered(text, self.vocabulary)

    def guard(self, text: str) -> str:
        """``text`` with a cut in every control string, and at its ends where they are parts of one."""
        text = self._cut_inside(str(text))
        body = text.strip()
        if not body:
            return text
        tail = body[-self._longest :]
        if not self._first.isdisjoint(tail) and any(tail[k:] in self._heads for k in range(len(tail))):
            end = len(text.rstrip())
            text = text[:end] + _CUT + text[end:]
        head = body[: self._longest]
        if not self._last.isdisjoint(head) and any(head[:k] in self._tails for k in range(1, len(head) + 1)):
            start = len(text) - len(text.lstrip())
            text = text[:start] + _CUT + text[start:]
        return text

    def _cut_inside(self, text: str) -> str:
        """A cut after the first character of every control string, those included that overlap another."""
        parts: list[str] = []
        last = at = 0
        while match := self.vocabulary.lookalikes.search(text, at):
            at = match.start()
            if text[at].casefold() in self._singles:
                parts += (text[last:at], _SINGLE)
                last = at
            at += 1
            if len(match.group()) > 1:
                parts += (text[last:at], _CUT)
                last = at
        return "".join(parts) + text[last:]

    @property
    def longest(self) -> int:
        """Length of the longest control string, in characters."""
        return self._longest


class _Guard:
    """Marks one call's inputs, and collects its short texts."""

    def __init__(self, renderer: Renderer, known: frozenset[str], short: set[str]):
        self._renderer, self._known, self._short = renderer, known, short

    def message(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Keys of a message and of its calls are ours; its values are data. The role is from a closed set."""
        return {key: value if key == "role" else self._field(key, value) for key, value in message.items()}

    def _field(self, key: str, value: Any) -> Any:
        if key != "tool_calls":
            return self.value(value)
        return [
            {
                "id": self.value(call["id"]),
                "type": "function",
                "function": {name: self.value(part) for name, part in call["function"].items()},
            }
            for call in value
        ]

    def value(self, value: Any) -> Any:
        """Any JSON value, its texts and keys marked."""
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, Mapping):
            return {key if key in _KEYWORDS else self._text(str(key)): self.value(v) for key, v in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(item) for item in value]
        return value

    def _text(self, text: str) -> str:
        bare = text.strip() if len(text) <= self._renderer.longest + 4 else ""
        marked = self._renderer.guard(text)
        if bare in self._known:
            marked = _CUT + marked + _CUT
        elif bare and len(bare) < self._renderer.longest:
            self._short.add(bare)
        return _put_witness(marked, text.witness) if isinstance(text, Watched) else marked


class Watched(str):
    """A text that must not get lost, with the number of its witness. A blank text has none to show."""

    witness: int

    def __new__(cls, text: str, witness: int) -> Self:
        """``text`` under witness ``witness``, taken modulo :data:`WITNESSES`."""
        self = super().__new__(cls, text)
        self.witness = witness % WITNESSES
        return self


def _put_witness(marked: str, k: int) -> str:
    for at, char in enumerate(marked):
        if not (char.isspace() or char in (_CUT, _SINGLE)):
            return f"{marked[: at + 1]}{chr(_WITNESS + k)}{marked[at + 1 :]}"
    return marked


def clean(value: Any) -> Any:
    """A JSON value with every text made valid Unicode: surrogate pairs joined, lone halves replaced."""
    if isinstance(value, str):
        if _MARK.search(value):
            return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        return value
    if isinstance(value, Mapping):
        return {clean(str(key)): clean(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [clean(item) for item in value]
    return value


ROLES = ("system", "developer", "user", "assistant", "tool")


def clean_message(message: Mapping[str, Any], image: str | None) -> dict[str, Any]:
    """A fresh copy of a message with the fields that templates read, as they expect them.

    Content becomes text: parts are joined by newlines, an image part becomes ``image``. Arguments become an object.

    Raises:
        ValueError: not a chat message, or an image where ``image`` is None.
    """
    role = message.get("role") if isinstance(message, Mapping) else None
    if role not in ROLES:
        raise ValueError(f"a message is a mapping whose role is one of {ROLES}, got {message!r:.200}")
    fresh: dict[str, Any] = {"role": role, "content": clean(_content(message.get("content"), image))}
    for key in ("name", "tool_call_id", "reasoning_content"):
        if message.get(key) is not None:
            fresh[key] = clean(str(message[key]))
    if message.get("tool_calls"):
        fresh["tool_calls"] = [_call(call, k) for k, call in enumerate(message["tool_calls"])]
    return fresh


def _content(content: Any, image: str | None) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list | tuple):
        raise ValueError(f"content must be text, a list of parts or None, got {type(content).__name__}")
    texts: list[str] = []
    for part in content:
        kind = part.get("type", "text") if isinstance(part, Mapping) else None
        if kind == "text" and isinstance(part.get("text"), str):
            texts.append(part["text"])
        elif kind in ("image_url", "image") and image is not None:
            texts.append(image)
        else:
            raise ValueError(
                f"a content part of type {kind!r} cannot be given to a model that reads text only; leave it out, "
                "or pass image_text to ChatCodec to name what stands in its place"
            )
    return "\n".join(texts)


def _call(call: Any, k: int) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise ValueError(f'a tool call is {{"function": {{"name", "arguments"}}}}, got {call!r:.200}')
    arguments = function.get("arguments") or {}
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            arguments = str(arguments)  # as it stands: some templates print it, the others say so
    return {
        "id": clean(str(call.get("id") or f"call_{k}")),
        "type": "function",
        "function": {"name": clean(function["name"]), "arguments": clean(arguments)},
    }


def unseen(rendered: Rendered, needed: Iterable[int], after: int = 0) -> list[int]:
    """Those of ``needed`` witnesses that do not stand in the text from index ``after`` on."""
    return [k for k in needed if rendered.seen.get(k % WITNESSES, -1) < after]
