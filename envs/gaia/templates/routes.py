"""Shortest routes over a file of links: of level 1 between places that are named, of level 2 between others."""

from __future__ import annotations

from envs.gaia.carriers import carry
from envs.gaia.operators import called, named
from envs.gaia.routes import Links, links, route
from envs.gaia.templates import template
from envs.gaia.templates.archives import zip_box
from envs.gaia.terms import Box, Draft, Question, Term


@template("csv-route", level=1)
def csv_route(draft: Draft) -> Question:
    """The shortest route between two places that the question names."""
    network = links(draft)
    one, other = (_named(network, name) for name in draft.some(network.places, 2))
    return draft.ask(route(draft, network, one, other, by_program=True))


@template("qr-route", level=2)
def qr_route(draft: Draft) -> Question:
    """The shortest route between two places that two pictures name."""
    network = links(draft)
    names = draft.some(network.places, 2)
    one, other = (_carried(draft, network, kind, name) for kind, name in zip(("qr", "lettered"), names, strict=True))
    return draft.ask(route(draft, network, *draft.some((one, other), 2)))


@template("zip-route", level=2)
def zip_route(draft: Draft) -> Question:
    """The shortest route between a place that the question names and one that a picture or recording names."""
    box = zip_box(draft)
    network = links(draft, box)
    start, end = draft.some(network.places, 2)
    found = _carried(draft, network, draft.pick(("qr", "lettered")), end, box)
    return draft.ask(route(draft, network, _named(network, start), found, by_program=True))


def _named(network: Links, name: str) -> Term:
    return named(network.table, network.table.row(name))


def _carried(draft: Draft, network: Links, carrier: str, name: str, box: Box | None = None) -> Term:
    return called(draft, network.table, carry(draft, carrier, "name", name, box))
