"""Tools that no task needs: what they compute, that they touch nothing, and how an env offers them."""

import ast
import datetime as dt
import importlib
import json
import sys

import gymnasium as gym
import pytest
from gaia_tools import Session
from hypothesis import given
from hypothesis import strategies as st

import aworld_gym  # noqa: F401
from aworld_gym.errors import ConfigError
from aworld_gym.toolchain import compat
from envs.gaia import distractors
from envs.gaia.distractors import measures, numbers, texts
from envs.gaia.tools import NAMES
from envs.gaia.tools.base import ToolFault

CASES = [
    ("convert_base", {"number": "-ff", "from_base": 16, "to_base": 2}, "-11111111"),
    ("to_roman_numeral", {"number": 1994}, "MCMXCIV"),
    ("from_roman_numeral", {"numeral": "mmxxvi"}, "2026"),
    ("factorize_integer", {"number": 360}, "2^3 * 3^2 * 5"),
    ("common_divisor_and_multiple", {"numbers": [12, 18]}, "gcd 6, lcm 36"),
    ("decimal_to_fraction", {"number": "-0.125"}, "-1/8"),
    ("number_in_words", {"number": 1000021}, "one million twenty-one"),
    ("count_combinations", {"total": 5, "chosen": 2}, "10"),
    ("scientific_notation", {"number": "123456", "digits": 3}, "1.23e+5"),
    ("check_digit", {"number": "0-306-40615-2", "kind": "isbn10"}, "valid"),
    ("loan_payment", {"amount": 1200, "yearly_rate_percent": 0, "months": 12}, "100.00 a month, 1200.00 in all"),
    ("split_bill", {"amount": 90, "people": 3, "tip_percent": 10}, "33.00 each, 99.00 in all"),
    ("text_statistics", {"text": "One two. Three!"}, "words 3, sentences 2, lines 1, mean word length 3.67"),
    ("change_case", {"text": "someTextHere", "case": "snake"}, "some_text_here"),
    ("hash_text", {"text": "abc", "algorithm": "md5"}, "900150983cd24fb0d6963f7d28e17f72"),
    ("encode_base64", {"text": "hé"}, "aMOp"),
    ("decode_base64", {"text": "aMOp"}, "hé"),
    ("url_encode", {"text": "a b&c"}, "a%20b%26c"),
    ("caesar_shift", {"text": "Hello, Z!", "shift": 3}, "Khoor, C!"),
    ("are_anagrams", {"first": "Listen", "second": "Silent"}, "yes"),
    ("edit_distance", {"first": "kitten", "second": "sitting"}, "3"),
    ("soundex_code", {"name": "Ashcraft"}, "A261"),
    ("spell_out", {"word": "Abc"}, "Alfa Bravo Charlie"),
    ("make_slug", {"text": "Über die Brücke!"}, "uber-die-brucke"),
    ("wrap_text", {"text": "aaaa bbbb cccc", "width": 10}, "aaaa bbbb\ncccc"),
    ("is_palindrome", {"text": "A man, a plan, a canal: Panama"}, "yes"),
    ("code_points", {"characters": "é"}, "U+00E9 Ll"),
    ("convert_length", {"value": 1, "from_unit": "mi", "to_unit": "km"}, "1.609344 km"),
    ("convert_mass", {"value": 2, "from_unit": "lb", "to_unit": "g"}, "907.18474 g"),
    ("convert_volume", {"value": 1, "from_unit": "gal", "to_unit": "l"}, "3.785411784 l"),
    ("convert_temperature", {"value": 212, "from_unit": "F", "to_unit": "C"}, "100.00 C"),
    ("circle_measures", {"radius": 1}, "circumference 6.28319, area 3.14159"),
    ("sphere_measures", {"radius": 1}, "surface 12.5664, volume 4.18879"),
    ("triangle_measures", {"a": 3, "b": 4, "c": 5}, "area 6, perimeter 12, angles 36.87 53.13 90.00"),
    ("polygon_angles", {"sides": 6}, "inner angle 120, outer angle 60, diagonals 9"),
    ("hex_to_rgb", {"color": "#1E90FF"}, "rgb(30, 144, 255), hsl(210, 100%, 56%)"),
    ("mix_colors", {"first": "#000000", "second": "FFFFFF"}, "#808080"),
    ("contrast_ratio", {"first": "#000000", "second": "#ffffff"}, "21.00"),
    ("month_calendar", {"year": 2026, "month": 2}, "23 24 25 26 27 28"),
    ("iso_week", {"year": 2021, "month": 1, "day": 3}, "2020-W53-7"),
    ("easter_sunday", {"year": 2024}, "2024-03-31"),
    ("zodiac_sign", {"month": 12, "day": 25}, "Capricorn"),
]
REFUSED = [
    ("convert_base", {"number": "12", "from_base": 2, "to_base": 10}, "no whole number in base 2"),
    ("from_roman_numeral", {"numeral": "IIII"}, "no Roman numeral"),
    ("decimal_to_fraction", {"number": "1e999"}, "no decimal number"),
    ("scientific_notation", {"number": "NaN"}, "no number"),
    ("check_digit", {"number": "12a"}, "more than digits"),
    ("decode_base64", {"text": "a"}, "no base64"),
    ("soundex_code", {"name": "1"}, "at least one letter"),
    ("convert_temperature", {"value": -300, "from_unit": "C", "to_unit": "K"}, "absolute zero"),
    ("triangle_measures", {"a": 1, "b": 2, "c": 3}, "no triangle"),
    ("iso_week", {"year": 2023, "month": 2, "day": 29}, "no day 29"),
    ("zodiac_sign", {"month": 2, "day": 30}, "no day 30"),
    ("mix_colors", {"first": "red", "second": "#ffffff"}, "pattern|match"),
]


