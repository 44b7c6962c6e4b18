"""Recordings: tones in 16-bit samples, one channel."""

from __future__ import annotations

import io
import math
import wave
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from envs.gaia import signals
from envs.gaia.render.contents import Beeps, Dtmf, Morse

RATE = 8000
"""Samples a second: a telephone's."""
_LOUD = 12_000
_LEAD_S = 0.2
"""Silence before and after."""
_KEY_S, _KEY_GAP_S = 0.08, 0.06
BEEP_S, BEEP_GAP_S, GROUP_GAP_S = 0.4, 0.3, 0.9
"""A counted tone is longer than any Morse signal within the speeds that are written."""

Samples = np.ndarray[Any, np.dtype[np.int16]]


def morse(content: Morse) -> bytes:
    """Letters and words parted as the recommendation has it."""
    dot = round(RATE * signals.DOT_S_WPM / content.wpm)
    pieces: list[Samples] = []
    for word in content.text.upper().split(" "):
        for letter in word:
            for mark in signals.MORSE[letter]:
                pieces += [_tone((signals.MORSE_HZ,), dot * (3 if mark == "-" else 1)), _pause(dot)]
            pieces.append(_pause(2 * dot))
        pieces.append(_pause(4 * dot))
    return _wav(pieces)


def dtmf(content: Dtmf) -> bytes:
    """One key after the other, in equal time."""
    pieces: list[Samples] = []
    for key in content.digits:
        pieces += [_tone(signals.DTMF[key], _samples(_KEY_S)), _pause(_samples(_KEY_GAP_S))]
    return _wav(pieces)


def beeps(content: Beeps) -> bytes:
    """Groups of equal tones; the pause between two groups is three times as long as within one."""
    pieces: list[Samples] = []
    for pitch, count in content.notes:
        for _ in range(count):
            pieces += [_tone((signals.PITCHES[pitch],), _samples(BEEP_S)), _pause(_samples(BEEP_GAP_S))]
        pieces.append(_pause(_samples(GROUP_GAP_S - BEEP_GAP_S)))
    return _wav(pieces)


def _samples(seconds: float) -> int:
    return round(seconds * RATE)


def _pause(count: int) -> Samples:
    return np.zeros(count, np.int16)


def _tone(hertz: Sequence[int], count: int) -> Samples:
    """``count`` samples of one or more tones, together as loud as one."""
    at = np.arange(count)
    table = _sine(_LOUD // len(hertz))
    return sum((table[at * tone % RATE] for tone in hertz), np.zeros(count, np.int16))


@lru_cache(maxsize=2)
def _sine(loud: int) -> Samples:
    """One second of 1 Hz: every whole frequency steps through it, to the same sample on every machine."""
    return np.array([round(loud * math.sin(2 * math.pi * i / RATE)) for i in range(RATE)], np.int16)


def _wav(pieces: Iterable[Samples]) -> bytes:
    lead = _pause(_samples(_LEAD_S))
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes(np.concatenate([lead, *pieces, lead]).astype("<i2").tobytes())
    return out.getvalue()
