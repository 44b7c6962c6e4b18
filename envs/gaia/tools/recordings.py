"""What clean recordings of signals say: Morse code, telephone keys, counted tones.

A recording is cut where it falls silent; each piece is a signal if it is made of one or two steady tones. What is
anything else (speech, music, noise) is refused rather than guessed at. Times are in seconds, pitches in hertz.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from envs.gaia import signals
from envs.gaia.tools.arrays import runs

WINDOW_S = 0.008
"""Over which loudness is averaged; a signal begins and ends where half of it is in."""
MAX_SIGNALS = 5000
_FAINT = 0.003
"""Of full scale: a recording that is nowhere louder is silent."""
_PURE = 0.85
"""Share of a signal's energy that lies in its one or two tones."""
_KEY_TOLERANCE = 0.02
"""ITU-T Q.24 takes a key's tone within 1.5 % and refuses it beyond 3.5 %."""
_TONE_TOLERANCE = 0.03
_FFT = 8192

Samples = np.ndarray[Any, np.dtype[np.float64]]


class NoSignal(Exception):
    """The recording is none of the signals that are known; the text says what it seems to be."""


@dataclass(frozen=True)
class Tone:
    """A stretch of sound between two silences."""

    start: float
    end: float
    hertz: tuple[float, ...]
    """One or two pitches, lower first."""

    @property
    def length(self) -> float:
        """Seconds."""
        return self.end - self.start


def describe(samples: Samples, rate: int) -> list[str]:
    """What a recording says, as lines of text.

    Args:
        samples: one channel, full scale is 1.
        rate: samples a second.

    Raises:
        NoSignal: it is silent, or made of anything but steady tones.
    """
    tones = find_tones(samples, rate)
    pairs = [len(tone.hertz) == 2 for tone in tones]
    if all(pairs):
        return _keys(tones)
    if any(pairs):
        raise NoSignal("a mix of single tones and chords")
    if (text := morse_text(tones)) is not None:
        speed, letters = text
        return [f"kind: Morse code at {tones[0].hertz[0]:.0f} Hz, about {speed:.0f} words a minute", f"text: {letters}"]
    return _counted(tones)


def find_tones(samples: Samples, rate: int) -> list[Tone]:
    """The signals of a recording in order.

    Raises:
        NoSignal: it is silent, or holds sound that is no steady tone.
    """
    power = _loudness(samples, max(1, round(WINDOW_S * rate)))
    loudest = float(power.max(initial=0.0))
    if loudest < _FAINT**2:
        raise NoSignal("silence")
    level = float(np.median(power[power > 0.1 * loudest]))
    found = runs(power > level / 2)
    if len(found) > MAX_SIGNALS:
        raise NoSignal(f"noise: the sound breaks off over {MAX_SIGNALS:,} times")
    return [Tone(a / rate, b / rate, _pitches(samples[a:b], rate)) for a, b in found]


def morse_text(tones: Sequence[Tone]) -> tuple[float, str] | None:
    """Speed in words a minute and text of signals in Morse code; None where their lengths or pauses are not of it.

    Signals of one length only are dots or dashes by how long they are, within the speeds of :mod:`envs.gaia.signals`.
    """
    pitch = tones[0].hertz[0]
    if any(abs(tone.hertz[0] - pitch) > _TONE_TOLERANCE * pitch for tone in tones):
        return None
    lengths = [tone.length for tone in tones]
    dot = _dot(lengths)
    if dot is None:
        return None
    marks = [_multiple(length, dot, (1, 3)) for length in lengths]
    pauses = [_multiple(b.start - a.end, dot, (1, 3, 7)) for a, b in itertools.pairwise(tones)]
    if None in marks or None in pauses:
        return None
    signs = {signs: letter for letter, signs in signals.MORSE.items()}
    out, letter = [], ""
    for mark, pause in zip(marks, [*pauses, 7], strict=True):
        letter += "-" if mark == 3 else "."
        if pause != 1:
            out.append(signs.get(letter, f"[{letter}]"))
            out.append(" " if pause == 7 else "")
            letter = ""
    return signals.DOT_S_WPM / dot, "".join(out).rstrip(" ")


def _dot(lengths: Sequence[float]) -> float | None:
    """How long a dot is; None where no length fits."""
    shortest, longest = min(lengths), max(lengths)
    if longest > 2 * shortest:  # both dots and dashes
        dots = [length for length in lengths if length < (shortest + longest) / 2]
        return sum(dots) / len(dots)
    mean = sum(lengths) / len(lengths)
    slowest, fastest = (signals.DOT_S_WPM / wpm for wpm in (signals.SLOWEST_WPM, signals.FASTEST_WPM))
    for length in (mean, mean / 3):
        if 0.93 * fastest <= length <= 1.07 * slowest:
            return length
    return None


