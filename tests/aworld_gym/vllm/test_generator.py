"""Sampling from a server that speaks vLLM's dialect: what is sent, what comes back, and what is refused."""

import asyncio
import math
from dataclasses import replace

import pytest
import tiny_model
from chat_endpoint import Reply
from vllm_stand_in import bad_request

from aworld_gym.errors import ConfigError, InfraError
from aworld_gym.tokens import ChatCodec
from aworld_gym.vllm import Sampling, VllmGenerator
from aworld_gym.vllm.generator import ContextOverflowError


def ask(server, codec, *prompts, limit=50, keys=None, **options):
    """What is sampled for each prompt, one after another."""

    async def talk():
        generator = VllmGenerator(server.url, codec, **{"retries": 1, **options})
        try:
            pairs = zip(keys or range(len(prompts)), prompts, strict=True)
            return [await generator.generate(key, list(ids), limit) for key, ids in pairs]
        finally:
            await generator.aclose()

    return asyncio.run(talk())


def test_ids_and_logprobs_come_back_as_they_were_sampled(serve, codec):
    prompt = codec.prompt([{"role": "user", "content": "say red"}], tiny_model.TOOLS)
    odd = [5, 6, 7, *codec.encode_assistant({"role": "assistant", "content": "red"})]
    server = serve(lambda ids, body: [*odd, 9, 9])
    ((ids, logprobs),) = ask(server, codec, prompt)
    assert ids == odd and logprobs == [-1.5] * len(odd)  # up to the stop id, and with it
    *_, sent = server.requests
    assert sent["prompt"] == prompt and sent["path"] == "/v1/completions"
    assert sent["max_tokens"] == 50 and sent["return_token_ids"] is True and sent["logprobs"] == 0
    assert sent["stop_token_ids"] == sorted(codec.stop_ids) and sent["ignore_eos"] is True
    assert {name: sent[name] for name in Sampling().fields()} == {
        "temperature": 1.0,
        "top_p": 1.0,
        "top_k": 0,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
    }


def test_a_limit_cuts(serve, codec):
    server = serve(lambda ids, body: list(range(5, 60)))
    assert ask(server, codec, [1, 2], limit=3)[0][0] == [5, 6, 7]


def test_seeds_follow_from_seed_episode_and_ids(serve, codec):
    def seeds(*prompts, **options):
        server = serve()
        ask(server, codec, *prompts, **options)
        return [body["seed"] for body in server.requests[-len(prompts) :]]

    one = seeds([1, 2], [1, 2], [1, 2, 3], keys=[0, 1, 0])
    assert len(set(one)) == 3 and all(0 <= seed < 2**63 for seed in one)
    assert seeds([1, 2], [1, 2], [1, 2, 3], keys=[0, 1, 0]) == one  # the same in every process
    assert not set(seeds([1, 2], [1, 2], keys=[0, 1], sampling=Sampling(seed=1))) & set(one)


def test_the_model_is_found_by_name_by_origin_or_as_the_only_one(serve, codec):
    for model in (None, "stand-in", "/some/folder"):
        assert ask(serve(), codec, [1], model=model)

    def several(path):
        models = [{"id": name, "root": f"/{name}", "max_model_len": 99} for name in ("base", "tuned")]
        return Reply({"object": "list", "data": models})

    async def served(server, model):
        generator = VllmGenerator(server.url, codec, model=model, retries=0)
        return await generator.connect()

    for model in ("tuned", "/tuned"):
        server = serve(name="tuned")
        server.page = several
        found = asyncio.run(served(server, model))
        assert (found.name, found.max_context) == ("tuned", 99)
    with pytest.raises(ConfigError, match="serves base, tuned, not 'tune'. Did you mean 'tuned'"):
        asyncio.run(served(server, "tune"))


def test_another_tokenizer_is_refused(serve, codec):
    other = tiny_model.tokenizer()
    other.add_tokens(["42"])
    server = serve()
    server.codec = ChatCodec(other)
    with pytest.raises(ConfigError, match=r"another tokenizer than 'm': .*42.*(--model)"):
        ask(server, codec, [1], model="m")
    other = tiny_model.tokenizer()  # the same text, other control tokens
    other.add_special_tokens({"additional_special_tokens": ["<|im_start|> "]})
    server.codec = ChatCodec(other)
    with pytest.raises(ConfigError, match="another tokenizer"):
        ask(server, codec, [1])


@pytest.mark.parametrize("missing", ["token_ids", "prompt_token_ids", "logprobs"])
def test_a_server_that_gives_no_ids_is_refused(serve, codec, missing):
    def without(body):
        return {**body, "choices": [{**body["choices"][0], missing: None}]}

    with pytest.raises(ConfigError, match="gives no token ids .*return_token_ids"):
        ask(serve(edit=without), codec, [1])


def test_a_server_that_does_not_say_its_context_is_refused(serve, codec):
    server = serve()
    server.page = lambda path: Reply({"object": "list", "data": [{"id": "stand-in", "object": "model"}]})
    with pytest.raises(ConfigError, match="max_model_len"):
        ask(server, codec, [1])


