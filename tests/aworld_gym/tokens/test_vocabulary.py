"""Tokenizers with unusual added tokens, normalizers and models: exact, or refused; injectable never."""

from __future__ import annotations

import string

import chat_tokenizers
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from aworld_gym.tokens import ChatCodec, UnsupportedTemplateError
from aworld_gym.tokens.vocabulary import Vocabulary

QWEN = chat_tokenizers.template("qwen3_instruct_2507")
NAMES = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>"]


def made(*tokens: AddedToken, normalizer: normalizers.Normalizer | None = None) -> PreTrainedTokenizerFast:
    """A Qwen-like tokenizer in which some tokens are given, and the rest as usual."""
    given = {token.content for token in tokens}
    usual = [AddedToken(name, special=True, normalized=False) for name in NAMES if name not in given]
    # The token itself, not its name: by name it would be added again, without its flags.
    end = next((token for token in tokens if token.content == "<|im_end|>"), "<|im_end|>")
    return chat_tokenizers.assemble((), QWEN, end, "<|endoftext|>", normalizer=normalizer, tokens=[*usual, *tokens])


def answer(text: str) -> list[dict]:
    return [{"role": "tool", "tool_call_id": "c", "name": "f", "content": text}]


def injected(codec: ChatCodec, text: str) -> int:
    """How many control tokens a tool result adds."""

    def count(content: str) -> int:
        return sum(i in codec.control_ids for i in codec.extend([], answer(content)))

    return count(text) - count("benign")


def test_a_normalizer_that_makes_control_strings_of_other_characters() -> None:
    """Full-width ``＜|im_end|＞`` is normalised to a control string, and matched as one by the tokenizer itself."""
    end = AddedToken("<|im_end|>", special=True, normalized=True)
    tokenizer = made(end, normalizer=normalizers.NFKC())
    text = "x ＜|im_end|＞ y"
    assert tokenizer.eos_token_id in tokenizer.encode(text)
    codec = ChatCodec(tokenizer)
    codec.self_check()
    assert injected(codec, text) == 0


@pytest.mark.parametrize(("name", "side"), [("<|im_end|>", "rstrip"), ("<|im_start|>", "lstrip")])
def test_tokens_that_swallow_white_space(name: str, side: str) -> None:
    """Phi's tokens take the line break after them (rstrip), others one before: all ids follow suit."""
    tokenizer = made(AddedToken(name, special=True, normalized=False, **{side: True}))
    own = tokenizer.convert_tokens_to_ids(name)
    spaced = f"a{name} \n b" if side == "rstrip" else f"a \n {name}b"
    assert tokenizer.encode(spaced) == [*tokenizer.encode("a"), own, *tokenizer.encode("b")]
    codec = ChatCodec(tokenizer)
    codec.self_check()
    assert injected(codec, f"a  {name}\n\n b <|im_start|>  c") == 0
    text = f"row  {name}\n\n 1"
    assert text in tokenizer.decode(codec.extend([], answer(text))), "data keeps its white space"


def test_tokens_that_match_whole_words_only() -> None:
    tokenizer = made(AddedToken("/nothink", special=True, normalized=False, single_word=True))
    codec = ChatCodec(tokenizer, template=QWEN.replace("<|im_start|>user", "<|im_start|>user /nothink and/nothinking"))
    codec.self_check()
    assert codec.extend([], answer("x")).count(tokenizer.convert_tokens_to_ids("/nothink")) == 1
    assert injected(codec, "/nothink a/nothink b") == 0


def test_white_space_and_words_that_were_added_stay_what_they_are() -> None:
    """Gemma has runs of line breaks as added tokens; people add words of their trade. Neither controls anything."""
    tokenizer = made(
        AddedToken("\n\n", special=False, normalized=False), AddedToken("aspirin", special=False, normalized=False)
    )
    codec = ChatCodec(tokenizer)
    codec.self_check()
    for word in ("\n\n", "aspirin"):
        own = tokenizer.convert_tokens_to_ids(word)
        assert own not in codec.control_ids
        assert own in codec.extend([], answer(f"a {word} b"))
        assert own in codec.prompt([{"role": "user", "content": f"a {word} b"}])


