"""A sampler that plays a script: for tests of what happens between sampler and env."""

from __future__ import annotations

import threading
from collections.abc import Callable

from say_env import WORDS


def tool_call(name: str, **arguments) -> dict:
    return {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"type": "function", "function": {"name": name, "arguments": arguments}}],
    }


class ScriptedSampler:
    """``generate`` for ``token_rollout``; ``script(word, turn)`` gives an assistant message or ids.

    Remembers every call: ``batches`` of (prompts, limits), ``outputs``, and the threads it ran on.
    """

    def __init__(self, codec, script: Callable[[str, int], dict | list[int]], logprobs: bool = True):
        self.codec, self.script, self.logprobs = codec, script, logprobs
        self.batches, self.outputs, self.threads = [], [], set()

    def __call__(self, prompts, limits):
        self.threads.add(threading.current_thread())
        self.batches.append(([list(p) for p in prompts], list(limits)))
        outputs = [self.sample(p)[:limit] for p, limit in zip(prompts, limits, strict=True)]
        self.outputs.append(outputs)
        return [(ids, [-0.5] * len(ids) if self.logprobs else None) for ids in outputs]

    def sample(self, prompt: list[int]) -> list[int]:
        text = self.codec.tokenizer.decode(prompt)
        word = min((w for w in WORDS if f"say {w}" in text), key=lambda w: text.index(f"say {w}"))
        turn = text.count("<|im_start|>assistant") - 1
        said = self.script(word, turn)
        return list(said) if isinstance(said, list) else self.codec.encode_assistant(said)


def echo_then_submit(word: str, turn: int) -> dict:
    return tool_call("echo", text=word) if turn == 0 else tool_call("submit_answer", answer=word)
