"""The strict scorer takes a value in every format that people write it in, and no other value in any."""

import datetime
import re
import unicodedata

from answer_texts import FINITE, INTS, ITEMS
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from aworld_gym import answers
from aworld_gym.errors import ConfigError
from aworld_gym.scorers import Truth, score

INTEGERS = st.integers(-(10**15), 10**15)


def formats(value: int) -> list[str]:
    return [
        str(value),
        f"{value:,}",
        f"{value:,}".replace(",", " "),
        f"{value:,}".replace(",", "\u202f"),
        f"{value}.0",
        f" {value}\n",
        f"{value}.",
        f"**{value}**",
        f"{value:,}".replace("-", "−"),
        f"{value} km",
        f"Answer: {value}km",
    ]


@settings(max_examples=150, deadline=None)
@given(INTEGERS, INTEGERS)
def test_whole_numbers_in_every_format_and_no_other_number(value, other):
    spec = {"text": str(value), "type": "int", "unit": "km"}
    assert all(score(spec, written).value == 1.0 for written in formats(value))
    if other != value:
        assert all(score(spec, written).value == 0.0 for written in formats(other))


@settings(max_examples=150, deadline=None)
@given(FINITE, FINITE)
def test_decimals_and_no_other_decimal(value, other):
    spec = {"text": value, "type": "float"}
    assert score(spec, value).value == 1.0 and score(spec, value + "0").value == 1.0
    close = abs(float(value) - float(other)) <= 1.1e-9 * abs(float(value))
    assert score(spec, other).value == 0.0 or close


@settings(max_examples=150, deadline=None)
@given(st.dates(), st.dates())
def test_dates_in_every_format_and_no_other_date(day, other):
    spec = {"text": day.isoformat(), "type": "date"}

    def written(d):
        named = f"{d:%B} {d.day}, {d.year:04}", f"{d.day} {d:%b} {d.year:04}", f"{d:%A}, {d.day} {d:%B} {d.year:04}"
        return [d.isoformat(), f"{d.year:04}/{d.month}/{d.day}", *named]

    assert all(score(spec, w).value == 1.0 for w in written(day))
    if other != day:
        assert all(score(spec, w).value == 0.0 for w in written(other))


WRAPPED = [
    mark.format(text)
    for mark in (
        "{}",
        "**{}**",
        "*{}*",
        "__{}__",
        "_{}_",
        "`{}`",
        "'{}'",
        '"{}"',
        "“{}”",
        "({})",
        "[{}]",
        "${}$",
        "**`{}`**",
    )
    for text in ("{}", "{}.")
]
WRAPPED += [f"{wrapped}." for wrapped in WRAPPED if not wrapped.endswith(".") and "{}." not in wrapped]
KINDS = {
    "int": st.integers(-(10**6), 10**6).map(str),
    "float": FINITE,
    "string": st.text("abcdefgh ", min_size=1, max_size=9).filter(str.strip),
    "code": st.from_regex(r"[A-Z]{1,3}-?[0-9]{1,4}", fullmatch=True),
    "date": st.dates(min_value=datetime.date(1000, 1, 1)).map(str),
}


@settings(max_examples=150, deadline=None)
@given(st.data(), st.sampled_from(sorted(KINDS)))
def test_wrapping_changes_no_verdict_of_any_type(data, kind):
    """Every wrapper, with a full stop in it, after it or none, around the right answer and around another."""
    truth, other = data.draw(KINDS[kind]), data.draw(KINDS[kind])
    spec = Truth(truth, kind)
    same = spec.judge(other)[0]
    for wrapped in WRAPPED:
        assert spec.judge(wrapped.format(truth)) == (True, "right"), wrapped
        assert spec.judge(wrapped.format(other))[0] == same, wrapped


@settings(max_examples=400, deadline=None)
@given(st.integers(-200, 200), st.text("0123456789/.,-+()[]*_$eE x^²¹½１⁄' ", max_size=8))
def test_what_scores_as_a_whole_number_has_its_value(value, answer):
    """Anything taken for an integer is that integer to Python, once marks around it are gone: no sum, no guess."""
    if score({"text": str(value), "type": "int"}, answer).value:
        plain = answers.tidy(answer).replace("'", "").replace(",", "").replace("_", "").replace(" ", "")
        plain = re.sub(r"x10\^\(?([-+]?[0-9]+)\)?", r"e\1", plain)
        assert float(plain) == value and "/" not in plain


