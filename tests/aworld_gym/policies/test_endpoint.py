"""The OpenAI-compatible policy against a real HTTP server that speaks, and breaks, the chat-completions format."""

import asyncio
import json
import time
from dataclasses import replace

import pytest
from chat_endpoint import ChatEndpoint, Reply, call, completion, refusal

from aworld_gym.errors import ConfigError, InfraError
from aworld_gym.policies import OpenAIPolicy
from aworld_gym.policies.base import Agent, Policy

TOOLS = [{"type": "function", "function": {"name": "add", "description": "d", "parameters": {"type": "object"}}}]
START = ({"role": "system", "content": "s"}, {"role": "user", "content": "How much is 1 + 1?"})


@pytest.fixture(autouse=True)
def no_settings(monkeypatch):
    for name in ("LLM_BASE_URL", "LLM_API_KEY", "LLM_MODEL_NAME", "OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


def agent_of(policy):
    return policy.episode(obs=START, info={"tools": TOOLS}, seed=0, index=0, attempt=0, env=None)


def play(replies, *turns, **options):
    """What an agent says to these turns of messages, and the endpoint."""
    with ChatEndpoint(replies) as endpoint:

        async def talk():
            policy = OpenAIPolicy("m", base_url=endpoint.url, **{"retries": 2, **options})
            agent = agent_of(policy)
            try:
                return [await agent.act(turn) for turn in turns or (START,)]
            finally:
                await policy.aclose()

        return asyncio.run(talk()), endpoint


def test_a_conversation_with_tool_calls():
    def replies(body, number):
        if number == 0:
            return completion({"tool_calls": [call("add", {"a": 1}), call("add", {"a": 2}, "call_b")]})
        return completion({"content": "<answer>2</answer>", "reasoning_content": "one and one"})

    results = tuple({"role": "tool", "tool_call_id": i, "name": "add", "content": "2"} for i in ("call_a", "call_b"))
    (first, second), endpoint = play(replies, START, results, temperature=0.5, extra={"top_k": 3})
    assert first["tool_calls"] == [call("add", {"a": 1}), call("add", {"a": 2}, "call_b")]
    assert first["sampled"]["model_version"] == "stand-in-1"
    assert first["sampled"]["finish_reason"] == "tool_calls"
    assert first["sampled"]["usage"]["completion_tokens"] == 7
    assert second["content"] == "<answer>2</answer>" and "tool_calls" not in second
    assert second["reasoning_content"] == "one and one"
    opening, following = endpoint.requests
    assert opening["path"] == "/v1/chat/completions"
    assert opening["tools"] == TOOLS and opening["model"] == "m"
    assert opening["temperature"] == 0.5 and opening["top_k"] == 3 and "max_tokens" not in opening
    assert [m["role"] for m in following["messages"]] == ["system", "user", "assistant", "tool", "tool"]
    assert all("sampled" not in m for m in following["messages"])


def test_protocols():
    policy = OpenAIPolicy("m", base_url="http://127.0.0.1:1/v1")
    assert isinstance(policy, Policy) and isinstance(agent_of(policy), Agent)


def test_calls_without_an_id_of_their_own_get_one():
    calls = [call("add", {}, None), call("add", {}, "x"), call("add", {}, "x"), call("add", {}, "")]
    (said,), _ = play(lambda body, number: completion({"tool_calls": calls}))
    assert [c["id"] for c in said["tool_calls"]] == ["call_0_0", "x", "call_0_2", "call_0_3"]


def test_malformed_arguments_reach_the_env_as_they_are_and_the_endpoint_as_json():
    def replies(body, number):
        return completion({"tool_calls": [call("add", '{"a": ')]} if number == 0 else {"content": "ok"})

    told = ({"role": "tool", "tool_call_id": "call_a", "name": "add", "content": "Error: not valid JSON"},)
    (first, _), endpoint = play(replies, START, told)
    assert first["tool_calls"][0]["function"]["arguments"] == '{"a": '
    sent = endpoint.requests[1]["messages"][2]["tool_calls"][0]["function"]["arguments"]
    assert json.loads(sent) == {"unreadable_arguments": '{"a": '}


@pytest.mark.parametrize(
    "trouble",
    [
        refusal(429, "slow down", **{"Retry-After": "0.01"}),
        refusal(500, "oops", **{"Retry-After": "0.01"}),
        refusal(503, "loading", **{"Retry-After": "0.01"}),
        Reply(drop=True),
        Reply(raw=b'{"choices": [', status=200),
        Reply(raw=b"<html>gateway</html>", headers={"Content-Type": "text/html"}),
        Reply({"object": "chat.completion", "choices": []}),
        Reply({"error": "no"}),
        Reply(raw=b"[" * 100_000),
        Reply(raw=b"9" * 5000),
        Reply({"choices": 5}),
        Reply({"choices": {"0": {}}}),
        Reply({"choices": [None]}),
        Reply({"choices": [{"message": 5}]}),
        Reply({"choices": [{"message": {"content": 5}}]}),
        Reply({"choices": [{"message": {"content": "x", "tool_calls": 5}}]}),
        Reply({"choices": [{"message": {"content": None, "tool_calls": [{"function": 5}]}}]}),
        Reply({"choices": [{"message": {"content": None, "tool_calls": [{"function": {"name": 5}}]}}]}),
        Reply({"choices": [{"message": {"content": "x"}, "finish_reason": [1]}]}),
        Reply({"choices": [{"message": {"content": "x"}}], "usage": 5}),
    ],
    ids=["429", "500", "503", "dropped", "torn json", "html", "no choices", "no completion"]
    + ["deep", "digits", "choices a number", "choices an object", "no choice", "message a number", "content a number"]
    + ["calls a number", "function a number", "name a number", "reason a list", "usage a number"],
)
def test_passing_trouble_is_retried_and_lasting_trouble_is_an_infrastructure_failure(trouble):
    def at_first(body, number):
        return trouble if number == 0 else completion({"content": "fine"})

    (said,), endpoint = play(at_first)
    assert said["content"] == "fine" and len(endpoint.requests) == 2
    with pytest.raises(InfraError, match="127.0.0.1") as error:
        play(lambda body, number: trouble, retries=1)
    assert error.value.kind in ("host_refused", "host_unreachable", "server_protocol")
    assert error.value.server == "llm"


def test_a_request_that_hangs_is_given_up():
    def hangs(body, number):
        return Reply({}, delay_s=2.0)

    with pytest.raises(InfraError, match="host_unreachable"):
        play(hangs, timeout_s=0.2, retries=0)


def test_a_reply_that_drips_for_ever_is_given_up():
    """A byte now and then keeps a connection alive, but not a request."""
    began = time.monotonic()
    with pytest.raises(InfraError, match="host_unreachable.*no whole reply within 0.5 s"):
        play(lambda body, number: replace(completion({"content": "x" * 5000}), drip_s=0.02), timeout_s=0.5, retries=1)
    assert time.monotonic() - began < 8.0


@pytest.mark.parametrize("status", [200, 401, 500])
def test_a_key_that_the_endpoint_repeats_is_in_no_message(status):
    secret = "sk-0123456789abcdef"
    with pytest.raises((InfraError, ConfigError)) as error:
        play(lambda body, number: refusal(status, f"wrong key {secret}"), retries=0, api_key=secret)
    assert secret[:5] not in str(error.value)  # nor a part of it, where the text was cut
    assert status == 200 or "wrong key [secret]" in str(error.value)


def test_a_password_in_the_address_is_in_no_message():
    policy = OpenAIPolicy("m", base_url="http://me:pass-word-1@127.0.0.1:9/v1", retries=0)
    with pytest.raises(ConfigError) as error:
        asyncio.run(agent_of(policy).act(START))
    assert "pass-word-1" not in str(error.value) and "127.0.0.1:9" in str(error.value)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://127.0.0.1:9/v1", "ConnectionRefusedError"),
        ("http://no-such-host.invalid/v1", "gaierror"),
    ],
)
def test_an_endpoint_that_was_never_reached_is_the_callers_mistake_and_soon(url, why):
    began = time.monotonic()
    with pytest.raises(ConfigError, match=f"{url}.*{why}.*Check LLM_BASE_URL") as error:
        asyncio.run(agent_of(OpenAIPolicy("m", base_url=url, retries=5)).act(START))
    assert "\n" not in str(error.value) and time.monotonic() - began < 10.0


