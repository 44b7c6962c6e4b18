"""Programs of tasks: sequences that have to be run, since nobody computes them in the head."""

from __future__ import annotations

from envs.gaia.terms import Draft

_MODULI = (997, 1009, 2003, 4001, 7919)


class Sequence:
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
