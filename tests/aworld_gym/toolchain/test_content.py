"""MCP content blocks to content parts."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aworld_gym.toolchain.content import cut, error_result, plain, sendable, text_part, tool_result

PNG = base64.b64encode(b"\x89PNG....").decode()


def result(raw, max_chars=1000):
    return tool_result(raw, call_id="c1", name="t", max_chars=max_chars, duration_s=0.5)


@pytest.mark.parametrize(
    ("block", "parts"),
    [
        ({"type": "text", "text": "héllo"}, [{"type": "text", "text": "héllo"}]),
        (
            {"type": "image", "data": PNG, "mimeType": "image/jpeg"},
            [{"type": "image_url", "image_url": {"url": f"data:image/jpeg;base64,{PNG}"}}],
        ),
        ({"type": "audio", "data": PNG, "mimeType": "audio/wav"}, [text_part("[audio, audio/wav, 8 bytes]")]),
        (
            {"type": "resource", "resource": {"uri": "file:///a.txt", "text": "inside"}},
            [text_part("[resource file:///a.txt]\ninside")],
        ),
        (
            {"type": "resource", "resource": {"uri": "file:///a.png", "blob": PNG, "mimeType": "image/png"}},
            [
                text_part("[resource file:///a.png]"),
                {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
            ],
        ),
        (
            {"type": "resource", "resource": {"uri": "file:///a.bin", "blob": PNG}},
            [text_part("[resource file:///a.bin, unknown type, 8 bytes]")],
        ),
        (
            {"type": "resource_link", "name": "a", "uri": "file:///a", "mimeType": "text/plain"},
            [text_part("[resource: a, file:///a, text/plain]")],
        ),
        ({"type": "hologram", "x": "é"}, [text_part('{"type": "hologram", "x": "é"}')]),
    ],
)
def test_blocks(block, parts):
    assert list(result({"content": [block]}).content) == parts


def test_what_a_result_says_is_kept():
    made = result({"content": [{"type": "text", "text": "no"}], "isError": True, "structuredContent": {"a": 1}})
    assert (made.call_id, made.name, made.error, made.structured, made.duration_s) == (
        "c1",
        "t",
        "tool_error",
        {"a": 1},
        0.5,
    )
    assert result({"content": [], "isError": True}).text == "the tool failed and gave no reason"
    assert result({"content": [{"type": "text", "text": ""}]}).text == ""
    assert result({"structuredContent": {"é": 1}}).text == '{"é": 1}'
    failed = error_result("call_unknown_tool", "no such tool", call_id="c", name="x", max_chars=7)
    assert (failed.error, failed.cut_chars) == ("call_unknown_tool", 5)


PARTS = st.lists(
    st.one_of(
        st.text(max_size=30).map(text_part),
        st.just({"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}),
    ),
    max_size=6,
)


@given(PARTS, st.integers(1, 60))
def test_cutting_loses_exactly_what_it_says(parts, limit):
    kept, missing = cut(parts, limit)
    text = "".join(part["text"] for part in parts if part["type"] == "text")
    assert missing == max(0, len(text) - limit)
    images = [part for part in parts if part["type"] == "image_url"]
    assert [part for part in kept if part["type"] == "image_url"] == images
    if missing:
        *kept, notice = kept
        assert notice["text"] == f"[cut: {missing} of {len(text)} characters are not shown]"
    assert "".join(part["text"] for part in kept if part["type"] == "text") == text[:limit]


@given(st.text(alphabet=st.characters(codec=None, categories=None), max_size=20))
def test_text_always_encodes(text):
    made = plain(text)
    made.encode()
    try:
        text.encode()
    except UnicodeEncodeError:
        assert "\ufffd" in made
    else:
        assert made == text


@given(st.recursive(st.one_of(st.none(), st.booleans(), st.integers(), st.text()), lambda v: st.lists(v), max_leaves=4))
def test_arguments_are_sent_as_they_are(value):
    assert sendable({"a": value}) == {"a": value}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1}, b"x", object()])
def test_arguments_that_are_no_json(value):
    with pytest.raises(ValueError):
        sendable({"a": [value]})


def test_arguments_with_half_characters():
    assert json.dumps(sendable({"a": "x\ud83d", "b\udc00": ["😀"]}), ensure_ascii=False).encode()
