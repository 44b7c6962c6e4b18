"""A stand-in for a vLLM server: speaks its dialect of ``/v1/completions`` over real HTTP, and samples by a script.

In process it is a :class:`VllmStandIn`; as a program (``python vllm_stand_in.py serve MODEL --host ... --port ...``) it
stands for ``vllm`` itself. What it answers is checked against the real server's answers by ``tests/vllm``.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from chat_endpoint import ChatEndpoint, Reply
from scripted_sampler import ScriptedSampler, echo_then_submit

NAME = "stand-in"


def bad_request(message: str, param: str | None = None, status: int = 400) -> Reply:
    """An error as vLLM puts it."""
    kind = {404: "NotFoundError", 400: "BadRequestError"}.get(status, "InternalServerError")
    return Reply({"error": {"message": message, "type": kind, "param": param, "code": status}}, status=status)


class VllmStandIn(ChatEndpoint):
    """The server. ``trouble(body, number)`` may give another reply to a request, None where it is to be answered.

    Args:
        codec: its tokenizer is the model's.
        sample: ids after these, by the body of the request; what a stop id or a limit cuts off, is cut off here.
        name: of the model.
        context: ids of prompt and continuation together.
        processed: whether log-probabilities are those of what is drawn from (here: divided by the temperature).
        trouble: see above.
        edit: changes the body of a reply before it is sent.
        key: asked for with every request, where not empty.
        port: 0 is any.
    """

    def __init__(
        self,
        codec: Any,
        sample: Callable[[list[int], dict[str, Any]], list[int]],
        *,
        name: str = NAME,
        context: int = 1024,
        processed: bool = True,
        trouble: Callable[[dict[str, Any], int], Reply | None] = lambda body, number: None,
        edit: Callable[[dict[str, Any]], dict[str, Any]] = lambda body: body,
        key: str = "",
        port: int = 0,
    ):
        self.codec, self.sample, self.name, self.context, self.processed = codec, sample, name, context, processed

        unauthorized = Reply({"error": "Unauthorized"}, status=401)

        def pages(path: str, given: str | None) -> Reply:
            return unauthorized if key and path.startswith("/v1") and given != f"Bearer {key}" else self.page(path)

        def replies(body: dict[str, Any], number: int) -> Reply:
            if key and self.keys[number] != f"Bearer {key}":
                return unauthorized
            reply = trouble(body, number) or self.complete(body)
            return replace(reply, body=edit(reply.body)) if reply.status == 200 and reply.raw is None else reply

        super().__init__(replies, pages, port)

    def page(self, path: str) -> Reply:
        """What GET gives."""
        if path == "/health":
            return Reply(raw=b"")
        if path == "/v1/models":
            model = {"id": self.name, "object": "model", "created": 1, "owned_by": "vllm", "root": self.name}
            return Reply({"object": "list", "data": [{**model, "parent": None, "max_model_len": self.context}]})
        return Reply({"detail": "Not Found"}, status=404)

    def complete(self, body: dict[str, Any]) -> Reply:
        """What a request to ``/v1/completions`` gives."""
        prompt = body["prompt"]
        ids = self.codec.tokenizer.encode(prompt, add_special_tokens=False) if isinstance(prompt, str) else prompt
        if body["model"] != self.name:
            return bad_request(f"The model `{body['model']}` does not exist.", "model", 404)
        if not 0 <= body.get("temperature", 1.0) <= 2:
            return bad_request(f"temperature must be in [0, 2], got {body['temperature']}.", "temperature")
        if len(ids) > self.context:
            return bad_request(
                f"This model's maximum context length is {self.context} tokens. However, your prompt contains at least "
                f"{self.context + 1} input tokens, which exceeds this limit even without any output tokens.",
                "input_tokens",
            )
        stops = {
            *body.get("stop_token_ids", ()),
            *(() if body.get("ignore_eos") else (self.codec.tokenizer.eos_token_id,)),
        }
        limit = min(body.get("max_tokens", 16), self.context - len(ids))
        sampled = list(self.sample(list(ids), body))[:limit]
        end = next((k for k, token in enumerate(sampled) if token in stops), None)
        sampled = sampled if end is None else sampled[: end + 1]
        choice: dict[str, Any] = {
            "index": 0,
            "text": self.codec.tokenizer.decode(sampled[: -1 if end is not None else None]),
            "logprobs": None,
            "finish_reason": "length" if end is None else "stop",
            "stop_reason": None if end is None else sampled[-1],
            "token_ids": None,
            "prompt_logprobs": None,
            "prompt_token_ids": None,
            "routed_experts": None,
        }
        if body.get("logprobs") is not None:
            value = -1.5 / (body.get("temperature", 1.0) or 1.0) if self.processed else -1.5
            tokens = [self.codec.tokenizer.decode([i]) for i in sampled]
            choice["logprobs"] = {
                "text_offset": [0] * len(sampled),
                "token_logprobs": [value] * len(sampled),
                "tokens": tokens,
                "top_logprobs": [
                    {token: value, **{f"{token}{k}": value - k for k in range(1, body["logprobs"])}} for token in tokens
                ],
            }
        if body.get("return_token_ids"):
            choice |= {"token_ids": sampled, "prompt_token_ids": list(ids)}
        usage = {"prompt_tokens": len(ids), "completion_tokens": len(sampled), "total_tokens": len(ids) + len(sampled)}
        return Reply(
            {
                "id": "cmpl-1",
                "object": "text_completion",
                "created": 1,
                "model": self.name,
                "choices": [choice],
                "service_tier": None,
                "system_fingerprint": "stand-in",
                "usage": {**usage, "prompt_tokens_details": None, "completion_tokens_details": None},
                "kv_transfer_params": None,
                "ec_transfer_params": None,
                "metrics": None,
            }
        )


def scripted(codec: Any, script: Callable[[str, int], Any] = echo_then_submit) -> Callable[..., list[int]]:
    """Samples by a script of (word, turn) for the prompts of ``say_env``; anything for other prompts."""
    sampler = ScriptedSampler(codec, script)

    def sample(ids: list[int], body: dict[str, Any]) -> list[int]:
        return sampler.sample(ids) if "say " in codec.tokenizer.decode(ids) else list(range(1, 60))

    return sample


def drawn(codec: Any) -> Callable[..., list[int]]:
    """Samples that are decided by the request's seed and its prompt: right answers, and wrong ones."""

    def script(word: str, turn: int) -> Any:
        return echo_then_submit(word, turn)

    sampler = ScriptedSampler(codec, script)

    def sample(ids: list[int], body: dict[str, Any]) -> list[int]:
        if "say " not in codec.tokenizer.decode(ids):
            return list(range(1, 60))
        rng = random.Random(body["seed"])
        said = sampler.sample(ids)
        # As many ids of no meaning before it as the seed says: each draw differs, and all are answers.
        return [*rng.choices(codec.tokenizer.encode("abcdefgh", add_special_tokens=False), k=6), *said]

    return sample


