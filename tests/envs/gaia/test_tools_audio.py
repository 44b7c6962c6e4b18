"""decode_audio: exact over whatever the renderers write, and a plain refusal of everything else."""

from __future__ import annotations

import io
import math
import random
import struct
import time
import wave

import numpy as np
import pytest
from gaia_tools import served
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.gaia import signals
from envs.gaia.render import Beeps, Dtmf, Morse, render
from envs.gaia.tools.audio import MAX_SAMPLES, decoded, load
from envs.gaia.tools.base import ToolFault

RATE = 8000


def said(content) -> str:
    return decoded(io.BytesIO(render("a.wav", content)), "a.wav")


def wav(samples, rate=RATE, *, channels=1, width=2) -> bytes:
    """Samples between -1 and 1, as many channels of the same."""
    out = io.BytesIO()
    full = (1 << 8 * width - 1) - 1
    whole = np.round(np.asarray(samples, float) * full).astype(np.int64).repeat(channels)
    if width == 1:
        body = (whole + 128).astype(np.uint8).tobytes()
    else:
        body = whole.astype("<i8").view(np.uint8).reshape(-1, 8)[:, :width].tobytes()
    with wave.open(out, "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(width)
        file.setframerate(rate)
        file.writeframes(body)
    return out.getvalue()


def tone(hertz, seconds=0.5, rate=RATE, loud=0.4):
    return loud * np.sin(2 * math.pi * hertz * np.arange(round(seconds * rate)) / rate)


LETTERS = st.sampled_from(list(signals.MORSE))
WORDS = st.lists(st.text(LETTERS, min_size=1, max_size=6), min_size=1, max_size=4).map(" ".join)


@settings(max_examples=150, deadline=None)
@given(WORDS | st.text(st.sampled_from("ETIMSO5H0"), min_size=1, max_size=4), st.integers(10, 25))
def test_morse_of_any_text_at_any_speed(text, wpm):
    lines = said(Morse(text, wpm)).splitlines()
    assert lines[1:] == [f"kind: Morse code at 600 Hz, about {wpm} words a minute", f"text: {text}"]


@settings(max_examples=80, deadline=None)
@given(st.text(st.sampled_from(list(signals.DTMF)), min_size=1, max_size=40))
def test_keys_of_any_number(digits):
    assert said(Dtmf(digits)).splitlines()[1:] == ["kind: DTMF, telephone keys", f"digits: {digits}"]


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(list(signals.PITCHES)), st.integers(1, 12)), min_size=1, max_size=6))
def test_any_tones_are_counted(notes):
    named = [(f"{pitch} ({signals.PITCHES[pitch]} Hz)", count) for pitch, count in notes]
    totals: dict[str, int] = {}
    for name, count in named:
        totals[name] = totals.get(name, 0) + count
    lines = said(Beeps(tuple(notes))).splitlines()
    assert lines[1] == "kind: counted tones"
    assert lines[3:-1] == [f"{i}. {name}: {count}" for i, (name, count) in enumerate(named, 1)]
    assert lines[-1] == "in all: " + ", ".join(f"{name}: {count}" for name, count in totals.items())


async def test_a_recording_of_the_workspace(tmp_path):
    (tmp_path / "a.wav").write_bytes(render("a.wav", Morse("HELLO 42", 18)))
    (tmp_path / "b.txt").write_text("x")
    async with served(tmp_path) as session:
        text = await session.ok("decode_audio", path="a.wav")
        assert text.startswith("duration: ") and text.endswith("text: HELLO 42")
        assert "from 1 to 1" in await session.refused("decode_audio", path="a.wav", page=2)
        assert "not a wav file" in await session.refused("decode_audio", path="b.txt")
        assert "Did you mean 'a.wav'" in await session.refused("decode_audio", path="a.wave")
        assert "use decode_audio" in await session.refused("read_document", path="a.wav")