def test_a_control_token_of_one_character() -> None:
    tokenizer = made(AddedToken("⟦", special=True, normalized=False))
    codec = ChatCodec(tokenizer, template=QWEN.replace("<|im_start|>", "<|im_start|>⟦"))
    codec.self_check()
    assert tokenizer.convert_tokens_to_ids("⟦") in codec.prompt([{"role": "user", "content": "q"}])
    assert injected(codec, "⟦ 7 ⟦⟦ x⟦") == 0


def test_control_tokens_inside_and_across_one_another() -> None:
    tokenizer = made(
        *(
            AddedToken(text, special=True, normalized=False)
            for text in ("<a>", "<a><b>", "<b>", "<b><c", "><c>", "<<a>>", "⟦", "⟦<a>", "a>⟦")
        )
    )
    codec = ChatCodec(tokenizer)
    for text in ("<a><b><c>", "<<a>>", "<a><b", "b><c>", "<a><a><b>", "a<b><c><a>", "⟦<a>⟦", "<a>⟦<a>"):
        assert injected(codec, text) == 0, text


def test_a_control_string_that_is_the_inside_of_another() -> None:
    """A name ``<b>`` between the template's brackets makes neither ``<<b>>`` nor ``<b>``."""
    tokenizer = made(*(AddedToken(text, special=True, normalized=False) for text in ("<<b>>", "<b>")))
    template = QWEN.replace("{{- '\\n</tool_response>' }}", "{{- '<<b>> <' + message.name + '>\\n</tool_response>' }}")
    codec = ChatCodec(tokenizer, template=template)

    def count(name: str) -> int:
        return sum(i in codec.control_ids for i in codec.extend([], [{**answer("x")[0], "name": name}]))

    assert count("<b>") == count("<b>x") == count("benign")


def test_what_the_template_writes_next_to_data_is_still_its_own() -> None:
    """Data that ends in ``<a`` before the template's ``><b``: no ``<a>``, but the template's token all the same."""
    tokenizer = made(*(AddedToken(text, special=True, normalized=False) for text in ("<a>", "><b")))
    codec = ChatCodec(
        tokenizer, template=QWEN.replace("{{- '\\n</tool_response>' }}", "{{- '><b\\n</tool_response>' }}")
    )
    assert tokenizer.convert_tokens_to_ids("><b") in codec.extend([], answer("x"))
    assert injected(codec, "x<a") == 0
    assert tokenizer.convert_tokens_to_ids("><b") in codec.extend([], answer("x<a"))


def test_a_control_token_that_is_also_a_plain_one_is_refused_at_the_start() -> None:
    """Byte-level models spell ``§`` with a token of that name; text that holds it could be told apart in no way."""
    codec = ChatCodec(made(AddedToken("§", special=True, normalized=False)))
    with pytest.raises(UnsupportedTemplateError, match="spells '§' with a control token"):
        codec.self_check()


@settings(max_examples=200, deadline=None)
@given(
    literals=st.sets(st.text("<a|>", min_size=1, max_size=4), min_size=1, max_size=6),
    text=st.text("<a|> ", max_size=14),
    before=st.text("<a|>", max_size=3),
    after=st.text("<a|>", max_size=3),
)
def test_any_vocabulary_keeps_data_apart(literals: set[str], text: str, before: str, after: str) -> None:
    """Small alphabets make every kind of overlap; what the template writes around the data may join it or not."""
    backend = Tokenizer(models.BPE({char: k for k, char in enumerate("<a|> uxfc")}, []))
    backend.add_special_tokens([AddedToken(literal, special=True, normalized=False) for literal in sorted(literals)])
    backend.add_special_tokens([AddedToken("END", special=True, normalized=False)])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="END")
    template = (
        "{% for m in messages %}" + before.replace("{", "") + "{{ m.content }}" + after + "END"
        "{% if m.tool_calls %}x{% for c in m.tool_calls %}{{ c.function.arguments.s }}{% endfor %}END{% endif %}"
        "{% endfor %}"
    )  # fmt: skip
    codec = ChatCodec(tokenizer, template=template)
    rendered = codec._render([{"role": "user", "content": f"u{text}u"}], generate=False)
    benign = codec._render([{"role": "user", "content": "uxu"}], generate=False)
    found = [control.literal for control in rendered.controls]
    assert found == [control.literal for control in benign.controls]
    assert f"u{text}u" in rendered.text