class _Codec:
    """A codec that is made when it is first used: importing a tokenizer takes seconds."""

    def __init__(self, folder: str):
        self._folder = folder

    def __getattr__(self, name: str) -> Any:
        from transformers import AutoTokenizer

        from aworld_gym.tokens import ChatCodec

        made = ChatCodec(AutoTokenizer.from_pretrained(self._folder))
        vars(self).update(tokenizer=made.tokenizer, encode_assistant=made.encode_assistant)
        return getattr(made, name)


def _clean_up(number: int, frame: Any) -> None:
    """The engine's end, which takes longer than the server's."""
    time.sleep(0.3)
    print("engine cleaned up", flush=True)
    os._exit(0)


def as_program(argv: list[str]) -> None:
    """Serve like ``vllm serve``; ``STAND_IN`` in the environment says how to fail."""
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=["serve"])
    parser.add_argument("model")
    parser.add_argument("--host")
    parser.add_argument("--port", type=int)
    options, more = parser.parse_known_args(argv)
    print("arguments:", *more, flush=True)
    how = os.environ.get("STAND_IN", "")
    if how == "broken":
        print("(APIServer pid=1) WARNING 11-30 19:49:47 [util.py:2] a warning of `OSError: 24`, say", flush=True)
        print(
            "(EngineCore pid=1) ERROR 11-30 19:49:48 [core.py:9] RuntimeError: this model cannot be served", flush=True
        )
        print("noise\n" * 200, flush=True)
        sys.exit(3)
    if how == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = os.fork()  # as the real one has its engine
    if not child:
        if how != "stubborn":
            signal.signal(signal.SIGTERM, _clean_up)
        while True:
            time.sleep(60)
    print(f"engine {child}", flush=True)
    if how == "slow":
        time.sleep(600)
    codec = _Codec(options.model)
    dies_after = int(how.partition("dies after ")[2] or 0) or math.inf

    def trouble(body: dict[str, Any], number: int) -> None:
        if number >= dies_after:
            print("(EngineCore pid=1) ERROR ValueError: out of cheese", flush=True)
            os._exit(5)

    key = os.environ["VLLM_API_KEY"]
    with VllmStandIn(codec, scripted(codec), name=options.model, key=key, port=options.port, trouble=trouble):
        threading.Event().wait()


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    as_program(sys.argv[1:])