async def served(names):
    return compat.in_process(distractors.make_server(None, names=names))


async def test_each_does_what_it_says():
    assert {name for name, _, _ in CASES} == set(distractors.tools()) and len(CASES) >= 24
    async with await served(list(distractors.tools())) as client:
        session = Session(client)
        for name, arguments, expected in CASES:
            assert expected in await session.ok(name, **arguments), name
        for name, arguments, message in REFUSED:
            told = await session(name, **arguments)
            assert told.failed and any(part in told.text for part in message.split("|")), (name, told.text)


async def test_schemas_are_closed_described_and_small():
    async with await served(list(distractors.tools())) as client:
        tools = await Session(client).tools()
    assert list(tools) == list(distractors.tools())
    assert not set(tools) & set(NAMES)
    for name, tool in tools.items():
        schema = tool["inputSchema"]
        assert schema["additionalProperties"] is False and "title" not in schema, name
        assert 15 < len(tool["description"]) < 120 and "outputSchema" not in tool
        assert tool["annotations"]["readOnlyHint"] is True and tool["annotations"]["openWorldHint"] is False
        for argument, inner in schema["properties"].items():
            assert argument.isidentifier() and "title" not in inner
            bounded = {"maxLength", "maximum", "enum", "pattern", "maxItems"} & set(inner) or inner["type"] == "boolean"
            assert bounded, f"{name}.{argument} has no bound"
    assert len(json.dumps(list(tools.values()))) / len(tools) < 600


def test_none_touches_a_file_a_process_or_the_network():
    """Every call of every tool, with the interpreter's own alarm on."""
    functions = {name: tool.function for name, tool in distractors.tools().items()}
    for name, arguments, _ in CASES:  # what is imported late is imported now
        functions[name](**arguments)
    seen: list[str] = []
    watching = True

    def alarm(event, args):
        if watching and event.split(".")[0] in ("open", "os", "socket", "subprocess", "import", "ctypes", "shutil"):
            seen.append(event)

    sys.addaudithook(alarm)
    try:
        for name, arguments, _ in CASES:
            functions[name](**arguments)
    finally:
        watching = False
    assert seen == []


