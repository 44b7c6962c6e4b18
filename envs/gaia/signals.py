"""Tables of the signals in recordings: Morse code, telephone keys, the pitches of counted tones.

Shared by what writes recordings (:mod:`envs.gaia.render`) and what reads them (:mod:`envs.gaia.tools.audio`).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

MORSE: Mapping[str, str] = MappingProxyType(
    dict(
        zip(
            "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.,?/=-",
            (
                ".- -... -.-. -.. . ..-. --. .... .. .--- -.- .-.. -- -. --- .--. --.- .-. ... - ..- ...- .-- -..- "
                "-.-- --.. ----- .---- ..--- ...-- ....- ..... -.... --... ---.. ----. "
                ".-.-.- --..-- ..--.. -..-. -...- -....-"
            ).split(),
            strict=True,
        )
    )
)
"""Recommendation ITU-R M.1677-1: a dash is three dots long; one, three and seven dots part signals, letters, words."""
SLOWEST_WPM, FASTEST_WPM = 10, 25
"""Words a minute that are written, and assumed of a recording that has dots only or dashes only."""
DOT_S_WPM = 1.2
"""Seconds of a dot at one word a minute, which is fifty dots (``PARIS``)."""
MORSE_HZ = 600

ROWS_HZ, COLUMNS_HZ = (697, 770, 852, 941), (1209, 1336, 1477, 1633)
DTMF: Mapping[str, tuple[int, int]] = MappingProxyType(
    {key: (ROWS_HZ[i // 4], COLUMNS_HZ[i % 4]) for i, key in enumerate("123A456B789C*0#D")}
)
"""Recommendation ITU-T Q.23: the two tones of each key, in hertz."""

PITCHES: Mapping[str, int] = MappingProxyType({"low": 400, "middle": 800, "high": 1600})
"""Pitches of counted tones, in hertz."""