def test_a_connection_that_is_refused_later_is_an_infrastructure_failure():
    with ChatEndpoint(lambda body, number: completion({"content": "ok"})) as endpoint:
        policy = OpenAIPolicy("m", base_url=endpoint.url, retries=1)
        asyncio.run(agent_of(policy).act(START))
    with pytest.raises(InfraError, match="Connect") as error:
        asyncio.run(agent_of(policy).act(START))
    assert error.value.kind == "host_unreachable"


@pytest.mark.parametrize(
    ("header", "least", "most"), [({"Retry-After": "1.2"}, 1.2, 3.0), ({"retry-after-ms": "20"}, 0.0, 0.4)]
)
def test_an_endpoint_says_how_long_to_wait(header, least, most):
    times = []

    def busy_at_first(body, number):
        times.append(time.monotonic())
        return completion({"content": "ok"}) if number else refusal(429, "slow down", **header)

    assert play(busy_at_first)[0][0]["content"] == "ok"
    assert least <= times[1] - times[0] < most


def test_an_endpoint_that_asks_for_hours_is_not_waited_for():
    requests = []

    def spent(body, number):
        requests.append(number)
        return refusal(429, "quota used up", **{"Retry-After": "7200"})

    with pytest.raises(InfraError, match="quota used up"):
        play(spent, retries=5)
    assert requests == [0]