@pytest.mark.parametrize("channels", [1, 2, 5])
@pytest.mark.parametrize("width", [1, 2, 3, 4])
@pytest.mark.parametrize("rate", [8000, 11_025, 44_100, 48_000])
def test_recordings_of_every_kind_are_heard(channels, width, rate):
    pieces = []
    for key in "8421A":
        low, high = signals.DTMF[key]
        pieces += [tone(low, 0.07, rate) + tone(high, 0.07, rate), np.zeros(round(0.07 * rate))]
    data = wav(np.concatenate(pieces), rate, channels=channels, width=width)
    assert decoded(io.BytesIO(data), "a.wav").endswith("digits: 8421A")


def test_other_peoples_morse():
    """Faster and slower than we write, at another pitch, softly, keyed by hand."""
    rng = random.Random(3)
    for dot, hertz, loud in ((0.025, 750, 0.03), (0.3, 440, 0.9), (0.06, 1000, 0.2)):
        pieces = [np.zeros(900)]
        for letter in ("...", "---", "-."):
            for mark in letter:
                length = dot * (3 if mark == "-" else 1) * rng.uniform(0.9, 1.1)
                pieces += [tone(hertz, length, loud=loud), np.zeros(round(dot * RATE * rng.uniform(0.9, 1.1)))]
            pieces.append(np.zeros(round(2 * dot * RATE)))
        assert decoded(io.BytesIO(wav(np.concatenate(pieces))), "a.wav").endswith("text: SON")


def test_signs_that_are_no_letter_are_shown_as_they_are():
    pieces = []
    for mark in "........":
        pieces += [tone(600, 0.06 if mark == "." else 0.18), np.zeros(480)]
    assert decoded(io.BytesIO(wav(np.concatenate(pieces))), "a.wav").endswith("text: [........]")


@pytest.mark.parametrize("content", [Morse("CALL 7"), Dtmf("159D"), Beeps((("low", 2), ("high", 3)))])
def test_a_little_noise_does_not_matter(content):
    samples, rate, _ = load(io.BytesIO(render("a.wav", content)), "a.wav")
    noise = np.random.default_rng(0).normal(0, 0.02, len(samples))
    heard = decoded(io.BytesIO(wav(samples + noise, rate)), "a.wav").splitlines()
    assert heard[1:] == said(content).splitlines()[1:]


def voice():
    """Something like a voice: a buzz of harmonics that glides, filtered, in syllables."""
    at = np.arange(3 * RATE) / RATE
    pitch = 120 * (1 + 0.1 * np.sin(2 * math.pi * 0.7 * at))
    phase = 2 * math.pi * np.cumsum(pitch) / RATE
    buzz = sum(np.sin(k * phase) / k for k in range(1, 20))
    return 0.2 * buzz * np.clip(np.sin(2 * math.pi * 2.3 * at), 0, 1)


AT = np.arange(2 * RATE) / RATE
NO_SIGNAL = {
    "silence": (np.zeros(RATE), "silence"),
    "very faint": (np.full(RATE, 0.001), "silence"),
    "noise": (np.random.default_rng(0).normal(0, 0.1, RATE), "noise"),
    "bursts of noise": (np.random.default_rng(1).normal(0, 0.1, 2 * RATE) * (np.sin(20 * AT) > 0), "noise"),
    "voice": (voice(), "speech"),
    "a glide": (0.5 * np.sin(2 * math.pi * (300 * AT + 400 * AT**2)), "no steady tones"),
    "a chord of three": ((tone(400) + tone(500) + tone(600)) / 2, "no steady tones"),
    "a chord of two": (tone(400) + tone(500), "no telephone key"),
    "a key and a tone": (np.concatenate([tone(697) + tone(1209), np.zeros(800), tone(600)]), "a mix"),
    "no sound, only an offset": (np.full(RATE, 0.5), "no steady tones"),
    "one sample": (np.array([0.5]), "less than a hundredth"),
    "clicks": (np.where(np.arange(RATE) % 400 < 4, 0.5, 0.0), "less than a hundredth"),
}


@pytest.mark.parametrize("name", NO_SIGNAL)
def test_what_is_no_signal_is_refused_plainly(name):
    samples, message = NO_SIGNAL[name]
    with pytest.raises(ToolFault, match="holds no Morse code, DTMF or counted tones") as refused:
        decoded(io.BytesIO(wav(np.clip(samples, -1, 1))), "a.wav")
    assert message in str(refused.value)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.floats(0.001, 0.5), st.integers(1, 30), st.sampled_from([1, 2]))