def _multiple(length: float, unit: float, allowed: Sequence[int]) -> int | None:
    """Which multiple of ``unit`` it is, within a quarter; None where it is none of those allowed.

    A pause that is longer than the longest of them counts as that one.
    """
    for times in allowed:
        if abs(length - times * unit) <= 0.25 * times * unit:
            return times
    return allowed[-1] if len(allowed) > 2 and length > allowed[-1] * unit else None


def _keys(tones: Sequence[Tone]) -> list[str]:
    keys = {pair: key for key, pair in signals.DTMF.items()}
    out = []
    for tone in tones:
        low, high = (_near(pitch, known, _KEY_TOLERANCE) for pitch, known in zip(tone.hertz, _KEYBOARD, strict=True))
        if low is None or high is None:
            pair = " and ".join(f"{pitch:.0f}" for pitch in tone.hertz)
            raise NoSignal(f"chords of {pair} Hz, which are no telephone key")
        out.append(keys[low, high])
    return ["kind: DTMF, telephone keys", f"digits: {''.join(out)}"]


_KEYBOARD = (signals.ROWS_HZ, signals.COLUMNS_HZ)


def _counted(tones: Sequence[Tone]) -> list[str]:
    """Groups of tones of one pitch, parted by pauses that are twice as long as others, or by their pitch."""
    pauses = [b.start - a.end for a, b in itertools.pairwise(tones)]
    long = 2 * min(pauses, default=0.0)
    if max(pauses, default=0.0) <= long:  # all alike: within groups, or groups of one tone each
        long = 1.5 * sum(tone.length for tone in tones) / len(tones)
    groups: list[list[Tone]] = [[tones[0]]]
    for pause, tone in zip(pauses, tones[1:], strict=True):
        last = groups[-1][-1]
        if pause > long or abs(tone.hertz[0] - last.hertz[0]) > _TONE_TOLERANCE * last.hertz[0]:
            groups.append([])
        groups[-1].append(tone)
    named = [(_pitch_name(group), len(group)) for group in groups]
    totals: dict[str, int] = {}
    for name, count in named:
        totals[name] = totals.get(name, 0) + count
    out = ["kind: counted tones", f"groups, in order ({len(named)}):"]
    out += [f"{i}. {name}: {count}" for i, (name, count) in enumerate(named, 1)]
    return [*out, "in all: " + ", ".join(f"{name}: {count}" for name, count in totals.items())]


def _pitch_name(group: Sequence[Tone]) -> str:
    pitch = sum(tone.hertz[0] for tone in group) / len(group)
    known = _near(pitch, tuple(signals.PITCHES.values()), _TONE_TOLERANCE)
    for name, hertz in signals.PITCHES.items():
        if hertz == known:
            return f"{name} ({hertz} Hz)"
    return f"{pitch:.0f} Hz"


def _near(pitch: float, known: Sequence[int], tolerance: float) -> int | None:
    best = min(known, key=lambda hertz: abs(hertz - pitch))
    return best if abs(best - pitch) <= tolerance * best else None


def _loudness(samples: Samples, window: int) -> Samples:
    """Mean power around each sample."""
    before = window // 2
    sums = np.cumsum(np.pad(samples * samples, (1 + before, window - before)))
    power: Samples = sums[window:] - sums[:-window]
    return np.maximum(power[: len(samples)], 0.0, out=power[: len(samples)]) / window


def _pitches(piece: Samples, rate: int) -> tuple[float, ...]:
    """The one or two tones that a piece is made of.

    Raises:
        NoSignal: they do not hold its energy.
    """
    count = len(piece)
    if count < 0.01 * rate:
        raise NoSignal("noise: sounds of less than a hundredth of a second")
    size = max(_FFT, 1 << (count - 1).bit_length())
    spectrum = np.abs(np.fft.rfft(piece * np.hanning(count), size)) ** 2
    total = float(spectrum.sum())
    width = 4 * size / count / 2 + 1  # half the main lobe of a Hann window, in bins of the padded spectrum
    found, held = spectrum, 0.0
    peaks: list[float] = []
    for _ in range(2):
        peak = int(found.argmax())
        near = slice(max(0, int(peak - width)), int(peak + width) + 1)
        energy = float(found[near].sum())
        if peaks and energy < 0.05 * held:
            break
        held += energy
        peaks.append((peak + _vertex(spectrum, peak)) * rate / size)
        found = found.copy()
        found[near] = 0.0
    if held < _PURE * total or min(peaks) < 50:
        raise NoSignal("no steady tones: it may be speech, music or noise")
    return tuple(sorted(peaks))


def _vertex(spectrum: Samples, peak: int) -> float:
    """How far beside the bin ``peak`` the parabola through it and its neighbours is highest, in bins."""
    if not 0 < peak < len(spectrum) - 1:
        return 0.0
    left, middle, right = np.log(spectrum[peak - 1 : peak + 2] + 1e-300)
    bend = left - 2 * middle + right
    return float(np.clip(0.5 * (left - right) / bend, -0.5, 0.5)) if bend < 0 else 0.0
