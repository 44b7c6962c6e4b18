"""Episodes on this process's own event loop: the default."""

from __future__ import annotations

from aworld_gym.engines.base import Engine, Played
from aworld_gym.play import Item


class LocalEngine(Engine):
    """Plays in a pool of envs of this process."""

    async def open(self, at_once: int) -> None:
        """Start the policy, where that is to be done; envs are made when they are needed."""
        start = getattr(self.policy, "astart", None)
        if start is not None:
            await start()

    async def play(self, item: Item, attempt: int) -> Played:
        """Play one attempt in an env of the pool."""
        return Played(await self.pool.play(item, attempt, deadline_s=self.deadline_s))

    def fewer(self) -> None:
        """Close an env that no further episode will want."""
        self.pool.close_one()

    async def close(self) -> None:
        """The pool is the base's to close."""