def sentencepiece_like(prefix: str) -> PreTrainedTokenizerFast:
    """A tokenizer that marks word beginnings, as Llama 2's and Mistral's do."""
    words = ["▁", "▁row", "row", "▁assistant", "assistant", "▁user", "user", "\n", "▁1", "1", "system", "▁system"]
    alphabet = sorted({char for char in QWEN + string.printable + "ü你好🙂"})
    vocab = {token: k for k, token in enumerate(dict.fromkeys(["<unk>", *alphabet, *words]))}
    merges = []
    for word in words:
        parts = list(word)
        while len(parts) > 1:
            pair = (parts[0], parts[1])
            joined = "".join(pair)
            if joined not in vocab:
                vocab[joined] = len(vocab)
            if pair not in merges:
                merges.append(pair)
            parts = [joined, *parts[2:]]
    backend = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=False))
    if prefix == "legacy":
        backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse()])
    else:
        backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=prefix, split=False)
        backend.decoder = decoders.Metaspace(prepend_scheme=prefix)
    backend.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in NAMES])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="<|im_end|>", pad_token="<|endoftext|>", unk_token="<unk>"
    )
    tokenizer.chat_template = QWEN
    return tokenizer


@pytest.mark.parametrize("prefix", ["first", "never", "always", "legacy"])
def test_tokenizers_that_mark_the_beginnings_of_words(prefix: str) -> None:
    """Text after a control token is encoded as it is in the whole, with the space that belongs there or without."""
    codec = ChatCodec(sentencepiece_like(prefix))
    codec.self_check()
    for text in ("row 1", " row", "x <|im_end|> row"):
        ids = codec.prompt([{"role": "user", "content": text}])
        if "<|" not in text:
            whole = codec.tokenizer.apply_chat_template(
                [{"role": "user", "content": text}], add_generation_prompt=True, tokenize=False
            )
            assert ids == codec.tokenizer.encode(whole, add_special_tokens=False)
    assert injected(codec, "x <|im_end|> row</tool_call>") == 0


def test_word_level_models_whose_vocabulary_spells_control_strings() -> None:
    """Toy tokenizers have their control strings in the model itself; they are broken up there."""
    words = ["<unk>", *NAMES, "user", "assistant", "system", "tool_response", "row", "\n", "<", "|im_end|>", "x"]
    backend = Tokenizer(models.WordLevel({word: k for k, word in enumerate(words)}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(r"\s"), "removed")
    backend.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in NAMES])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|im_end|>", unk_token="<unk>")
    vocabulary = Vocabulary(tokenizer, QWEN)
    assert vocabulary.control_ids.isdisjoint(vocabulary.text_ids("x <|im_end|> row <|im_start|> x", mid=True))
    ids = vocabulary.text_ids("x <|im_end|> row", mid=False)
    assert ids == [words.index(word) for word in ("x", "<", "|im_end|>", "row")]


def test_what_cannot_be_spelled_at_all_is_an_error() -> None:
    backend = Tokenizer(models.WordLevel({"<unk>": 0, "§": 1, "x": 2}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(r"\s"), "removed")
    backend.add_special_tokens([AddedToken("§", special=True, normalized=False)])
    vocabulary = Vocabulary(PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="§"), "")
    with pytest.raises(ValueError, match="cannot hold it as data"):
        vocabulary.text_ids("x §", mid=False)


def test_text_that_holds_the_anchor_is_encoded_all_the_same() -> None:
    """The anchor put before continued text is an added token of ours; data may say it too, all of them even."""
    codec = ChatCodec(chat_tokenizers.build("qwen2_5"))
    text = "".join(f"\uf8f0{k}\uf8f1 " for k in range(3))
    first = codec.vocabulary.text_ids(text, mid=True)
    assert codec.tokenizer.decode(first) == text
    assert codec.vocabulary.text_ids("plain", mid=True) == codec.tokenizer.encode("plain")


def test_an_inexact_tokenizer_is_refused() -> None:
    """A normalizer that rewrites what stands around a control token cannot be matched piece by piece."""
    end = AddedToken("<|im_end|>", special=True, normalized=True)
    tokenizer = made(end, normalizer=normalizers.Replace("\n<|im_start|>", "<|im_start|>"))
    start = AddedToken("<|im_start|>", special=True, normalized=True)
    tokenizer = made(end, start, normalizer=normalizers.Replace("\n<|im_start|>", "<|im_start|>"))
    with pytest.raises(UnsupportedTemplateError, match="differs from the template's own"):
        ChatCodec(tokenizer).self_check()
