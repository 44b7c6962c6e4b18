"""``decode_audio``: what a recording of Morse code, telephone keys or counted tones says."""

from __future__ import annotations

import struct
import wave
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

from pydantic import Field

from envs.gaia.tools.base import ToolContext, ToolDef, ToolFault, clip, page_of, quoted

if TYPE_CHECKING:
    from envs.gaia.tools.recordings import Samples

MAX_BYTES = 16 << 20
"""Bytes of a recording that is decoded."""
MAX_SAMPLES = 6_000_000
"""Samples of one channel: two minutes of a fine recording, twelve of a telephone's. They take some 250 MB to decode."""
MAX_CHANNELS = 8
MIN_RATE, MAX_RATE = 4000, 192_000


def tools(context: ToolContext) -> list[ToolDef]:
    """The decoder."""

    def decode_audio(
        path: Annotated[str, Field(description="A wav file.")], page: Annotated[int, Field(ge=1)] = 1
    ) -> str:
        with context.workspace.open(path, limit=MAX_BYTES) as file:
            return page_of(decoded(file, path), page)

    return [
        ToolDef(
            decode_audio,
            "Decode a recording of Morse code, DTMF (telephone keys) or counted tones: duration, kind, and the text, "
            "digits or counts by pitch. Does not understand speech.",
            terse="Decode a recording of signals.",
        )
    ]


def decoded(file: BinaryIO, path: str) -> str:
    """What the recording in ``file`` says, after a line on how long it is.

    Raises:
        ToolFault: no PCM wav file, broken, or no signal that is known.
    """
    from envs.gaia.tools import recordings  # numpy only where a recording is decoded

    samples, rate, channels = load(file, path)
    heard = f"{len(samples) / rate:.2f} s, {rate:,} samples a second, {channels} channel{'s' if channels > 1 else ''}"
    try:
        lines = recordings.describe(samples, rate)
    except recordings.NoSignal as what:
        raise ToolFault(
            f"{quoted(path)} ({heard}) holds no Morse code, DTMF or counted tones that can be decoded: {what}"
        ) from None
    return "\n".join([f"duration: {heard}", *lines])


def load(file: BinaryIO, path: str) -> tuple[Samples, int, int]:
    """The recording in ``file``: samples of the mean of its channels (full scale is 1), samples a second, channels.

    Raises:
        ToolFault: no PCM wav file, or broken.
    """
    try:
        with wave.open(file, "rb") as recording:
            channels, width, rate = recording.getnchannels(), recording.getsampwidth(), recording.getframerate()
            if not (1 <= channels <= MAX_CHANNELS and 1 <= width <= 4 and MIN_RATE <= rate <= MAX_RATE):
                raise ToolFault(
                    f"{quoted(path)} has {channels} channels of {8 * width} bits at {clip(str(rate), 12)} Hz; "
                    f"decoded are 1 to {MAX_CHANNELS} channels of 8 to 32 bits at {MIN_RATE} to {MAX_RATE} Hz"
                )
            data = recording.readframes(MAX_SAMPLES + 1)  # what the header says of their number is not to be trusted
    except (wave.Error, EOFError, struct.error, ValueError, OverflowError, MemoryError, RuntimeError) as error:
        # RuntimeError: of a chunk that goes on after the end of its file
        raise ToolFault(
            f"{quoted(path)} is not a wav file of plain (PCM) samples: {clip(str(error), 80) or 'it is cut short'}"
        ) from None
    if len(data) > MAX_SAMPLES * channels * width:
        raise ToolFault(f"{quoted(path)} has over {MAX_SAMPLES:,} samples; decode a part of it with run_python")
    samples = _scaled(data, channels * width, width)
    if not len(samples):
        raise ToolFault(f"{quoted(path)} holds no sound: it has no samples")
    return samples.reshape(-1, channels).mean(axis=1), rate, channels


def _scaled(data: bytes, frame: int, width: int) -> Any:
    """Samples between -1 and 1 of whole frames of little-endian integers; 8 bits are unsigned."""
    import numpy as np

    raw = np.frombuffer(data[: len(data) // frame * frame], np.uint8)
    if width == 1:
        return (raw.astype(np.float64) - 128) / 128
    if width == 3:  # the upper three bytes of four
        wide = np.zeros((len(raw) // 3, 4), np.uint8)
        wide[:, 1:] = raw.reshape(-1, 3)
        raw, width = wide.reshape(-1), 4
    return raw.view(f"<i{width}").astype(np.float64) / (1 << 8 * width - 1)