def test_a_message_that_was_cut_is_no_answer():
    cut = completion({"content": "So the answer is <answer>4</answer>, or"}, finish="length")
    assert play(lambda body, number: cut, max_tokens=8)[0] == [None]
    calling = completion({"tool_calls": [call("add", '{"a": 1')]}, finish="length")
    assert play(lambda body, number: calling)[0][0]["tool_calls"], "the env says what is wrong with a call that was cut"


@pytest.mark.parametrize(
    "reply",
    [
        refusal(400, "too long", "context_length_exceeded"),
        refusal(400, "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens"),
        Reply({"object": "error", "message": "The prompt is too long: exceeds the context window"}, status=400),
    ],
)
def test_a_conversation_that_outgrows_the_context_ends_the_episode(reply):
    assert play(lambda body, number: reply)[0] == [None]


@pytest.mark.parametrize("status", [400, 401, 404, 422])
def test_a_refusal_is_the_callers_mistake_at_first_and_a_failure_later(status):
    with pytest.raises(ConfigError, match=f"answered {status}: the reason.*LLM_MODEL_NAME"):
        play(lambda body, number: refusal(status, "the reason"))

    def later(body, number):
        return completion({"content": "ok"}) if number == 0 else refusal(status, "the reason")

    with pytest.raises(InfraError, match="the reason"):
        play(later, START, ())


def test_settings_come_from_the_environment_and_arguments_win(monkeypatch):
    with pytest.raises(ConfigError, match="LLM_MODEL_NAME"):
        OpenAIPolicy()
    with pytest.raises(ConfigError, match="LLM_BASE_URL"):
        OpenAIPolicy("m")
    with pytest.raises(ConfigError, match="http://"):
        OpenAIPolicy("m", base_url="127.0.0.1:8000")
    with pytest.raises(ConfigError, match="images must be one of"):
        OpenAIPolicy("m", base_url="http://127.0.0.1:9/v1", images="maybe")
    with ChatEndpoint(lambda body, number: completion({"content": "ok"})) as endpoint:
        monkeypatch.setenv("LLM_BASE_URL", endpoint.url)
        monkeypatch.setenv("LLM_API_KEY", "secret")
        monkeypatch.setenv("LLM_MODEL_NAME", "from-env")
        asyncio.run(agent_of(OpenAIPolicy()).act(START))
        asyncio.run(agent_of(OpenAIPolicy("given", api_key="other")).act(START))
    assert [r["model"] for r in endpoint.requests] == ["from-env", "given"]
    assert endpoint.keys == ["Bearer secret", "Bearer other"]


def test_one_policy_serves_several_loops_one_after_another():
    with ChatEndpoint(lambda body, number: completion({"content": "ok"})) as endpoint:
        policy = OpenAIPolicy("m", base_url=endpoint.url)
        for _ in range(3):
            assert asyncio.run(agent_of(policy).act(START))["content"] == "ok"


def test_closing_waits_for_requests_of_others():
    with ChatEndpoint(lambda body, number: Reply(completion({"content": "ok"}).body, delay_s=0.3)) as endpoint:
        policy = OpenAIPolicy("m", base_url=endpoint.url, retries=0)

        async def two_rollouts():
            running = asyncio.create_task(agent_of(policy).act(START))
            await asyncio.sleep(0.1)
            await policy.aclose()  # one of them ends
            said = await running
            await policy.aclose()
            return said

        assert asyncio.run(two_rollouts())["content"] == "ok"
        assert not policy._client.is_open


def test_no_proxy_is_on_the_way_to_this_machine(monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    (said,), _ = play(lambda body, number: completion({"content": "ok"}), retries=0)
    assert said["content"] == "ok"
