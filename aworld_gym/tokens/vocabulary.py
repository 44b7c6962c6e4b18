"""Text to ids with data kept apart from control tokens, and ids to text.

A tokenizer matches its added tokens anywhere, so a web page that says ``<|im_end|>`` would end a turn. Here the
control tokens that a chat template writes are found first, and every text between them is encoded by a tokenizer
that shares the model, normalizer and pre-tokenizer but has no control tokens: data cannot become one, whatever it
says. Nothing of the caller's tokenizer is changed, and all methods may be called from any thread.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from aworld_gym.tokens.errors import UnsupportedTemplateError


@dataclass(frozen=True, slots=True)
class Control:
    """A control string found in a text."""

    start: int
    end: int
    """Half-open range of characters, the white space included that the token swallows (lstrip, rstrip)."""
    at: int
    """Where the literal itself begins."""
    literal: str
    id: int


class Vocabulary:
    """The added tokens of a tokenizer, sorted into control tokens and ordinary ones.

    Control tokens are all added tokens but white space and plain words: special ones, those the template names, and
    whatever has punctuation (``<tool_call>``, ``[MASK]``, ``<|fim_prefix|>``). Plain words that a user added to the
    vocabulary stay words.

    Args:
        tokenizer: a fast (Rust-backed) Hugging Face tokenizer.
        template: the chat template's source.

    Raises:
        UnsupportedTemplateError: no fast tokenizer.
    """

    def __init__(self, tokenizer: Any, template: str):
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if backend is None or not hasattr(backend, "model"):
            raise UnsupportedTemplateError(
                f"{type(tokenizer).__name__} is not a fast tokenizer (it has no backend_tokenizer); load it with "
                "AutoTokenizer.from_pretrained(..., use_fast=True), and of a processor pass processor.tokenizer"
            )
        self._tokenizer, self._backend = tokenizer, backend
        added = {int(i): token for i, token in tokenizer.added_tokens_decoder.items()}
        self._flags = {t.content: t for i, t in added.items() if _is_control(t, template)}
        self.control: dict[str, int] = {t.content: i for i, t in added.items() if t.content in self._flags}
        """Control string to id."""
        self._pattern = re.compile(_trie(self.control))
        self.lookalikes = re.compile(_trie(self.control), re.IGNORECASE)
        """Matches what may become a control string, by a template's change of case too."""
        self._ordinary = [(t, i) for i, t in added.items() if t.content not in self._flags]
        self._plain: list[_Plain] = []
        stops = {tokenizer.eos_token_id, tokenizer.bos_token_id}
        # The model's own id for what it does not know is no danger, unless a turn ends with it.
        self.control_ids = frozenset(self.control.values()) - (_unknown(backend) - stops)
        """Ids that no text may become."""

    def find(self, text: str, start: int) -> Control | None:
        """The first control string in ``text`` at or after ``start``, the longest there, as a tokenizer matches."""
        at = start
        while match := self._pattern.search(text, at):
            begin, end, literal = match.start(), match.end(), match.group()
            flags = self._flags[literal]
            if flags.single_word and (_is_word(text[begin - 1 : begin]) or _is_word(text[end : end + 1])):
                at = begin + 1
                continue
            if flags.lstrip:
                while begin > start and text[begin - 1].isspace():
                    begin -= 1
            if flags.rstrip:
                while end < len(text) and text[end].isspace():
                    end += 1
            return Control(begin, end, match.start(), literal, self.control[literal])
        return None

    def text_ids(self, text: str, *, mid: bool) -> list[int]:
        """Ids of plain text: never a control id.

        Args:
            text: any text without lone surrogates.
            mid: something stands before it. (Some tokenizers put a space before the very first word.)

        Raises:
            ValueError: a text that the tokenizer's model itself can only spell with a control token.
        """
        if not text:
            return []
        plain = self._plain_for(text)
        ids = plain.ids(text, mid)
        return ids if self.control_ids.isdisjoint(ids) else self._broken_up(text, plain, mid)

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids, control tokens spelled out."""
        text: str = self._tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return text

    def _plain_for(self, text: str) -> _Plain:
        """A plain tokenizer whose anchor ``text`` does not hold: the first one, but for texts that know it."""
        for plain in self._plain:
            if plain.anchor not in text:
                return plain
        k = len(self._plain)
        while (anchor := f"\uf8f0{k}\uf8f1") in text or anchor in self.control:
            k += 1
        plain = _Plain(self._backend, self._ordinary, anchor)
        self._plain = [*self._plain, plain]  # two threads may each make one; either will do
        return plain

    def _broken_up(self, text: str, plain: _Plain, mid: bool) -> list[int]:
        """For models whose own vocabulary spells a control string (word-level ones): cut after its first character."""
        spans = plain.spans(text, mid)
        cuts = [start + 1 for i, start, end in spans if i in self.control_ids and end - start > 1]
        if not cuts:
            raise ValueError(f"the tokenizer spells {text[:80]!r} with a control token, so it cannot hold it as data")
        bounds = [0, *cuts, len(text)]
        ids: list[int] = []
        for start, end in zip(bounds, bounds[1:], strict=False):
            ids += self.text_ids(text[start:end], mid=mid or start > 0)
        return ids


class _Plain:
    """The tokenizer's model without its control tokens.

    ``anchor`` is an added token of its own, put before text that continues something, and taken off again: the text
    then stands where it does in the whole (not at the start, but after an added token).
    """

    def __init__(self, backend: Any, ordinary: Iterable[tuple[Any, int]], anchor: str):
        from tokenizers import AddedToken, Tokenizer

        self.anchor = anchor
        self._tokenizer = Tokenizer(backend.model)
        self._tokenizer.normalizer = backend.normalizer
        self._tokenizer.pre_tokenizer = backend.pre_tokenizer
        self._real: dict[int, int] = {}
        for token, real in ordinary:
            self._tokenizer.add_tokens([token])
            own = self._tokenizer.token_to_id(token.content)
            if own is not None and own != real:
                self._real[own] = real
        self._tokenizer.add_special_tokens([AddedToken(anchor, special=True, normalized=False)])

    def ids(self, text: str, mid: bool) -> list[int]:
        if not mid:
            return self._own(self._tokenizer.encode(text, add_special_tokens=False).ids)
        return self._own(self._tokenizer.encode(self.anchor + text, add_special_tokens=False).ids[1:])

    def spans(self, text: str, mid: bool) -> list[tuple[int, int, int]]:
        """Each token's id and half-open range of characters of ``text``."""
        prefix = self.anchor if mid else ""
        found = self._tokenizer.encode(prefix + text, add_special_tokens=False)
        rows = zip(self._own(found.ids), found.offsets, strict=True)
        return [(i, start - len(prefix), end - len(prefix)) for i, (start, end) in rows][1 if mid else 0 :]

    def _own(self, ids: list[int]) -> list[int]:
        return [self._real.get(i, i) for i in ids] if self._real else ids


def _is_control(token: Any, template: str) -> bool:
    text = token.content
    if not text or text.isspace():
        return False
    return bool(token.special or (len(text) > 1 and (text in template or not re.fullmatch(r"\w+", text))))


def _unknown(backend: Any) -> set[int]:
    """The id, if any, that the model gives to what is not in its vocabulary."""
    name, own = getattr(backend.model, "unk_token", None), getattr(backend.model, "unk_id", None)
    found = backend.token_to_id(name) if name else own
    return set() if found is None else {int(found)}


def _is_word(char: str) -> bool:
    return bool(re.match(r"\w", char))


def _trie(words: Iterable[str]) -> str:
    """A regular expression for the longest of ``words``, without trying them one by one."""
    root: dict[str, Any] = {}
    for word in words:
        node = root
        for char in word:
            node = node.setdefault(char, {})
        node[""] = {}

    def source(node: dict[str, Any]) -> str:
        branches = [re.escape(char) + source(child) for char, child in node.items() if char]
        if not branches:
            return ""
        joined = branches[0] if len(branches) == 1 and "" not in node else f"(?:{'|'.join(branches)})"
        return joined + "?" if "" in node else joined

    return source(root) or r"(?!)"
