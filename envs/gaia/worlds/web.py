"""The local web of a world, page by page."""

from __future__ import annotations

from collections.abc import Iterator

from envs.gaia.worlds.schema import (
    Page,
    Row,
    Table,
    World,
    alias_line,
    alias_url,
    history_line,
    history_title,
    history_url,
    link,
    list_title,
    list_url,
    news_line,
    news_title,
    news_url,
    page_url,
)

_NEWS_OPENINGS = ("From our notebook.", "Short notes of the day.", "What readers asked for this week.")


def web_of(world: World) -> dict[str, Page]:
    """Address -> page: of entities, lists, revisions, news and nicknames, in a fixed order.

    Raises:
        ValueError: two pages have one address.
    """
    found: dict[str, Page] = {}
    for part in (_entities, _lists, _revisions, _news, _nicknames):
        for url, page in part(world):
            if url in found:
                raise ValueError(f"two pages have the address {url}: {found[url].title!r} and {page.title!r}")
            found[url] = page
    return found


def _entities(world: World) -> Iterator[tuple[str, Page]]:
    for table in world.tables.values():
        for row in table.rows:
            yield page_url(table.name, row["name"]), _entity_page(table, row)


def _entity_page(table: Table, row: Row) -> Page:
    facts = "\n".join(column.line(row) for column in table.columns)
    article = "an" if table.name[0] in "aeiou" else "a"
    links = "".join(f"\nSee also: {link(column, row)}" for column in table.of_kind("ref"))
    return Page(row["name"], f"{row['name']} is {article} {table.name} in this atlas.\n{facts}{links}")


def _lists(world: World) -> Iterator[tuple[str, Page]]:
    for table in world.tables.values():
        for column in table.of_kind("group", "ref"):
            members: dict[str, list[str]] = {}
            for row in table.rows:
                members.setdefault(row[column.name], []).append(row["name"])
            for value, listed in sorted(members.items()):
                said = f"{table.plural.capitalize()} with {value} as {column.label.lower()}: {len(listed)}"
                yield list_url(table, column, value), Page(list_title(table, column, value), "\n".join([said, *listed]))


def _revisions(world: World) -> Iterator[tuple[str, Page]]:
    for (table_name, name), revisions in world.histories.items():
        table = world.tables[table_name]
        column = table.column(revisions[0].column)
        lines = [f"Entries of this atlas for the {column.phrase} of the {table.name} {name}, oldest first."]
        lines += [history_line(column, revision) for revision in revisions]
        lines += [f"See also: {page_url(table_name, name)}"]
        yield history_url(table_name, name), Page(history_title(name), "\n".join(lines))


def _news(world: World) -> Iterator[tuple[str, Page]]:
    for number, ((table_name, name), revision) in enumerate(world.quoted.items()):
        table = world.tables[table_name]
        lines = [
            _NEWS_OPENINGS[number % len(_NEWS_OPENINGS)],
            news_line(table, name, revision),
            f"See also: {page_url(table_name, name)}",
        ]
        yield news_url(table_name, name), Page(news_title(name, revision), "\n".join(lines))


def _nicknames(world: World) -> Iterator[tuple[str, Page]]:
    for (table_name, name), nickname in world.aliases.items():
        text = f"{alias_line(world.tables[table_name], name, nickname)}\nSee also: {page_url(table_name, name)}"
        yield alias_url(world, table_name, name), Page(nickname, text)
