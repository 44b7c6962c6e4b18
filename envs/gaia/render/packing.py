"""Zip archives without clocks, and Office files made of them."""

from __future__ import annotations

import datetime
import io
import re
import zipfile
from collections.abc import Callable, Iterable, Sequence
from typing import Any

WRITTEN = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
"""The date that files carry inside."""


def zipped(members: Iterable[tuple[str, bytes]]) -> bytes:
    """A zip archive of (name, bytes) in order, stored, all of one date."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for name, body in members:
            info = zipfile.ZipInfo(name, (WRITTEN.year, WRITTEN.month, WRITTEN.day, 0, 0, 0))
            info.create_system = 3  # Unix, whatever this runs on
            info.external_attr = 0o644 << 16
            archive.writestr(info, body)
    return out.getvalue()


def saved(save: Callable[[io.BytesIO], object]) -> bytes:
    """An Office file with the moment of writing taken out of it."""
    out = io.BytesIO()
    save(out)
    stamp = WRITTEN.strftime("%Y-%m-%dT%H:%M:%SZ").encode()
    with zipfile.ZipFile(out) as written:
        members: Sequence[tuple[str, bytes]] = [(name, written.read(name)) for name in written.namelist()]
    return zipped(
        (name, re.sub(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", stamp, body) if name == "docProps/core.xml" else body)
        for name, body in members
    )


def drop_parts(holder: Any, *kinds: str) -> None:
    """Leave parts out of an open Office file: the relations of ``holder`` whose type ends with one of ``kinds``."""
    found = {kind: key for key, relation in holder.rels.items() for kind in kinds if relation.reltype.endswith(kind)}
    for kind in kinds:
        del holder.rels[found[kind]]