def test_no_noise_is_taken_for_a_signal(seed, loud, syllables, kind):
    rng = np.random.default_rng(seed)
    noise = rng.normal(0, loud, 2 * RATE)
    if kind == 2:  # brown: mostly low
        noise = np.cumsum(noise) / 40
    noise *= np.clip(np.sin(2 * math.pi * syllables * AT), 0, 1)
    with pytest.raises(ToolFault, match="holds no Morse"):
        decoded(io.BytesIO(wav(np.clip(noise, -1, 1))), "a.wav")


def header(*, form=1, channels=1, rate=8000, width=2, body=b"", size=None) -> bytes:
    head = struct.pack(
        "<4sI4s4sIHHIIHH", b"RIFF", 36 + len(body), b"WAVE", b"fmt ", 16, form, channels, rate, 0, 0, 8 * width
    )
    return head + struct.pack("<4sI", b"data", len(body) if size is None else size) + body


BROKEN = {
    "empty": (b"", "not a wav file"),
    "text": (b"hello there, this is text", "not a wav file"),
    "cut in the header": (header()[:30], "not a wav file"),
    "no format": (b"RIFF\x10\0\0\0WAVEdata\0\0\0\0", "not a wav file"),
    "another coding": (header(form=0x55, body=bytes(100)), "not a wav file"),
    "no samples": (header(), "no samples"),
    "half a sample": (header(body=b"\1"), "no samples"),
    "no channels": (header(channels=0, body=bytes(100)), "not a wav file|0 channels"),
    "many channels": (header(channels=60_000, body=bytes(100)), "60000 channels"),
    "wide samples": (header(width=8, body=bytes(100)), "bits at"),
    "no samples a second": (header(rate=0, body=bytes(100)), "at 0 Hz"),
    "too many a second": (header(rate=2**31, body=bytes(100)), "2147483648 Hz"),
    "chunks without end": (b"RIFF\xff\xff\xff\xffWAVE" + b"junk\0\0\0\0" * 100_000, "not a wav file"),
    "a chunk larger than all chunks": (b"RIFF\x28\0\0\0WAVEjunk\x80\0\0\0" + bytes(400), "not a wav file"),
    "a chunk larger than the file": (b"RIFF\xff\xff\xff\xffWAVEfmt \xff\xff\xff\x7f" + bytes(50), "wav file|channels"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_recordings_are_refused(name):
    data, message = BROKEN[name]
    start = time.process_time()
    with pytest.raises(ToolFault, match=message) as refused:
        decoded(io.BytesIO(data), "a.wav")
    assert len(str(refused.value)) < 400 and time.process_time() - start < 2


def test_a_header_that_promises_more_than_there_is_is_not_believed():
    body = (tone(600, 0.4) * 32767).astype("<i2").tobytes()
    text = decoded(io.BytesIO(header(body=body, size=2**31)), "a.wav")
    assert text.startswith("duration: 0.40 s")


async def test_a_large_recording_is_refused_or_decoded_in_time(tmp_path):
    (tmp_path / "long.wav").write_bytes(header(width=1, rate=48_000, body=b"\x80" * (MAX_SAMPLES + 10)))
    (tmp_path / "huge.wav").write_bytes(header(body=bytes(17 << 20)))
    (tmp_path / "whole.wav").write_bytes(wav(tone(440, 5_000_000 / RATE)))
    async with served(tmp_path) as session:
        assert "6,000,000 samples" in await session.refused("decode_audio", path="long.wav")
        assert "17,825,8" in await session.refused("decode_audio", path="huge.wav")
        start = time.process_time()
        assert "440 Hz: 1" in await session.ok("decode_audio", path="whole.wav")
    assert time.process_time() - start < 5


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=300))
def test_any_samples_give_a_text_or_a_refusal(body):
    for data in (body, header(body=body), header(body=body, width=1)):
        try:
            assert decoded(io.BytesIO(data), "a.wav").startswith("duration: ")
        except ToolFault as fault:
            assert len(str(fault)) < 500
