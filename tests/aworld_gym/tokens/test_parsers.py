"""What models write, well and badly, and what is read in it."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from chat_dialogues import write_call
from hypothesis import given, settings
from hypothesis import strategies as st

from aworld_gym.tokens import ERROR_KINDS, FORMATS, Parsed, parse_text

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "f",
            "parameters": {
                "type": "object",
                "properties": {
                    "text": {"type": "string"},
                    "int": {"type": "integer"},
                    "num": {"type": "number"},
                    "flag": {"type": "boolean"},
                    "list": {"type": "array"},
                    "maybe": {"type": ["string", "null"]},
                    "either": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
                    "one": {"enum": [1, 2]},
                    "fixed": {"const": "7"},
                    "open": {},
                    "ref": {"$ref": "#/$defs/x"},
                },
            },
        },
    }
]


def calls(parsed: Parsed) -> list[tuple[str, Any]]:
    found = [call["function"] for call in parsed.message.get("tool_calls", [])]
    return [(function["name"], json.loads(function["arguments"])) for function in found]


def kinds(parsed: Parsed) -> list[str]:
    return [error["type"] for error in parsed.errors]


def tagged(body: str) -> str:
    return f"<tool_call>\n{body}\n</tool_call>"


OK = tagged('{"name": "f", "arguments": {"k": "a"}}')
A = [("f", {"k": "a"})]

HERMES = [
    # text, content, calls, kinds of errors
    (OK, "", A, []),
    ("", "", [], []),
    ("just text", "just text", [], []),
    (f"hi\n{OK}\nbye", "hi\nbye", A, []),
    (OK + OK, "", A + A, []),
    (tagged('{"name": "f", "arguments": {}}'), "", [("f", {})], []),
    (tagged('{"name": "f"}'), "", [("f", {})], []),
    (tagged('{"name": "f", "arguments": "{\\"k\\": 1}"}'), "", [("f", {"k": 1})], []),
    (tagged('{"name": "f", "id": "x", "type": "function"}'), "", [("f", {})], []),
    # a closing tag inside a JSON string does not end the call
    (tagged('{"name": "f", "arguments": {"k": "x </tool_call> <tool_call> y"}}'), "",
     [("f", {"k": "x </tool_call> <tool_call> y"})], []),
    (tagged('{"name": "f", "arguments": {"k": "he said \\"x\\" {\'y\': \\"}\\"}"}}'), "",
     [("f", {"k": 'he said "x" {\'y\': "}"}'})], []),
    (tagged('{"name": "f", "arguments": {"k": "a"'), "", [], ["invalid_json"]),
    (tagged("{'name': 'f'}"), "", [], ["invalid_json"]),
    (tagged('{"name": "f", "arguments": {"k": "a\nb"}}'), "", [], ["invalid_json"]),
    (tagged('{"name": "f", "arguments": {}} and more'), "", [], ["invalid_json"]),
    (tagged('[{"name": "f"}]'), "", [], ["invalid_json"]),
    (tagged("7"), "", [], ["invalid_json"]),
    (tagged(""), "", [], ["invalid_json"]),
    (tagged('{"name": "f", "arguments": {"k": NaN}}'), "", [], ["invalid_json"]),
    (tagged('{"name": "f", "arguments": {"k": -Infinity}}'), "", [], ["invalid_json"]),
    (tagged('{"name": "f", "arguments": {"k": 1e999}}'), "", [], ["invalid_json"]),
    (tagged('{"name": "f", "arguments": {"k": 1' + "0" * 5000 + "}}"), "", [], ["invalid_json"]),
    (tagged('{"name": "f", "arguments": ' + "[" * 100_000 + "]" * 100_000 + "}"), "", [], ["invalid_json"]),
    (tagged('{"name": "f", "arguments": ' + '{"a":' * 80 + "1" + "}" * 80 + "}"), "", [], ["invalid_json"]),
    (tagged('{"name": "f", "arguments": {"k": "\\ud800"}}'), "", [], ["invalid_json"]),
    (tagged('{"name": "f", "arguments": {"\\udc00": 1}}'), "", [], ["invalid_json"]),
    (tagged('{"name": "f", "arguments": "not json"}'), "", [], ["invalid_json"]),
    (tagged('{"name": "f", "name": "g"}'), "", [], ["duplicate_key"]),
    (tagged('{"name": "f", "arguments": {"k": {"a": 1, "a": 2}}}'), "", [], ["duplicate_key"]),
    (tagged('{"arguments": {}}'), "", [], ["missing_name"]),
    (tagged('{"name": 3}'), "", [], ["missing_name"]),
    (tagged('{"name": " "}'), "", [], ["missing_name"]),
    (tagged('{"name": "f", "arguments": [1]}'), "", [], ["bad_arguments"]),
    (tagged('{"name": "f", "arguments": null}'), "", [], ["bad_arguments"]),
    (tagged('{"name": "f", "parameters": {"k": 1}}'), "", [], ["bad_arguments"]),
    ('<tool_call>\n{"name": "f", "arg', "", [], ["unclosed"]),
    ('<tool_call>\n{"name": "f", "arguments": {}}', "", [], ["unclosed"]),
    (OK + '\n<tool_call>\n{"name": "f', "", A, ["unclosed"]),
    ("<tool_call>\n" + OK + "\n</tool_call>", "</tool_call>", A, ["unclosed"]),
    ("<tool_call>" + OK, "", A, ["unclosed"]),
    ("</tool_call>", "</tool_call>", [], []),
    (tagged("{bad") + OK, "", A, ["invalid_json"]),
    ('```json\n{"name": "f", "arguments": {}}\n```', '```json\n{"name": "f", "arguments": {}}\n```', [], []),
]  # fmt: skip


@pytest.mark.parametrize(("text", "content", "found", "wrong"), HERMES, ids=range(len(HERMES)))
def test_hermes(text: str, content: str, found: list, wrong: list) -> None:
    parsed = parse_text(text, "hermes")
    assert (parsed.message["content"], calls(parsed), kinds(parsed)) == (content, found, wrong)


LLAMA = [
    ('{"name": "f", "parameters": {"k": 1}}', "", [("f", {"k": 1})], []),
    ('  {"name": "f", "arguments": {"k": 1}}\n', "", [("f", {"k": 1})], []),
    ('<|python_tag|>{"name": "f", "parameters": {}}', "", [("f", {})], []),
    ('I look.<|python_tag|>{"name": "f", "parameters": {}}', "I look.", [("f", {})], []),
    ('{"type": "function", "function": {"name": "f", "parameters": {"k": 1}}}', "", [("f", {"k": 1})], []),
    ('{"type": "function", "name": "f", "parameters": {"k": 1}}', "", [("f", {"k": 1})], []),
    ('{"name": "f", "parameters": {}}; {"name": "g", "parameters": {}}', "", [("f", {}), ("g", {})], []),
    ('{"name": "f", "parameters": {}}\n{"name": "g"}', "", [("f", {}), ("g", {})], []),
    ('{"name": "f", "parameters": {}} trailing words', "trailing words", [("f", {})], []),
    ("The answer is 7.", "The answer is 7.", [], []),
    ('{"answer": 7}', '{"answer": 7}', [], []),
    ('{"type": "bird"}', '{"type": "bird"}', [], []),
    ('text {"name": "f", "parameters": {}}', 'text {"name": "f", "parameters": {}}', [], []),
    ('{"name": "f", "parameters": {"k": 1}', "", [], ["unclosed"]),
    ('{"name": "f", "parameters": {"k": "x', "", [], ["unclosed"]),
    ('{"name": f}', "", [], ["invalid_json"]),
    ('{"name": "f", "parameters": {}}; {"name": "g", "par', "", [("f", {})], ["unclosed"]),
    ('{"name": "f", "parameters": 7}; {"name": "g"}', "", [("g", {})], ["bad_arguments"]),
    ('{"parameters": {}}', "", [], ["missing_name"]),
    ('{"name": "f", "name": "g"}', "", [], ["duplicate_key"]),
    ("<|python_tag|>import math", "", [], ["invalid_json"]),
]


@pytest.mark.parametrize(("text", "content", "found", "wrong"), LLAMA, ids=range(len(LLAMA)))
def test_llama(text: str, content: str, found: list, wrong: list) -> None:
    parsed = parse_text(text, "llama")
    assert (parsed.message["content"], calls(parsed), kinds(parsed)) == (content, found, wrong)


def qwen(*parameters: tuple[str, str], name: str = "f") -> str:
    blocks = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in parameters)
    return f"<tool_call>\n<function={name}>\n{blocks}</function>\n</tool_call>"


QWEN = [
    (qwen(("text", "a b")), "", [("f", {"text": "a b"})], []),
    (qwen(("text", "  two\nlines\n")), "", [("f", {"text": "  two\nlines\n"})], []),
    (qwen(("text", "")), "", [("f", {"text": ""})], []),
    (qwen(), "", [("f", {})], []),
    ("I look.\n\n" + qwen() + "\n" + qwen(), "I look.", [("f", {}), ("f", {})], []),
    ("<tool_call><function=f><parameter=text>a</parameter></function></tool_call>", "", [("f", {"text": "a"})], []),
    # closing tags inside a value do not end it
    (qwen(("text", "x </parameter> y </function> </tool_call> z")), "",
     [("f", {"text": "x </parameter> y </function> </tool_call> z"})], []),
    (qwen(("text", "<tool_call>")), "", [("f", {"text": "<tool_call>"})], []),
    # a missing closing tag does not swallow the next call
    (qwen(("text", "a")).replace("</parameter>", "") + "\n" + qwen(("text", "b")), "",
     [("f", {"text": "b"})], ["malformed"]),
    (qwen(("text", "a"), ("text", "b")), "", [], ["duplicate_key"]),
    (qwen(name=""), "", [], ["missing_name"]),
    (qwen(("", "a")), "", [], ["malformed"]),
    (tagged('{"name": "f", "arguments": {}}'), "", [], ["malformed"]),
    ("<tool_call>\n<function=f>\nwords\n</function>\n</tool_call>", "", [], ["malformed"]),
    ("<tool_call>\n<function=f>\n<parameter=text>\na\n</function>\n</tool_call>", "", [], ["malformed"]),
    ("<tool_call>\n<function=f>\n<parameter=text>\na\n", "", [], ["unclosed"]),
    ("<tool_call>\n<function=f>\n</function>\n", "", [], ["unclosed"]),
    ("<tool_call>\n" + qwen(), "", [("f", {})], ["unclosed"]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "content", "found", "wrong"), QWEN, ids=range(len(QWEN)))
def test_qwen_xml(text: str, content: str, found: list, wrong: list) -> None:
    parsed = parse_text(text, "qwen_xml", tools=TOOLS)
    assert (parsed.message["content"], calls(parsed), kinds(parsed)) == (content, found, wrong)


def glm(*pairs: tuple[str, str], name: str = "f") -> str:
    blocks = "".join(f"<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>\n" for key, value in pairs)
    return f"<tool_call>{name}\n{blocks}</tool_call>"


GLM = [
    (glm(("text", "a b")), "", [("f", {"text": "a b"})], []),
    (glm(("text", " two\nlines ")), "", [("f", {"text": " two\nlines "})], []),
    (glm(), "", [("f", {})], []),
    ("<tool_call>f</tool_call>", "", [("f", {})], []),
    ("hi" + glm() + glm(), "hi", [("f", {}), ("f", {})], []),
    (glm(("text", "x </arg_value> </tool_call y")), "", [("f", {"text": "x </arg_value> </tool_call y"})], []),
    (glm(("text", "a")).replace("</arg_value>", "") + glm(("text", "b")), "", [("f", {"text": "b"})], ["malformed"]),
    (glm(("text", "a"), ("text", "b")), "", [], ["duplicate_key"]),
    (glm(("", "a")), "", [], ["malformed"]),
    (glm(name=""), "", [], ["missing_name"]),
    ("<tool_call>f\nwords</tool_call>", "", [], ["malformed"]),
    ("<tool_call>f\n<arg_key>text</arg_key>\n</tool_call>", "", [], ["malformed"]),
    ("<tool_call>f\n<arg_key>text</arg_key>\n<arg_value>a</tool_call>", "", [], ["malformed"]),
    ("<tool_call>f\n<arg_key>text</arg_key>\n<arg_value>a", "", [], ["unclosed"]),
    ("<tool_call>", "", [], ["unclosed"]),
]


@pytest.mark.parametrize(("text", "content", "found", "wrong"), GLM, ids=range(len(GLM)))
def test_glm(text: str, content: str, found: list, wrong: list) -> None:
    parsed = parse_text(text, "glm", tools=TOOLS)
    assert (parsed.message["content"], calls(parsed), kinds(parsed)) == (content, found, wrong)


@pytest.mark.parametrize(
    ("key", "raw", "value"),
    [
        ("text", "7", "7"),
        ("text", '"7"', '"7"'),
        ("text", "null", "null"),
        ("int", "7", 7),
        ("int", " 7\n", 7),
        ("int", "seven", "seven"),
        ("int", '"7"', "7"),
        ("int", "1" * 5000, "1" * 5000),
        ("num", "7", 7),
        ("num", "7.5", 7.5),
        ("num", "NaN", "NaN"),
        ("flag", "true", True),
        ("flag", "True", True),
        ("flag", "yes", "yes"),
        ("list", "[1, null]", [1, None]),
        ("list", "[1,", "[1,"),
        ("maybe", "null", None),
        ("maybe", "None", None),
        ("maybe", "7", "7"),
        ("either", "7", 7),
        ("either", "7.5", "7.5"),
        ("one", "2", 2),
        ("fixed", "7", "7"),
        ("open", "7", 7),
        ("open", "007", "007"),
        ("open", '{"a": 1}', {"a": 1}),
        ("ref", "7", 7),
        ("unknown", "7", 7),
        ("unknown", "a b", "a b"),
    ],
)
def test_bare_values_are_typed_by_the_schema(key: str, raw: str, value: Any) -> None:
    for form, write in (("glm", glm), ("qwen_xml", qwen)):
        assert calls(parse_text(write((key, raw)), form, tools=TOOLS)) == [("f", {key: value})]


def test_without_tools_bare_values_are_what_they_look_like() -> None:
    assert calls(parse_text(qwen(("text", "7"), ("int", "a")), "qwen_xml")) == [("f", {"text": 7, "int": "a"})]


REASONING = [
    # text, in_reasoning, content, reasoning, calls, kinds
    ("<think>\nabc\n</think>\n\nhi", False, "hi", "abc", [], []),
    ("abc\n</think>\n\n" + OK, True, "", "abc", A, []),
    ("<think>abc</think>hi", True, "hi", "abc", [], []),
    ("<think></think>hi", False, "hi", "", [], []),
    (f"<think>{OK}</think>done", False, "done", OK, [], []),
    (f"<think>\nabc {OK}", False, "", f"abc {OK}", [], ["unclosed_reasoning"]),
    (f"abc {OK}", True, "", f"abc {OK}", [], ["unclosed_reasoning"]),
    ("", True, "", "", [], ["unclosed_reasoning"]),
    ("hi <think>", False, "hi <think>", None, [], []),
    ("hi </think> there", False, "hi </think> there", None, [], []),
    ("<think>a</think>" + tagged("{bad"), False, "", "a", [], ["invalid_json"]),
]


@pytest.mark.parametrize(("text", "open_", "content", "reasoning", "found", "wrong"), REASONING)
def test_reasoning(text: str, open_: bool, content: str, reasoning: str | None, found: list, wrong: list) -> None:
    parsed = parse_text(text, "hermes", in_reasoning=open_)
    assert parsed.message.get("reasoning_content") == reasoning
    assert (parsed.message["content"], calls(parsed), kinds(parsed)) == (content, found, wrong)


def test_the_message_is_an_action_as_it_stands() -> None:
    parsed = parse_text(f"<think>\nhm\n</think>\nhi\n{OK}\n{tagged('{bad')}", "hermes", closed=False)
    assert parsed.message == {
        "role": "assistant",
        "content": "hi",
        "reasoning_content": "hm",
        "tool_calls": [{"id": "call_0", "type": "function", "function": {"name": "f", "arguments": '{"k": "a"}'}}],
        "parse_errors": [
            {
                "type": "invalid_json",
                "raw": "{bad",
                "detail": "Expecting property name enclosed in double quotes at character 1, near 'bad\\n</tool_call>'",
            }
        ],
    }
    assert not parsed.closed
    assert parse_text("hi").message == {"role": "assistant", "content": "hi"}


def test_details_say_what_was_expected_and_what_came() -> None:
    details = {
        tagged(
            '{"name": "f", "parameters": {}}'
        ): """the arguments stand under "arguments", got the keys ['parameters']""",
        tagged('{"function": "f"}'): """a tool call names its function under "name", got the keys ['function']""",
        tagged('{"name": "f", "arguments": [1]}'): '"arguments" is a JSON object, got array',
        tagged("[1]"): "a tool call is a JSON object, got array",
        "<tool_call>{": "expected </tool_call> after the call, got the end of the message",
        tagged('{"a": 1, "a": 2}'): "the key 'a' stands twice in one object",
        tagged('{"a": NaN}'): "NaN is not JSON",
    }
    for text, detail in details.items():
        (error,) = parse_text(text).errors
        assert error["detail"] == detail


def test_an_unknown_format_is_the_callers_mistake() -> None:
    with pytest.raises(ValueError, match="tool_format must be one of"):
        parse_text("x", "hermse")


PIECES = (
    "<tool_call> </tool_call> <think> </think> <function=f> </function> <parameter=k> </parameter> <arg_key> "
    '</arg_key> <arg_value> </arg_value> <|python_tag|> {"name":"f" ,"parameters":{}} '
    '{"name":"f","arguments":{"k":"a"}} ; f " { } \\ [[ 1e999 NaN'
).split()


@settings(max_examples=400, deadline=None)
@given(
    text=st.lists(st.one_of(st.sampled_from([*PIECES, "\n", " "]), st.text(max_size=4)), max_size=24).map("".join),
    form=st.sampled_from(sorted(FORMATS)),
    open_=st.booleans(),
)
def test_anything_can_be_read(text: str, form: str, open_: bool) -> None:
    """Never raises; ids in order; arguments are JSON objects; error kinds from the closed list; valid Unicode."""
    parsed = parse_text(text, form, in_reasoning=open_, tools=TOOLS)
    message = parsed.message
    assert [call["id"] for call in message.get("tool_calls", [])] == [f"call_{k}" for k in range(len(calls(parsed)))]
    assert all(name and isinstance(arguments, dict) for name, arguments in calls(parsed))
    assert set(kinds(parsed)) <= set(ERROR_KINDS)
    assert message["content"] == message["content"].strip()
    assert set(message) <= {"role", "content", "tool_calls", "reasoning_content", "parse_errors"}
    if "\ud800" not in text:
        json.dumps(message, ensure_ascii=False).encode()


plain = st.text(st.characters(codec="utf-8"), max_size=12)
numbers = st.integers(-(10**20), 10**20) | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    st.none() | st.booleans() | numbers | plain,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(plain, inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(arguments=st.lists(st.dictionaries(st.text("abc_", min_size=1, max_size=4), values, max_size=3), max_size=3))
def test_what_is_written_in_json_is_read_back(arguments: list[dict[str, Any]]) -> None:
    for form, joint in (("hermes", "\n"), ("llama", "; ")):
        text = joint.join(write_call(form, "f", each) for each in arguments)
        parsed = parse_text(text, form)
        assert calls(parsed) == [("f", each) for each in arguments]
        assert parsed.errors == []


@settings(max_examples=200, deadline=None)
@given(
    arguments=st.fixed_dictionaries(
        {},
        optional={
            "text": plain.filter(lambda s: "</" not in s),
            "int": st.integers(-(10**20), 10**20),
            "num": st.floats(allow_nan=False, allow_infinity=False),
            "flag": st.booleans(),
            "list": st.lists(values, max_size=2),
        },
    )
)
def test_what_is_written_in_tags_is_read_back(arguments: dict[str, Any]) -> None:
    for form in ("qwen_xml", "glm"):
        parsed = parse_text(write_call(form, "f", arguments), form, tools=TOOLS)
        assert calls(parsed) == [("f", arguments)]
        assert parsed.errors == []


@pytest.mark.parametrize("form", FORMATS)
def test_a_model_that_repeats_itself_costs_little(form: str) -> None:
    """Degenerate samples are common in training: reading them must not grow with their square."""
    loops = {
        "hermes": ['<tool_call>{"name": "f", ', "<tool_call>", '<tool_call>{"name": "f"} ', "</tool_call>", " \n"],
        "qwen_xml": ["<tool_call><function=f><parameter=k>", "<tool_call><function=f></parameter>", "</parameter>"],
        "glm": ["<tool_call>f<arg_key>k</arg_key><arg_value>", "<tool_call>f ", "</arg_value>", "<tool_call> "],
        "llama": ['{"name": "f", "parameters": ', '{"name": "f"}', '{"name": ', "{", " ;"],
    }
    head = {"qwen_xml": "<tool_call><function=f><parameter=k>", "llama": '{"name": "f", '}.get(form, "<tool_call>")
    for piece in loops[form]:
        text = head + piece * (100_000 // len(piece))
        start = time.process_time()
        parse_text(text, form)
        assert time.process_time() - start < 1.0, piece
