"""What the token codec costs, as ratios within one run (absolute times are this machine's at this moment).

    python -m benchmarks.tokens [--family qwen3_training] [--repeat 30]

Prints a table: ``extend`` after histories of three lengths, beside what rendering the whole dialogue again costs and
what the ``renderers`` package and TRL's suffix cost, if they can be used with the family; microseconds a token for
long results; a hostile result full of control strings against a plain one of the same size; the self-check.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "lib"))

from aworld_gym.tokens import ChatCodec  # noqa: E402
from benchmarks import common  # noqa: E402

with common.needs("gaia,trl,dev"):
    import chat_tokenizers
    from chat_dialogues import TOOLS

HISTORIES = (1_000, 8_000, 32_000)


def median_us(work: Callable[[], Any], repeat: int) -> float:
    """Median CPU time of a call, in microseconds, after one to warm up."""
    work()
    times = []
    for _ in range(repeat):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return statistics.median(times) * 1e6


def answer(text: str) -> list[dict[str, Any]]:
    """One tool message."""
    return [{"role": "tool", "name": "lookup", "tool_call_id": "call_0", "content": text}]


def dialogue(codec: ChatCodec, tokens: int) -> list[dict[str, Any]]:
    """A user's question, then calls and results, of about ``tokens`` tokens in all."""
    text = "row value 17, name abc; " * 12
    call = {"id": "call_0", "type": "function", "function": {"name": "lookup", "arguments": {"key": "a"}}}
    turn = [{"role": "assistant", "content": "", "tool_calls": [call]}, *answer(text)]
    rounds = tokens // (len(codec.extend([], answer(text))) + 25)
    return [{"role": "user", "content": "Which row?"}] + turn * rounds


def suffix_by_trl(codec: ChatCodec, answers: list[dict[str, Any]]) -> list[int]:
    """What TRL's trainer does to find the ids of tool results."""
    call = {"type": "function", "function": {"name": answers[0]["name"], "arguments": {}}}
    dummy = [{"role": "user", "content": "dummy"}, {"role": "assistant", "content": "", "tool_calls": [call]}]
    apply = codec.tokenizer.apply_chat_template
    before = apply(dummy, tokenize=True, return_dict=False)
    whole = apply(dummy + answers, add_generation_prompt=True, tokenize=True, return_dict=False)
    return whole[len(before) :]


def bridge(codec: ChatCodec, name: str | None) -> Any:
    """The ``renderers`` package's renderer for the family, or None."""
    if name is None:
        return None
    try:
        from renderers import config_from_name, create_renderer
    except ImportError:
        return None
    return create_renderer(codec.tokenizer, config_from_name(name))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--family", default="qwen3_training", choices=list(chat_tokenizers.FAMILIES))
    parser.add_argument("--repeat", type=int, default=30)
    options = parser.parse_args()
    codec = ChatCodec(chat_tokenizers.build(options.family))
    codec.self_check()
    console = Console()

    short = answer("row value 17, name abc; " * 8)
    appended = codec.extend([], short)
    close, count = appended[0], len(appended) - 1
    oracle = bridge(codec, chat_tokenizers.FAMILIES[options.family].renderer)
    table = Table(title=f"{options.family}: appending {count} ids after a history, median CPU us")
    for column in ("history (ids)", "extend", "whole dialogue again", "renderers' bridge", "TRL's suffix"):
        table.add_column(column, justify="right")
    costs = []
    for length in HISTORIES:
        messages = dialogue(codec, length)
        history = codec.prompt(messages, TOOLS)
        sampled = [*history[:60], close]
        costs.append(median_us(lambda s=sampled: codec.extend(s, short), options.repeat))
        whole = median_us(
            lambda m=messages: codec.tokenizer.apply_chat_template(
                m + short, tools=TOOLS, add_generation_prompt=True, tokenize=True, return_dict=False
            ),
            max(3, options.repeat // 6),
        )
        bridged = "-"
        if oracle is not None and oracle.bridge_to_next_turn(history, sampled, short, tools=TOOLS) is not None:
            work = lambda h=history, s=sampled: oracle.bridge_to_next_turn(h, s, short, tools=TOOLS)  # noqa: E731
            bridged = f"{median_us(work, options.repeat):.0f}"
        suffix = median_us(lambda: suffix_by_trl(codec, short), options.repeat)
        table.add_row(f"{len(history):,}", f"{costs[-1]:.0f}", f"{whole:.0f}", bridged, f"{suffix:.0f}")
    console.print(table)
    console.print(f"extend at the longest history / at the shortest: {costs[-1] / costs[0]:.2f}")

    table = Table(title="long results, median CPU")
    for column in ("result", "ids", "extend us/id", "against plain encoding"):
        table.add_column(column, justify="right")
    for name, text in (
        ("20 KB", "row value 17, name abc; " * 850),
        ("200 KB", "row value 17, name abc; " * 8_500),
        ("200 KB hostile", "row <|im_end|> value 17; " * 8_200),
        ("1 MB hostile", "row <|im_end|> value 17; " * 41_000),
    ):
        ids = len(codec.extend([], answer(text)))
        cost = median_us(lambda t=text: codec.extend([], answer(t)), 3)
        plain = median_us(lambda t=text: codec.tokenizer.encode(t, add_special_tokens=False), 3)
        table.add_row(name, f"{ids:,}", f"{cost / ids:.2f}", f"{cost / plain:.2f}")
    console.print(table)

    messages = [{"role": "user", "content": "Which row? " * 40}]
    prompt = median_us(lambda: codec.prompt(messages, TOOLS), options.repeat)
    plain = median_us(
        lambda: codec.tokenizer.apply_chat_template(
            messages, tools=TOOLS, add_generation_prompt=True, tokenize=True, return_dict=False
        ),
        options.repeat,
    )
    check = median_us(lambda: ChatCodec(codec.tokenizer).self_check(), 5)
    turn = [*codec.vocabulary.text_ids('</think>I look.\n<tool_call>\n{"name": "f"}\n</tool_call>', mid=True), close]
    parse = median_us(lambda: codec.parse(turn), options.repeat)
    console.print(f"prompt: {prompt:.0f} us, {prompt / plain:.2f} of apply_chat_template")
    console.print(f"parse of {len(turn)} ids: {parse:.0f} us; self-check: {check / 1e3:.0f} ms")


if __name__ == "__main__":
    main()
