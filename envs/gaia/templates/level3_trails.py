"""Level 3: trails that start in several media at once, and documents of which only one version counts."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace

from envs.gaia.carriers import what_of
from envs.gaia.composition import Composition, Rule, composed
from envs.gaia.ledgers import Records, draw_ledger, draw_records
from envs.gaia.makers import measure
from envs.gaia.operators import (
    best,
    bounded,
    fact,
    gap,
    linked,
    missing,
    plus,
    times,
    top_group,
    total,
    weighted,
    where_term,
)
from envs.gaia.operators_evidence import before_last
from envs.gaia.render import Bullets, Sheet
from envs.gaia.sources import read_document, table_read, tabulated
from envs.gaia.templates import template
from envs.gaia.terms import Draft, Question, Term, joined


@template("finalists", level=3)
def finalists(draft: Draft) -> Question:
    """Three entities, each from other evidence; the first or last of them by the atlas, and a fact about it."""

    def shape(c: Composition, depth: int) -> Term:
        table = c.draft.table_with("int")
        rows = c.draft.some(table.rows, 3)
        hops = (depth, 1, 1)
        found = [c.let("entity", c.entity(n, table, row, plain=True)) for n, row in zip(hops, rows, strict=True)]
        by = c.draft.pick(table.of_kind("int"))
        among = Term(
            "names",
            tuple(term.value for term in found),
            joined([term.phrase for term in found]),
            tuple(step for term in found for step in term.steps),
            frozenset().union(*(term.needs for term in found)),
        )
        chosen = c.seen(best(c.draft, table, by, among))
        return fact(c.draft, c.short("entity", chosen, words=12), table, c.draft.asked(table, by))

    return composed(draft, shape)


@template("ledger-trail", level=3)
def ledger_trail(draft: Draft) -> Question:
    """The entity with the highest total over records that some evidence selects, a hop, and a fact or an old value."""

    def shape(c: Composition, depth: int) -> Term:
        ledger = draw_ledger(c.draft)
        table = c.draft.table(ledger.table)
        records = draw_records(
            c.draft, c.draft.rng.randrange(50, 90), ledger=ledger, entities=c.draft.rng.randrange(6, 10)
        )
        label, group = measure(c.draft, records), c.draft.pick(ledger.groups)
        refs = table.of_kind("ref")
        ref = c.draft.pick(refs) if refs else None
        end = c.draft.world.tables[ref.to] if ref else table

        def leads_to(word: str) -> str:
            """Where the trail of another group would lead."""
            totals: Counter[str] = Counter()
            for row in records.rows:
                if row[ledger.group] == word:
                    totals[str(row[ledger.key])] += int(row[label])
            first = max(totals, key=lambda name: totals[name], default="")
            return table.row(first)[ref.name] if ref and first else first

        def differs(word: str) -> bool:
            return leads_to(word) != leads_to(group)

        if depth > 1:
            word = c.version("word", group, others=ledger.groups, differs=differs)
        else:
            word = c.carried(what_of(group), group)
        ending = c.fresh(("csv", "sqlite"), lambda one: "database" if one == "sqlite" else "code")
        rows = where_term(c.draft, tabulated(c.draft, records, ending, c.box()), ledger.group, c.short("text", word))
        entity = c.short("entity", c.seen(top_group(c.draft, rows, label)))
        if ref is not None:
            entity = c.short("entity", c.seen(linked(c.draft, entity, table, ref)), words=10)
        if len(c.draft.world.history(end.name, entity.value)) > 1:
            return before_last(c.draft, entity, end)
        return fact(c.draft, entity, end, c.draft.asked(end))

    return composed(draft, shape, least=draft.rng.randrange(1, 3))


@template("issuer-bill", level=3)
def issuer_bill(draft: Draft) -> Question:
    """A count times what the version of a document states that one entity issued, plus another number."""

    def shape(c: Composition, depth: int) -> Term:
        price = c.version("number", c.draft.rng.randrange(12, 900), "issued_by", depth)
        count = c.number("atlas", "linked", "stated", "mailed", "document")
        product = times(c.draft, c.short("number", count), c.short("number", price))
        other = c.short("number", c.number("atlas", "linked", "stated", "mailed", "document"))
        return plus(c.draft, c.short("number", product, words=12), other)

    return composed(draft, shape)


@template("weights-in-force", level=3)
def weights_in_force(draft: Draft) -> Question:
    """Amounts from the version of a document in force on a day, times numbers of the atlas, added up."""

    def shape(c: Composition, depth: int) -> Term:
        table = c.draft.table_with("int")
        column, label = c.draft.pick(table.of_kind("int")), c.draft.pick(("Quantity", "Weight factor", "Units"))
        names = [row["name"] for row in c.draft.some(table.rows, 4)]
        amounts = c.draft.rng.sample(range(2, 60), 9)
        sheets = [
            Sheet((table.name.capitalize(), label), tuple(zip(c.draft.some(names, 3), amounts[3 * i :], strict=False)))
            for i in range(3)
        ]
        rule: Rule = "in_force" if depth == 1 else "issued_by"
        file = c.versions([("As agreed:", sheet) for sheet in sheets], rule, depth - 1)
        listed = [str(row[0]) for row in sheets[0].rows]
        read = read_document(file, *(str(cell) for row in sheets[0].rows for cell in row))
        said = c.draft.phrase("listed", plural=table.plural, file=file.ref)
        among = Term("names", tuple(listed), said, (*file.before, read), file.needs)
        return weighted(c.draft, table, column, label, amounts[:3], among)

    return composed(draft, shape)


@template("roster-missing", level=3)
def roster_missing(draft: Draft) -> Question:
    """The names on the version of a list that counts which are in none of three tables."""

    def shape(c: Composition, depth: int) -> Term:
        ledger = draw_ledger(c.draft)
        table = c.draft.table(ledger.table)
        records = draw_records(c.draft, c.draft.rng.randrange(14, 20), ledger=ledger)
        names = [str(row[ledger.key]) for row in records.rows]
        lost = c.draft.rng.randrange(2, 4)
        others = c.draft.some([row["name"] for row in table.rows if row["name"] not in names], 5)
        # Each version has other names besides those in the tables, so that only the one that counts gives the answer.
        lists = [names, [*names[lost:], *others[:2]], [*names[lost + 1 :], names[0], *others[2:5]]]
        bodies = [(f"All {table.plural}:", Bullets(tuple(c.draft.some(one, len(one))))) for one in lists]
        file = c.versions(bodies, "in_force" if depth == 1 else "issued_by", depth - 1)
        steps, needs, refs = [*file.before, read_document(file, *names)], file.needs, []
        kept = records.rows[lost:]
        third = len(kept) // 3
        for part, ending in zip(
            (kept[:third], kept[third : 2 * third], kept[2 * third :]), ("csv", "tsv", "csv"), strict=True
        ):
            one = Records(ledger, part)
            listed = c.draft.put(f"{one.stem(c.draft)}.{ending}", one.sheet(), c.box())
            shows = tuple(str(row[ledger.key]) for row in part)
            steps += [*listed.before, replace(table_read(listed.path, len(part)), shows=shows)]
            refs.append(listed.ref)
            needs |= listed.needs
        where_listed = Term("names", (), file.ref, tuple(steps), needs)
        found = [str(row[ledger.key]) for row in kept]
        return missing(c.draft, names, found, table.plural, refs, where_listed)

    return composed(draft, shape)


@template("bounded-ledger", level=3)
def bounded_ledger(draft: Draft) -> Question:
    """The total of the records beyond a bound that the version of a document states which counts; one more number."""

    def shape(c: Composition, depth: int) -> Term:
        records = draw_records(c.draft, c.draft.rng.randrange(30, 50))
        label, asked = c.draft.some([one.label for one in records.ledger.measures], 2)
        values = sorted(int(row[label]) for row in records.rows)
        bounds = [(low + high) // 2 for low, high in itertools.pairwise(values)]
        wide = [i for i, bound in enumerate(bounds) if bound - values[i] > 0.03 * bound and 4 <= i < len(bounds) - 4]
        place = c.draft.pick(wide)
        rule: Rule = "in_force" if depth == 1 else "issued_by"
        bound = c.version("number", bounds[place], rule, depth - 1, others=bounds[place % 3 :: 3])
        ending = c.fresh(("csv", "sqlite", "xlsx"), lambda one: "database" if one == "sqlite" else "table")
        rows = tabulated(c.draft, records, ending, c.box())
        rows = bounded(c.draft, rows, label, c.short("number", bound), above=c.draft.rng.random() < 0.5)
        found = c.short("number", c.seen(total(c.draft, rows, asked)))
        other = c.short("number", c.number("atlas", "linked"))
        return c.draft.pick((gap, plus))(c.draft, *c.draft.some((found, other), 2))

    return composed(draft, shape)
