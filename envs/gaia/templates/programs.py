"""Questions about programs."""

from __future__ import annotations

from aworld_gym.types import PlanStep
from envs.gaia.render import Text
from envs.gaia.templates import template
from envs.gaia.terms import Draft, Question, Term


@template("py-output", level=1)
def py_output(draft: Draft) -> Question:
    """What a program prints."""
    rng = draft.rng
    modulus = rng.choice((997, 1009, 2003, 4001, 7919))
    factor, shift, start, rounds = (
        rng.randrange(2, 900),
        rng.randrange(1, 900),
        rng.randrange(modulus),
        rng.randrange(30, 300),
    )
    source = (
        f"def step(x):\n    return ({factor} * x + {shift}) % {modulus}\n\n\n"
        f"x = {start}\nkept = []\nfor i in range({rounds}):\n    x = step(x)\n"
        "    if x % 3 == 1:\n        kept.append(x)\nprint(sum(kept[-5:]))\n"
    )
    x, kept = start, []
    for _ in range(rounds):
        x = (factor * x + shift) % modulus
        if x % 3 == 1:
            kept.append(x)
    result = sum(kept[-5:])
    name = draft.attach(
        f"{draft.say('program', 'sequence', 'generator', 'counter')}_{rng.randrange(10, 100)}.py", Text(source)
    )
    phrase = draft.say(f"the number that {name} prints", f"the output of {name}")
    return draft.ask(
        Term("int", result, phrase, (PlanStep("run_python", {"path": name}, (str(result),)),), frozenset({name}))
    )