SHORT_WORDS = st.lists(
    st.text(st.sampled_from("abcdefgh"), min_size=1, max_size=5).filter(lambda w: w != "and"), min_size=1, max_size=6
)


@settings(max_examples=150, deadline=None)
@given(SHORT_WORDS, st.randoms(use_true_random=False))
def test_lists_in_every_format_and_only_the_right_order(words, rng):
    spec = {"text": ", ".join(words), "type": "list"}
    shuffled = rng.sample(words, len(words))
    for joined in (", ".join, ",".join, "; ".join, "\n".join, "\n- ".join):
        assert score(spec, joined(words)).value == 1.0
        assert score(spec, joined(shuffled)).value == float(shuffled == words)
        assert score({**spec, "ordered": False}, joined(shuffled)).value == 1.0
        assert score({**spec, "ordered": False}, joined([*words, words[0]])).value == 0.0


@settings(max_examples=300, deadline=None)
@given(st.text(min_size=1, max_size=30).filter(lambda t: t.strip()))
def test_a_text_is_itself_under_strict(truth):
    for kind in ("string", "code"):
        try:
            spec = Truth(truth, kind)
        except ConfigError:
            continue
        right, reason = spec.judge(truth)
        assert right, reason


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 10**6), st.floats(0, 1e6))
def test_tolerance_is_a_closed_interval(value, step, tolerance):
    spec = {"text": str(value), "type": "float", "tolerance": tolerance}
    assert score(spec, str(value + step)).value == float(step <= tolerance or step <= 1e-9 * value)


UNIT_NAMES = [(k, name) for k, names in enumerate(answers.UNITS) for name in sorted(names)]


@settings(max_examples=80, deadline=None)
@given(INTS, st.sampled_from(UNIT_NAMES), st.sampled_from(UNIT_NAMES), st.data())
def test_a_unit_by_any_of_its_names_and_by_no_other(value, asked, other, data):
    shared = [name for _, name in UNIT_NAMES if [n for _, n in UNIT_NAMES].count(name) > 1]
    assume(asked[1] not in shared and other[1] not in shared)
    spec = {"text": str(value), "type": "int", "unit": asked[1]}
    written = data.draw(st.sampled_from([f"{value} {other[1]}", f"{value:,} {other[1]}", f"{value}{other[1]}"]))
    written = data.draw(st.sampled_from([written, written.upper()]))
    same = asked[0] == other[0]
    assert score(spec, written).value == float(same), (spec, written)


@settings(max_examples=80, deadline=None)
@given(st.decimals(-(10**7), 10**7, allow_nan=False, allow_infinity=False, places=3), st.integers(1, 10**6))
def test_a_float_in_every_rendering_and_no_neighbour(value, step):
    plain = f"{value:f}"
    spec = {"text": plain, "type": "float", "unit": "kg"}
    renderings = {
        plain,
        f"{plain}00",
        f"{value:,f}",
        f"{value:,f}".replace(",", " "),
        f"{value:e}",
        f"{value:E}",
        plain.replace("-", "\u2212"),
        f"{plain} kg",
        f"{plain}\u00a0Kilograms.",
        f"Answer: {plain}",
    }
    if value > 0:
        renderings |= {f"+{plain}"}
    for written in renderings:
        assert score(spec, written).value == 1.0, written
    for other in (f"{value + step:f}", f"{value - step:f}"):
        assert score(spec, other).value == 0.0, other
    assert score(spec, f"{plain} g").value == 0.0


CODES = st.from_regex(r"[A-Z0-9]{1,4}([-/.:][A-Z0-9]{1,4}){0,2}", fullmatch=True)


@settings(max_examples=80, deadline=None)
@given(CODES, CODES, st.booleans())
def test_a_code_is_itself_and_no_other_code(truth, other, case):
    spec = {"text": truth, "type": "code", "case": case}
    assert score(spec, truth).value == 1.0 and score(spec, f" `{truth}`. ").value == 1.0
    assert score(spec, truth.lower()).value == float(not case or truth.lower() == truth)
    assert score(spec, other).value == float(other == truth)
    for near in (
        f"0{truth}",
        truth.lstrip("0"),
        re.sub("[-/.:]", "", truth),
        truth.replace("-", " "),
        truth[:-1],
        truth * 2,
    ):
        if near.strip() and near != truth and near != f"{truth}.":
            assert score(spec, near).value == 0.0, near