def test_logprobs_of_another_distribution_are_not_taken_for_those_of_the_draw(serve, codec, caplog):
    warm = Sampling(temperature=0.5)
    assert ask(serve(), codec, [1], sampling=warm)[0][1][0] == -3.0
    assert not caplog.records
    assert ask(serve(processed=False), codec, [1], sampling=warm)[0][1] is None
    assert "--logprobs-mode processed_logprobs" in caplog.text
    for plain in (Sampling(), Sampling(temperature=0.0)):
        assert ask(serve(processed=False), codec, [1], sampling=plain)[0][1] is not None


def test_parameters_that_the_server_refuses_are_the_callers_mistake(serve, codec):
    with pytest.raises(ConfigError, match=r"temperature must be in \[0, 2\].*sampling options"):
        ask(serve(), codec, [1], sampling=Sampling(temperature=3.0))


@pytest.mark.parametrize(
    "wrong", [{"temperature": -1.0}, {"temperature": float("nan")}, {"top_p": 0}, {"top_k": -1}, {"seed": 1.5}]
)
def test_parameters_that_cannot_be(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        Sampling(**wrong)


def test_a_prompt_longer_than_the_context(serve, codec):
    with pytest.raises(ContextOverflowError, match="101 ids"):
        ask(serve(context=100), codec, [1] * 101)


def changed(**fields):
    return lambda reply: {**reply, "choices": [{**reply["choices"][0], **fields}]}


@pytest.mark.parametrize(
    "trouble",
    [
        bad_request("EngineCore encountered an issue.", status=500),
        Reply({"error": "busy"}, status=503),
        Reply({"error": "busy"}, status=429),
        Reply(drop=True),
        Reply(raw=b'{"choices": ['),
        Reply({"choices": []}),
        changed(finish_reason="abort"),
        changed(token_ids=[]),
        changed(token_ids=[1.5]),
        changed(token_ids=list(range(51))),
        changed(token_ids=[2**40]),
        changed(prompt_token_ids=[1, 2, 4]),
        changed(logprobs=None),
        changed(logprobs={"token_logprobs": [-1.0]}),
    ],
    ids=[
        "500",
        "503",
        "429",
        "dropped",
        "torn",
        "no choice",
        "aborted",
        "no ids",
        "no integers",
        "too many",
        "too large",
    ]
    + ["another prompt", "no logprobs", "too few logprobs"],
)
def test_passing_trouble_is_retried_and_lasting_trouble_is_an_infrastructure_failure(serve, codec, trouble):
    def server_with(until):
        first = []

        def troubled(body, number):
            if body["prompt"] != [1, 2, 3] or len(first) >= until:
                return None
            first.append(number)
            return (
                trouble
                if isinstance(trouble, Reply)
                else replace(stand_in.complete(body), body=trouble(stand_in.complete(body).body))
            )

        stand_in = serve(lambda ids, body: list(range(5, 60)), trouble=troubled)
        return stand_in

    assert ask(server_with(1), codec, [1, 2, 3])[0][0] == list(range(5, 55))
    with pytest.raises(InfraError) as error:
        ask(server_with(99), codec, [1, 2, 3])
    assert error.value.kind in ("host_refused", "host_unreachable", "server_protocol")


def test_a_logprob_that_no_number_holds_is_unknown(serve, codec):
    def troubled(body, number):
        good = stand_in.complete(body)
        if body["prompt"] != [1, 2, 3]:
            return None
        return replace(good, body=changed(token_ids=[5], logprobs={"token_logprobs": [-(10**400)]})(good.body))

    stand_in = serve(lambda ids, body: [5, 6], trouble=troubled)
    ((ids, logprobs),) = ask(stand_in, codec, [1, 2, 3])
    assert ids == [5] and math.isnan(logprobs[0])


def test_a_request_that_hangs_is_given_up(serve, codec):
    def hangs(body, number):
        return Reply({}, delay_s=1.5) if body["prompt"] == [1, 2, 3] else None

    with pytest.raises(InfraError, match="no whole reply within 0.3 s"):
        ask(serve(trouble=hangs), codec, [1, 2, 3], timeout_s=0.3, retries=0)


def test_a_server_that_is_not_there_and_a_key_that_is_wrong_are_the_callers_mistake(serve, codec):
    with pytest.raises(ConfigError, match="Check --base-url"):
        asyncio.run(VllmGenerator("http://127.0.0.1:9/v1", codec, retries=0).generate(0, [1], 1))
    with pytest.raises(ConfigError, match="http://"):
        VllmGenerator("127.0.0.1:8000", codec)
    with pytest.raises(ConfigError, match="answered 401.*API key"):
        ask(serve(key="right"), codec, [1], api_key="wrong")
    assert ask(serve(key="right"), codec, [1], api_key="right")


def test_a_turn_that_ends_at_an_unknown_id_is_told(serve, codec, caplog):
    ask(serve(lambda ids, body: [7], edit=changed(finish_reason="stop")), codec, [1], [1])
    assert caplog.text.count("which is none of the template's stop ids") == 1