def test_none_knows_the_world_or_a_clock():
    for module in (numbers, texts, measures):
        source = open(importlib.import_module(module.__name__).__file__, encoding="utf-8").read()
        imported = {
            alias.name for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Import) for alias in node.names
        } | {node.module for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom)}
        known = {"envs.gaia.tools.base", "envs.gaia.mcp_tools"}
        assert not {name for name in imported if name.startswith("envs.gaia")} - known
        assert not imported & {"random", "time", "os", "pathlib", "uuid", "secrets", "socket"}
        assert "now(" not in source and "today(" not in source


@given(st.integers(-(10**30), 10**30), st.integers(2, 36))
def test_bases_lead_back(number, base):
    assert int(numbers.convert_base(str(number), 10, base), base) == number


@given(st.integers(1, 3999))
def test_roman_numerals_lead_back(number):
    assert numbers.from_roman_numeral(numbers.to_roman_numeral(number)) == str(number)


@given(st.text(max_size=60), st.integers(-25, 25))
def test_ciphers_and_codes_lead_back(text, shift):
    assert texts.caesar_shift(texts.caesar_shift(text, shift), -shift) == text
    try:
        text.encode()
    except UnicodeEncodeError:
        return
    assert texts.decode_base64(texts.encode_base64(text)) == text
    assert texts.url_encode(texts.url_encode(text), decode=True) == text


@given(st.text(max_size=12), st.text(max_size=12), st.text(max_size=12))
def test_edit_distance_is_a_distance(a, b, c):
    def distance(x, y):
        return int(texts.edit_distance(x, y))

    assert distance(a, b) == distance(b, a) and (distance(a, b) == 0) == (a == b)
    assert distance(a, c) <= distance(a, b) + distance(b, c)


@given(st.integers(1583, 9999))
def test_easter_is_a_sunday_in_spring(year):
    found = dt.date.fromisoformat(measures.easter_sunday(year))
    assert found.weekday() == 6 and dt.date(year, 3, 22) <= found <= dt.date(year, 4, 25)


def test_more_of_them_are_the_same_and_some_more():
    assert distractors.chosen(0) == [] and len(distractors.chosen(24)) == 24
    assert distractors.chosen(24)[:8] == distractors.chosen(8)
    assert distractors.chosen(8) == [
        "common_divisor_and_multiple",
        "iso_week",
        "contrast_ratio",
        "hex_to_rgb",
        "loan_payment",
        "caesar_shift",
        "convert_temperature",
        "scientific_notation",
    ]


@pytest.mark.parametrize("count", [-1, 1000, True, "3", 2.0])
def test_a_number_that_cannot_be_is_told(count):
    with pytest.raises(ConfigError, match="distractor_tools must be a number from 0 to"):
        gym.make("AWorld/Gaia-v0", distractor_tools=count)


def test_an_env_offers_them_beside_its_own():
    env = gym.make("AWorld/Gaia-v0", distractor_tools=5)
    _, info = env.reset(seed=3)
    offered = [tool["function"]["name"] for tool in info["tools"]]
    assert offered == [*NAMES, *distractors.chosen(5)]
    call = {"id": "a", "type": "function", "function": {"name": "loan_payment", "arguments": json.dumps(CASES[10][1])}}
    obs, _, _, _, info = env.step({"role": "assistant", "content": None, "tool_calls": [call]})
    assert "100.00 a month" in str(obs[0]["content"]) and info["tool_errors"] == {}
    env.close()


def test_they_come_on_top_of_chosen_tools_and_survive_the_spec():
    spec = gym.make("AWorld/Gaia-v0", tools=["calculate", "submit_answer"], distractor_tools=2).spec
    env = gym.make(gym.envs.registration.EnvSpec.from_json(spec.to_json()))
    _, info = env.reset(seed=3)
    offered = [tool["function"]["name"] for tool in info["tools"]]
    assert offered == ["calculate", "submit_answer", *distractors.chosen(2)]
    env.close()


def test_unknown_names_are_told():
    with pytest.raises(ConfigError, match="Did you mean 'iso_week'"):
        distractors.make_server(None, names=["iso_weak"])
    with pytest.raises(ToolFault):
        numbers.from_roman_numeral("")
