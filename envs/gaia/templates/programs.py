"""Questions about programs."""

from __future__ import annotations

from aworld_gym.types import PlanStep
from envs.gaia.operators import fact
from envs.gaia.render import Text
from envs.gaia.templates import template
from envs.gaia.terms import Draft, Question, Term

_STEMS = ("program", "sequence", "generator", "counter", "script")
_MODULI = (997, 1009, 2003, 4001, 7919)


@template("py-output", level=1)
def py_output(draft: Draft) -> Question:
    """What a program prints."""
    sequence = _Sequence(draft)
    residue, kept = draft.rng.randrange(3), draft.rng.randrange(3, 9)
    found = [x for x in sequence.values() if x % 3 == residue][-kept:]
    source = f"{sequence.source}    if x % 3 == {residue}:\n        kept.append(x)\nprint(sum(kept[-{kept}:]))\n"
    name = draft.attach(f"{draft.pick(_STEMS)}_{draft.rng.randrange(10, 100)}.py", Text(source))
    return draft.ask(_output(draft, name, "int", sum(found)))


@template("py-web", level=2)
def py_web(draft: Draft) -> Question:
    """A program picks an entity; the atlas leads from it to another, and to a fact."""
    table = draft.pick([table for table in draft.world.tables.values() if table.of_kind("ref")])
    names = [row["name"] for row in draft.some(table.rows, draft.rng.randrange(7, 14))]
    sequence = _Sequence(draft)
    listed = "".join(f"    {name!r},\n" for name in names)
    source = f"names = [\n{listed}]\n\n\n{sequence.source}    kept.append(x)\nprint(names[sum(kept) % len(names)])\n"
    chosen = names[sum(sequence.values()) % len(names)]
    name = draft.attach(f"{draft.pick(_STEMS)}_{draft.rng.randrange(10, 100)}.py", Text(source))
    printed = _output(draft, name, "text", chosen, f"the {table.name} whose name {name} prints")
    link = draft.pick(table.of_kind("ref"))
    target = draft.table(link.to)
    return draft.ask(
        fact(fact(printed, table, link), target, draft.pick(target.of_kind("text", "person", "int", "date")))
    )


class _Sequence:
    """A linear congruential sequence, and the program text that computes it up to the loop's body."""

    def __init__(self, draft: Draft):
        rng = draft.rng
        self.modulus = draft.pick(_MODULI)
        self.factor, self.shift = rng.randrange(2, 900), rng.randrange(1, 900)
        self.start, self.rounds = rng.randrange(self.modulus), rng.randrange(30, 300)
        self.source = (
            f"def step(x):\n    return ({self.factor} * x + {self.shift}) % {self.modulus}\n\n\n"
            f"x = {self.start}\nkept = []\nfor i in range({self.rounds}):\n    x = step(x)\n"
        )

    def values(self) -> list[int]:
        """What ``x`` is after each round."""
        x, found = self.start, []
        for _ in range(self.rounds):
            x = (self.factor * x + self.shift) % self.modulus
            found.append(x)
        return found


def _output(draft: Draft, name: str, kind: str, value: int | str, phrase: str = "") -> Term:
    phrase = phrase or draft.say(
        f"the number that {name} prints", f"the output of {name}", f"the result that {name} prints"
    )
    step = PlanStep("run_python", {"path": name}, (str(value),))
    return Term("int" if kind == "int" else "text", value, phrase, (step,), frozenset({name}))
