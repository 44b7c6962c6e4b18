import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aworld_gym.actions import canonical_json, check_action, final_answer, read_calls
from aworld_gym.errors import ActionError


def calling(arguments, name="f", **extra):
    return {"role": "assistant", "tool_calls": [{"function": {"name": name, "arguments": arguments}, **extra}]}


@pytest.mark.parametrize("arguments", ['{"a": 1}', {"a": 1}])
def test_arguments_come_as_text_or_as_a_dict(arguments):
    (call,) = read_calls(calling(arguments), turn=2)
    assert (call.id, call.name, call.arguments, call.error) == ("call_2_0", "f", {"a": 1}, None)


def test_a_call_keeps_its_id_and_an_empty_text_is_no_arguments():
    for nothing in ("", None):
        check_action(calling(nothing))
        (call,) = read_calls(calling(nothing, id="x9"), turn=0)
        assert (call.id, call.arguments, call.error) == ("x9", {}, None)


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        ('{"a": ', "call_invalid_json"),
        ("{'a': 1}", "call_invalid_json"),
        ('{"a": NaN}', "call_invalid_json"),
        ('{"a": -Infinity}', "call_invalid_json"),
        ("[" * 100_000, "call_invalid_json"),
        ('{"a": ' + "9" * 10_000 + "}", "call_invalid_json"),
        ("[1, 2]", "call_malformed"),
        ("null", "call_malformed"),
        ('"text"', "call_malformed"),
    ],
)
def test_unreadable_arguments_are_the_models_error(arguments, kind):
    (call,) = read_calls(calling(arguments), turn=0)
    assert call.error[0] == kind and "'f'" in call.error[1]


@given(st.text() | st.dictionaries(st.text(), st.floats() | st.none() | st.text()).map(json.dumps))
def test_no_argument_text_raises(text):
    (call,) = read_calls(calling(text), turn=0)
    if call.error is None:
        assert isinstance(call.arguments, dict) and (not text.strip() or repr(json.loads(text)) == repr(call.arguments))
    else:
        assert call.error[0] in ("call_invalid_json", "call_malformed") and not call.arguments


def test_parse_errors_become_calls_after_those_that_parsed():
    action = calling("{}") | {"parse_errors": [{"type": "invalid_json", "raw": "{"}, {"type": "unclosed", "raw": "x"}]}
    calls = read_calls(action, turn=0)
    assert [c.name for c in calls] == ["f", "invalid_call", "invalid_call"]
    assert [c.error and c.error[0] for c in calls] == [None, "call_invalid_json", "call_malformed"]
    assert [c.id for c in calls[1:]] == ["error_0", "error_1"]


@pytest.mark.parametrize(
    "action", [None, "text", 3, {"role": "user", "content": "x"}, {"role": "assistant", "content": 1}]
)
def test_what_is_not_a_message_is_the_callers_mistake(action):
    with pytest.raises(ActionError, match="expected .* got .*"):
        check_action(action)


def test_the_callers_mistake_comes_with_the_way_out():
    class Message:
        def model_dump(self):
            return {}

    for action, hint in (("text", "RawTextAction"), (Message(), r"model_dump\(\)"), (None, "For example")):
        with pytest.raises(ActionError, match=hint):
            check_action(action)


@pytest.mark.parametrize(
    ("content", "answer"),
    [
        (None, None),
        ("", None),
        ("just 42", None),
        ("<answer>42</answer>", "42"),
        ("<answer>41</answer> no: <answer> 42 </answer>", "42"),
        ("<ANSWER>a\nb</ANSWER>", "a\nb"),
        ("thinking\nFINAL ANSWER: 42", "42"),
        ("FINAL ANSWER: 41\nFINAL ANSWER: 42  \n", "42"),
        ("**FINAL ANSWER**: 42", "42"),
        ("**FINAL ANSWER: 42**", "42"),
        ("> FINAL ANSWER: a: b", "a: b"),
        ("FINAL ANSWER:\nFINAL ANSWER: 41\nFINAL ANSWER:", "41"),
        ("<answer>old <answer>42</answer> </answer>", "42"),
        ("</answer><answer>42</answer><answer>never closed", "42"),
        ("FINAL ANSWER: 1\n<answer>2</answer>", "2"),
        ("<think><answer>1</answer></think>It is <answer>2</answer>", "2"),
        ("<think><answer>1</answer></think>I do not know.", None),
        ("<answer>1</answer> is a guess</think>I do not know.", None),
        ("<answer>2</answer><think><answer>1</answer>", "2"),
        ("```\n<answer>1</answer>\n```", None),
        ("```python\nFINAL ANSWER: 1\n```\n<answer>2</answer>", "2"),
        ("<answer>2</answer>\n~~~~\n<answer>1</answer>\n~~~\nFINAL ANSWER: 1", "2"),
        ("````\n```\n<answer>1</answer>\n````\nFINAL ANSWER: 2", "2"),
        ("The tag `<answer>` holds it: <answer>2</answer>", "2"),
        ("the final answer is near", None),
        ("<answer></answer>", ""),
        ([{"type": "text", "text": "<answer>7</answer>"}, {"type": "image_url", "image_url": {"url": "x"}}], "7"),
    ],
)
def test_the_final_answer_of_a_message(content, answer):
    assert final_answer({"role": "assistant", "content": content}) == answer


@given(st.dictionaries(st.text(), st.integers() | st.text()))
def test_canonical_json_ignores_key_order(value):
    assert canonical_json(value) == canonical_json(dict(reversed(value.items())))
    assert json.loads(canonical_json(value)) == value


def test_thousands_of_unreadable_calls_cost_a_few_messages():
    action = {"role": "assistant", "content": "", "parse_errors": [{"type": "unclosed", "raw": "x"}] * 5000}
    calls = read_calls(action, turn=0, most_errors=4)
    assert len(calls) == 4 and "4996 more" in calls[-1].error[1] and "more" not in calls[-2].error[1]
    assert len(read_calls(action | {"parse_errors": action["parse_errors"][:4]}, turn=0, most_errors=4)) == 4


@pytest.mark.parametrize(
    "text",
    [
        "\n" * 200_000,
        "<answer>" * 100_000,
        "</answer>" * 100_000,
        "-\n" * 100_000,
        "FINAL ANSWER: x" + " " * 200_000 + "y",
        "*" * 200_000 + "FINAL ANSWER" + "*" * 200_000,
        "FINAL ANSWER" * 50_000,
        "<answer" * 100_000,
    ],
    ids=lambda text: text[:12],
)
def test_a_degenerate_sample_is_read_in_no_time(text):
    began = time.process_time()
    final_answer({"role": "assistant", "content": text})
    assert time.process_time() - began < 1.0  # quadratic: minutes


@pytest.mark.parametrize(
    "extra",
    [
        {"sampled": "abc"},
        {"sampled": {"token_ids": 5}},
        {"parse_errors": ["x"]},
        {"parse_errors": {"type": "unclosed"}},
        {"note": object()},
        {"tool_calls": [{"function": {"name": "f", "arguments": {1: 2, "a": 3}}}]},
        {"tool_calls": [{"function": {"name": "f", "arguments": {"a": b"x"}}}]},
        {"tool_calls": [{"function": {"name": "f", "arguments": {"a": float("nan")}}}]},
    ],
)
def test_what_could_not_be_recorded_is_the_callers_mistake(extra):
    with pytest.raises(ActionError, match="expected"):
        check_action({"role": "assistant", "content": "x", **extra})
