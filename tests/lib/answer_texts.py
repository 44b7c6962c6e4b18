"""Texts that a model may hand in as its answer, and the values of each type that an answer can have."""

from __future__ import annotations

import datetime

from hypothesis import strategies as st

ANY = st.text(st.characters(exclude_categories=()), max_size=30)
"""Any text, lone surrogates included: a model's JSON can carry them."""
_DIGITS = "inf nan infinity 1_0 _ 1e5 ٣ ² ½ 0x1 17 - + . , ; $ %".split()
_LETTERS = "é e\u0301 ß İ K \u212a ’ ' ! None a B and ( ] \\ ^".split()
PIECES = st.lists(st.sampled_from([*_DIGITS, *_LETTERS, *" \t\u00a0\u2003\x00"]), max_size=8).map("".join)
TEXTS = ANY | PIECES


def number_of(text):
    """What Python's float makes of it; None where it makes nothing."""
    try:
        return float(text)
    except ValueError:
        return None


INTS = st.integers(-(10**9), 10**9)
FINITE = st.decimals(-(10**9), 10**9, allow_nan=False, allow_infinity=False, places=4).map(lambda d: f"{d:f}")
ITEMS = {
    "int": st.integers(-9999, 9999).map(str),
    "float": st.decimals(-99, 99, allow_nan=False, allow_infinity=False, places=2).map(lambda d: f"{d:f}"),
    "string": st.text("abcdefgh", min_size=1, max_size=5).filter(lambda w: w != "and"),
    "code": st.from_regex(r"[A-Z]{2}-[0-9]{3}", fullmatch=True),
    "date": st.dates(datetime.date(1000, 1, 1)).map(str),
}
