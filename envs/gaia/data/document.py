"""Writes DATA.md, which says what the worlds are made of: ``python -m envs.gaia.data.document``.

Everything in it comes from the tables themselves, so that it cannot say what they do not hold; a test compares.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from envs.gaia.data import snapshot
from envs.gaia.splits import SPLITS, WORLDS_PER_SPLIT, world_seeds
from envs.gaia.worlds import stories
from envs.gaia.worlds.real import SPECS, Spec
from envs.gaia.worlds.schema import ASKABLE, Column, Table
from envs.gaia.worlds.synthetic import LOOKALIKES

HERE = Path(__file__).parent
TARGET = HERE.parents[2] / "DATA.md"
KINDS = {
    "code": "identifier; never asked for",
    "text": "name or word",
    "person": "person's name",
    "group": "one of few values; never asked for",
    "ref": "name of another entity",
    "int": "whole number",
    "float": "decimal number",
    "date": "date",
}


def main() -> None:
    """Write DATA.md."""
    TARGET.write_text(text(), encoding="utf-8")


def text() -> str:
    """The whole document."""
    return "\n".join((*_head(), *_real(), *_synthetic(), *_stories(), *_left_out()))


def _head() -> Iterator[str]:
    seeds = ", ".join(f"{WORLDS_PER_SPLIT[split]} for {split}" for split in SPLITS)
    yield "# Data of the GAIA worlds"
    yield ""
    yield "Made by `python -m envs.gaia.data.document` from the tables themselves; do not edit it."
    yield ""
    yield "| world | what it holds | when it is played |"
    yield "| --- | --- | --- |"
    yield '| `real` | facts from packages, as they are | only when asked for: `world="real"` |'
    yield "| `shifted` | the same entities, each with facts of others and invented ones | training, evaluation |"
    yield "| `synthetic` | generated entities and values | training, evaluation |"
    yield ""
    yield (
        "A world is a function of its flavour and seed. Each seed and each entity belongs to one split, by a hash of "
        f"its name; what belongs to a country goes with it. Seeds of each flavour: {seeds}. Names are ASCII, and made "
        "of letters, spaces and hyphens."
    )
    yield ""


def _real() -> Iterator[str]:
    yield "## Tables of `real` and `shifted`"
    yield ""
    yield (
        "The snapshots in `envs/gaia/data` were taken by `python -m envs.gaia.data.snapshot`; the notices of their "
        "licences stand in `envs/gaia/data/NOTICES.txt`. A column whose origin is *invented* is in `shifted` only."
    )
    yield ""
    counts = {split: _counts("real", split) for split in SPLITS}
    for spec in SPECS:
        columns = (*spec.facts, *(column for column, _ in spec.invented))
        yield from _table(spec.name, spec.plural, _source(spec), columns, counts)


def _source(spec: Spec) -> tuple[str, str, str]:
    digest = hashlib.sha256((HERE / spec.snapshot).read_bytes()).hexdigest()
    source, licence = spec.source
    return source, licence, f"`{spec.snapshot}`, SHA-256 `{digest}`"


def _synthetic() -> Iterator[str]:
    yield "## Tables of `synthetic`"
    yield ""
    yield f"Up to {LOOKALIKES:.0%} of the towns, firms, stations and museums have another one with a name like theirs."
    yield ""
    counts = {split: _counts("synthetic", split) for split in SPLITS}
    for table in _tables("synthetic", "train"):
        yield from _table(table.name, table.plural, (table.source, table.licence, ""), table.columns, counts)


def _stories() -> Iterator[str]:
    yield "## What is told beside the facts"
    yield ""
    yield (
        f"In `shifted` and `synthetic` about {stories.REVISED:.0%} of the entities have a *history*: two to four dated "
        "values of one number, date or person, of which the last one stands. The entity's page gives the standing "
        "value and does not say that it was revised. About "
        f"{stories.IN_THE_NEWS:.0%} of those have a page of *news* that quotes an outdated value with its date, and "
        f"up to {stories.NICKNAMED:.0%} of all entities have a *nickname*, explained on a page of its own. All of "
        "this is invented."
    )
    yield ""


def _left_out() -> Iterator[str]:
    yield "## Countries left out"
    yield ""
    yield "Rows of the package that are wrong, outdated or disputed; and all whose name or capital is no plain ASCII."
    yield ""
    yield from (f"* {name}: {reason}" for name, reason in snapshot.LEFT_OUT.items())
    yield ""


def _table(
    name: str,
    plural: str,
    source: tuple[str, str, str],
    columns: Sequence[Column],
    counts: dict[str, dict[str, int]],
) -> Iterator[str]:
    yield f"### {plural}"
    yield ""
    yield f"Source: {source[0]}. Licence: {source[1]}.{f' Snapshot: {source[2]}.' if source[2] else ''}"
    yield f"Entities: {', '.join(f'{counts[split][name]} in {split}' for split in SPLITS)}."
    yield ""
    yield "| column | on the page | kind | unit | asked for | origin | note |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for column in columns:
        kind = f"{KINDS[column.kind]}" + (f" ({column.to})" if column.to else "")
        cells = (
            f"`{column.name}`",
            column.label,
            kind,
            column.unit,
            "yes" if column.kind in ASKABLE else "no",
            column.origin or ("source" if source[2] else "generated"),
            column.note,
        )
        yield f"| {' | '.join(cells)} |"
    yield ""


def _counts(flavour: str, split: str) -> dict[str, int]:
    return {table.name: len(table.rows) for table in _tables(flavour, split)}


def _tables(flavour: str, split: str) -> list[Table]:
    from envs.gaia.world import world

    return list(world(flavour, world_seeds(split)[0]).tables.values())


if __name__ == "__main__":
    main()
