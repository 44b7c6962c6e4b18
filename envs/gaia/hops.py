"""Hops: ways through the atlas that lead to an entity from another one.

Used backwards: a chain is drawn from its end, since what is asked decides which entity it must lead to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from envs.gaia.operators import linked
from envs.gaia.operators_evidence import only
from envs.gaia.terms import Draft, Term
from envs.gaia.world import Column, Row, Table


@dataclass(frozen=True)
class Way:
    """A hop to an entity from another one."""

    source: Table
    start: Row
    go: Callable[[Term], Term]
    """Makes the entity from the term of ``start``."""

    @property
    def key(self) -> tuple[str, str]:
        """Table and name of where it starts."""
        return self.source.name, self.start["name"]


def _linked_ways(draft: Draft, table: Table, row: Row) -> Iterator[Way]:
    """From an entity whose page names this one."""
    for source in draft.world.tables.values():
        for ref in source.of_kind("ref"):
            if ref.to == table.name:
                for start in source.rows:
                    if start[ref.name] == row["name"]:
                        yield Way(source, start, partial(_linked, draft, source, ref))


def _linked(draft: Draft, source: Table, ref: Column, before: Term) -> Term:
    return linked(draft, before, source, ref)


def _only_ways(draft: Draft, table: Table, row: Row) -> Iterator[Way]:
    """From the entity that this one's page names, where no other page of the table does."""
    for ref in table.of_kind("ref"):
        if sum(other[ref.name] == row[ref.name] for other in table.rows) == 1:
            source = draft.world.tables[ref.to]
            yield Way(source, source.row(row[ref.name]), partial(_only, draft, table, ref))


def _only(draft: Draft, table: Table, ref: Column, before: Term) -> Term:
    return only(draft, before, table, ref)


HOPS = (_linked_ways, _only_ways)
"""Each gives all ways to an entity through the atlas: ``hop(draft, table, row)``."""