LATIN = st.text("abcdefghijklmnop", min_size=1, max_size=7)
WORDS = st.lists(st.one_of(LATIN, LATIN.map(lambda w: f"{w}é"), LATIN.map(str.title)), min_size=1, max_size=5)


def unaccented(text):
    return "".join(c for c in unicodedata.normalize("NFD", text) if not unicodedata.combining(c))


@settings(max_examples=80, deadline=None)
@given(WORDS, LATIN, st.data())
def test_a_text_in_every_rendering_and_no_other_words(words, extra, data):
    assume("and" not in [w.lower() for w in words] and "answer" not in words)
    truth = " ".join(words)
    spec = {"text": truth, "type": "string"}
    for written in (
        truth.upper(),
        truth.lower(),
        unicodedata.normalize("NFD", truth),
        unaccented(truth),
        "  ".join(words),
        "\u00a0".join(words),
        f"{truth}.",
        f"\u201c{truth}\u201d",
        f"**{truth}**!",
        f"Final answer: {truth}",
        "\u200b".join(truth),
        truth.replace(" ", "-"),
        ", ".join(words),
    ):
        assert score(spec, written).value == 1.0, written
    place = data.draw(st.integers(0, len(words)))
    others = [
        [*words[:place], extra, *words[place:]],
        words[1:],
        [*words[:-1], words[-1] + "q"],
        [*words[1:], words[0]],
        ["".join(words), "z"],
    ]
    for other in others:
        if [unaccented(w).lower() for w in other] != [unaccented(w).lower() for w in words]:
            assert score(spec, " ".join(other)).value == 0.0, other


@settings(max_examples=80, deadline=None)
@given(st.dates(datetime.date(1000, 1, 1)), st.dates(datetime.date(1000, 1, 1)))
def test_months_and_years_in_every_rendering_and_no_other(day, other):
    month, year = {"text": f"{day:%Y-%m}", "type": "date"}, {"text": str(day.year), "type": "date"}

    def of_month(d):
        return [f"{d:%Y-%m}", f"{d:%B} {d.year}", f"{d:%b}. {d.year}", f"{d.month}/{d.year}", f"{d.year}/{d.month}"]

    for written in of_month(day):
        assert score(month, written).value == 1.0, written
    for written in of_month(other):
        assert score(month, written).value == float((day.year, day.month) == (other.year, other.month)), written
        assert score(year, written).value == 0.0
    assert score(year, str(other.year)).value == float(day.year == other.year)
    assert score(month, day.isoformat()).value == 0.0, "a day was not asked for"
    assert score({"text": day.isoformat(), "type": "date"}, f"{day:%Y-%m}").value == 0.0


SEPARATORS = (", ", "; ", "\n", "\n- ", " , ")


@settings(max_examples=80, deadline=None)
@given(st.sampled_from(sorted(ITEMS)), st.booleans(), st.data())
def test_a_list_of_any_type_in_every_rendering_and_no_other_list(kind, ordered, data):
    items = data.draw(st.lists(ITEMS[kind], min_size=2, max_size=5))
    spec = {"values": items, "type": "list", "items": kind, "ordered": ordered}
    truth = Truth.of(spec)
    shuffled = data.draw(st.permutations(items))
    other = data.draw(ITEMS[kind])

    def same(a, b):
        values = [[truth._item(x)._read(x) for x in some] for some in (a, b)]
        return values[0] == values[1] if ordered else sorted(values[0]) == sorted(values[1])

    for separator in SEPARATORS:
        assert truth.judge(separator.join(items)) == (True, "right")
        assert truth.judge(f"[{separator.join(items)}]")[0] or "\n" in separator
        assert truth.judge(separator.join(shuffled))[0] == same(shuffled, items)
        replaced = [other, *items[1:]]
        assert truth.judge(separator.join(replaced))[0] == same(replaced, items)
        for wrong in (items[1:], [*items, items[0]], [*items, other]):
            assert not truth.judge(separator.join(wrong))[0]
    assert not truth.judge("; ".join([", ".join(items), ", ".join(shuffled)]))[0], "no two answers in one"
    twice = Truth.of({**spec, "values": [items[0], *items]})
    assert twice.judge("; ".join([*items, items[-1]]))[0] == same([items[0], *items], [*items, items[-1]]), (
        "how often counts"
    )
