"""The env's messages as endpoints take them."""

import json

from hypothesis import given
from hypothesis import strategies as st

from aworld_gym.policies.chat_format import wire_messages

PNG = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


def asking(*calls, **extra):
    return {"role": "assistant", "content": None, "tool_calls": list(calls), **extra}


def call(call_id, arguments):
    return {"id": call_id, "type": "function", "function": {"name": "look", "arguments": arguments}}


def tool(call_id, content):
    return {"role": "tool", "tool_call_id": call_id, "name": "look", "content": content}


def test_plain_messages_pass_and_what_only_the_env_knows_stays_behind():
    messages = (
        {"role": "system", "content": "s"},
        {"role": "user", "content": "u"},
        asking(call("a", "{}"), sampled={"token_ids": [1]}, reasoning="hm"),
        tool("a", "text"),
    )
    assert wire_messages(messages) == [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "u"},
        {"role": "assistant", "content": "", "tool_calls": [call("a", "{}")]},
        {"role": "tool", "tool_call_id": "a", "content": "text"},
    ]


def test_images_move_behind_the_last_of_the_tool_messages():
    seen = wire_messages((tool("a", [{"type": "text", "text": "size 1x1"}, PNG]), tool("b", [PNG]), tool("c", "no")))
    assert [m["role"] for m in seen] == ["tool", "tool", "tool", "user"]
    assert seen[0]["content"] == "size 1x1\n[an image: see the next user message]"
    assert all(isinstance(m["content"], str) for m in seen[:3])
    assert seen[3]["content"] == [
        {"type": "text", "text": "Image from a:"},
        PNG,
        {"type": "text", "text": "Image from b:"},
        PNG,
    ]


def test_images_may_stay_or_be_left_out():
    message = tool("a", [{"type": "text", "text": "t"}, PNG])
    assert wire_messages((message,), images="tool")[0]["content"] == message["content"]
    (left,) = wire_messages((message,), images="omit")
    assert left["content"].startswith("t\n[a part of type image_url was left out")


def test_arguments_that_endpoints_refuse_are_sent_in_a_form_they_take():
    broken = ["{", "[1]", "nul", '"text"', "[" * 100_000]
    (seen,) = wire_messages((asking(*(call(str(k), text) for k, text in enumerate(broken))),))
    for sent, text in zip(seen["tool_calls"], broken, strict=True):
        assert json.loads(sent["function"]["arguments"]) == {"unreadable_arguments": text}
    (seen,) = wire_messages((asking(call("a", {"x": 1}), call("b", "")),))
    assert [json.loads(c["function"]["arguments"]) for c in seen["tool_calls"]] == [{"x": 1}, {}]


@given(st.text(), st.text())
def test_whatever_the_text_it_can_be_sent(result, arguments):
    lone = result + "\ud800"
    seen = wire_messages((asking(call("a", arguments)), tool("a", lone), {"role": "user", "content": lone}))
    json.dumps(seen, ensure_ascii=False).encode("utf-8")
    assert isinstance(json.loads(seen[0]["tool_calls"][0]["function"]["arguments"]), dict)
    if not any("\ud800" <= c <= "\udfff" for c in result):
        assert seen[1]["content"] == result + "?"
