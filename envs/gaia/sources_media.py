"""Sources of pictures and recordings: tiles, bar charts, counted tones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aworld_gym.types import PlanStep
from envs.gaia import signals
from envs.gaia.render import Bars, Beeps, Grid
from envs.gaia.terms import Box, Draft, File, Term, require

TILE_COLOURS = ("red", "green", "blue", "yellow", "orange", "purple")
PITCHES = ("high", "middle", "low")


@dataclass(frozen=True)
class Tiles:
    """A picture of coloured tiles."""

    file: File
    counts: dict[str, int]

    def described(self, *colours: str) -> PlanStep:
        """The description, which shows how many tiles of these colours there are."""
        shows = tuple(f"{colour} {self.counts[colour]}" for colour in colours)
        return PlanStep("describe_image", {"path": self.file.path}, shows)

    def number(self, draft: Draft, colour: str) -> Term:
        """How many tiles have a colour."""
        phrase = draft.phrase("tiles", colour=colour, file=self.file.ref)
        steps = (*self.file.before, self.described(colour))
        return Term("int", self.counts[colour], phrase, steps, self.file.needs)


def tiles(draft: Draft, box: Box | None = None) -> Tiles:
    """A picture of 6 to 12 by 6 to 12 tiles in four colours."""
    rng = draft.rng
    colours = draft.some(TILE_COLOURS, 4)
    width, height = rng.randrange(6, 13), rng.randrange(6, 13)
    cells = tuple(tuple(rng.choice(colours) for _ in range(width)) for _ in range(height))
    counts = {colour: sum(row.count(colour) for row in cells) for colour in colours}
    require(min(counts.values()) > 1, "a colour with a tile or none")
    stem = draft.pick(("tiles", "floor", "mosaic", "quilt", "pattern"))
    return Tiles(draft.put(f"{stem}_{rng.randrange(10, 100)}.png", Grid(cells), box), counts)


@dataclass(frozen=True)
class Chart:
    """A bar chart whose bars differ in colour and in height, with a label under each or none."""

    file: File
    heights: dict[str, int]
    """Colour -> height in pixels, from left to right."""
    labels: dict[str, str]
    """Colour -> label; empty where the chart has none."""

    def described(self, *colours: str) -> PlanStep:
        """The description, which shows the heights of these bars."""
        shows = [f"{colour}: height {self.heights[colour]} px" for colour in colours]
        return PlanStep("describe_image", {"path": self.file.path}, tuple(shows))

    def number(self, draft: Draft, colour: str) -> Term:
        """The height of a bar."""
        if self.labels:
            label = f'"{self.labels[colour]}"'
            phrase = draft.phrase("labelled_bar", label_of_bar=label, file=self.file.ref)
        else:
            phrase = draft.phrase("bar", colour=colour, file=self.file.ref)
        steps = (*self.file.before, self.described(colour))
        return Term("int", self.heights[colour], phrase, steps, self.file.needs)

    def extreme(self, high: bool) -> str:
        """The colour of the highest or the lowest bar."""
        return (max if high else min)(self.heights, key=lambda colour: self.heights[colour])


def chart(draft: Draft, labels: Sequence[str] = (), box: Box | None = None) -> Chart:
    """A chart of four to six bars, or of one for each label; heights are at least 7 pixels apart."""
    count = len(labels) or draft.rng.randrange(4, 7)
    colours = draft.some(TILE_COLOURS, count)
    heights = [20 + 7 * step + draft.rng.randrange(0, 4) for step in draft.rng.sample(range(0, 34, 2), count)]
    stem = f"{draft.pick(('chart', 'figure', 'bars'))}_{draft.rng.randrange(10, 100)}"
    content = Bars(tuple(zip(colours, heights, strict=True)), tuple(labels))
    file = draft.put(f"{stem}.png", content, box)
    by_colour = dict(zip(colours, heights, strict=True))
    return Chart(file, by_colour, dict(zip(colours, labels, strict=True)) if labels else {})


@dataclass(frozen=True)
class Tones:
    """A recording of tones to be counted."""

    file: File
    counts: dict[str, int]
    """Pitch -> number of tones."""

    def number(self, draft: Draft, pitch: str) -> Term:
        """How many tones have a pitch."""
        phrase = draft.phrase("tones", pitch=pitch, file=self.file.ref)
        shown = f"{pitch} ({signals.PITCHES[pitch]} Hz): {self.counts[pitch]}"
        step = PlanStep("decode_audio", {"path": self.file.path}, (shown,))
        return Term("int", self.counts[pitch], phrase, (*self.file.before, step), self.file.needs)


def tones(draft: Draft, box: Box | None = None) -> Tones:
    """A recording of groups of tones, each pitch in one or two of them."""
    groups = [(pitch, draft.rng.randrange(2, 14)) for pitch in PITCHES]
    groups += [(pitch, draft.rng.randrange(2, 9)) for pitch in PITCHES if draft.rng.random() < 0.5]
    groups = draft.some(groups, len(groups))
    require(all(one[0] != other[0] for one, other in zip(groups, groups[1:], strict=False)), "two groups run together")
    counts = {pitch: sum(count for one, count in groups if one == pitch) for pitch in PITCHES}
    stem = draft.pick(("signal", "beeps", "tones", "recording"))
    return Tones(draft.put(f"{stem}_{draft.rng.randrange(10, 100)}.wav", Beeps(tuple(groups)), box), counts)
