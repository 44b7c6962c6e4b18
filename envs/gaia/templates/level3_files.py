"""Level 3: files that say which other file, colour or record counts, and terms that two branches share."""

from __future__ import annotations

from dataclasses import replace

from envs.gaia.carriers import what_of
from envs.gaia.composition import Composition, composed, elsewhere
from envs.gaia.ledgers import draw_ledger, draw_records
from envs.gaia.makers import measure
from envs.gaia.operators import fact, gap, linked, total, where_term
from envs.gaia.operators_evidence import as_of, before_last, between_revisions
from envs.gaia.render import Sheet
from envs.gaia.sources import chart, read_document, rows_of, table_read, tabulated
from envs.gaia.templates import template
from envs.gaia.templates.level3_revisions import CLAUSE, day_between, outdated
from envs.gaia.terms import Box, Draft, Question, Term, require
from envs.gaia.wording import HIGH, LOW
from envs.gaia.world import TRAINING_FLAVOURS, Row, Table


@template("sealed-table", level=3, worlds=TRAINING_FLAVOURS)
def sealed_table(draft: Draft) -> Question:
    """A total over the table in an archive that the version of a document calls final, and an outdated number."""

    def shape(c: Composition, depth: int) -> Term:
        ledger = draw_ledger(c.draft)
        parts = [draw_records(c.draft, c.draft.rng.randrange(18, 34), ledger=ledger) for _ in range(3)]
        base, marks = c.draft.pick(ledger.stems), c.draft.some(("north", "south", "east", "west", "harbour"), 3)
        titles = [f"{base}_{mark}.csv" for mark in marks]
        bodies = [
            (f"Only {title} has the final figures.", f"The file {other} must not be used.")
            for title, other in zip(titles, titles[1:] + titles[:1], strict=True)
        ]
        note = c.versions(bodies, c.draft.pick(("latest_signed", "in_force")))
        box = Box(c.draft, f"{c.draft.pick(('tables', 'figures', 'material'))}_{c.draft.rng.randrange(10, 100)}.zip")
        files = dict(zip(titles, [box.put(t, p.sheet()) for t, p in zip(titles, parts, strict=True)], strict=True))
        final = files[titles[0]]
        said = c.draft.phrase("in_file", file=c.draft.phrase("final", file=box.file.ref, file2=note.ref))
        rows = rows_of(parts[0], said, table_read(final.path, len(parts[0].rows)), final)
        told = (*note.before, read_document(note, bodies[0][0]), *final.before)
        rows = replace(rows, before=told, needs=rows.needs | note.needs)
        group = c.draft.pick(ledger.groups)
        rows = where_term(c.draft, rows, ledger.group, c.short("text", c.carried(what_of(group), group)))
        found = c.short("number", c.seen(total(c.draft, rows, measure(c.draft, parts[0]))))
        return gap(c.draft, *c.draft.some((found, c.short("number", outdated(c, depth))), 2))

    return composed(draft, shape)


@template("same-day", level=3, worlds=TRAINING_FLAVOURS)
def same_day(draft: Draft) -> Question:
    """How far two entities' numbers lay apart on one day, by what the atlas gave then."""

    def shape(c: Composition, depth: int) -> Term:
        table, row = c.revised("int", least=3)
        first, last = between_revisions(c.draft, table, row)
        when = day_between(c.draft, first, last)

        def fit(one: Table, other: Row) -> bool:
            revisions = c.draft.world.history(one.name, other["name"])
            return (
                other is not row
                and len(revisions) > 2
                and one.column(revisions[0].column).kind == "int"
                and revisions[0].date < when < revisions[-1].date
            )

        other_table, other = c.pick(fit)
        day = c.let("date", c.day(when, differs=lambda date: not first <= date <= last))
        pairs = ((table, row, depth), (other_table, other, 1))
        entities = [(c.short("entity", c.entity(n, one, entity), words=CLAUSE), one) for one, entity, n in pairs]
        values = [c.short("number", c.seen(as_of(c.draft, entity, one, day)), words=CLAUSE) for entity, one in entities]
        return gap(c.draft, *c.draft.some(values, 2))

    return composed(draft, shape)


@template("legend-in-force", level=3)
def legend_in_force(draft: Draft) -> Question:
    """The entity of a chart's extreme bar by the legend in force on a day, a hop from it, and a fact or old value."""

    def shape(c: Composition, depth: int) -> Term:
        picture = chart(c.draft, (), c.box())
        colours, high = list(picture.heights), c.draft.rng.random() < 0.5
        chosen = picture.extreme(high)
        table, row = c.pick(lambda table, row: len(table.rows) > 3 * len(colours))
        others = elsewhere(c, table, row)
        require(len(others) > len(colours) + 1, "too few other entities")
        sheets = []
        for at in (row, *others[:2]):  # who has the bar's colour in each legend
            rest = iter(c.draft.some(others[2:], len(colours) - 1))
            rows = tuple((colour, (at if colour == chosen else next(rest))["name"]) for colour in colours)
            sheets.append(Sheet(("Colour", table.name.capitalize()), tuple(c.draft.some(rows, len(rows)))))
        legend = c.versions([(sheet,) for sheet in sheets], "in_force" if depth == 1 else "issued_by", depth - 1)
        words = (*HIGH, "tallest") if high else (*LOW, "shortest")
        said = c.draft.phrase(
            "legend_bar", noun=table.name, file=legend.ref, superlative=c.draft.pick(words), file2=picture.file.ref
        )
        read = read_document(legend, row["name"])
        steps = (*picture.file.before, picture.described(*colours), *legend.before, read)
        found = Term("text", row["name"], said, steps, picture.file.needs | legend.needs)
        entity = c.short("entity", c.seen(found), words=CLAUSE)
        if refs := table.of_kind("ref"):
            ref = c.draft.pick(refs)
            entity, table = c.seen(linked(c.draft, entity, table, ref)), c.draft.world.tables[ref.to]
        if len(c.draft.world.history(table.name, entity.value)) > 1:
            return before_last(c.draft, c.short("entity", entity, words=10), table)
        return fact(c.draft, entity, table, c.draft.asked(table))

    return composed(draft, shape)


@template("two-ledgers", level=3, worlds=TRAINING_FLAVOURS)
def two_ledgers(draft: Draft) -> Question:
    """The total over an entity's records and the entity's outdated number, once a chain has led to the entity."""

    def shape(c: Composition, depth: int) -> Term:
        ledger = draw_ledger(c.draft)
        table = c.draft.table(ledger.table)
        records = draw_records(
            c.draft, c.draft.rng.randrange(40, 80), ledger=ledger, entities=c.draft.rng.randrange(6, 9)
        )
        revised = [
            name for name in {str(row[ledger.key]): None for row in records.rows} if _number_revised(c, table, name)
        ]
        row = table.row(c.draft.pick(revised))
        entity = c.let("entity", c.entity(depth, table, row))
        ending = c.fresh(("csv", "sqlite"), lambda one: "database" if one == "sqlite" else "table")
        rows = where_term(c.draft, tabulated(c.draft, records, ending, c.box()), ledger.key, entity)
        found = c.short("number", c.seen(total(c.draft, rows, measure(c.draft, records))))
        other = c.short("number", c.seen(before_last(c.draft, entity, table)))
        return gap(c.draft, *c.draft.some((found, other), 2))

    return composed(draft, shape)


def _number_revised(c: Composition, table: Table, name: str) -> bool:
    revisions = c.draft.world.history(table.name, name)
    return len(revisions) > 1 and table.column(revisions[0].column).kind == "int"
