"""The part of ``check_toolchain_env`` that plays again: in other envs, processes and ways, all gives the same."""

from __future__ import annotations

import asyncio
import copy
import pickle
from typing import Any

from gymnasium.envs.registration import EnvSpec

from aworld_gym import aio
from aworld_gym.errors import describe
from aworld_gym.making import make_tool_env
from aworld_gym.testing.digest import digest_elsewhere, plain, record
from aworld_gym.testing.played import Played
from aworld_gym.toolchain import loop

SEEDS_TRIED = 16
"""How many seeds may give the same task before that is taken for a fault."""


class Again(Played):
    """An env, and the rules that show when an episode is played once more."""

    def determinism(self, elsewhere: bool) -> None:
        """A seed decides everything: in this env, in another, and in other processes (``elsewhere``)."""
        rules = self.rules
        played = {}
        for seed in self.seeds:
            with self.env() as env, self.env() as other:
                played[seed] = record(env, seed, self.actions)
                for what, again in (("another env", other), ("the same env", env)):
                    found = record(again, seed, self.actions)
                    for k, (one, two) in enumerate(zip(found, played[seed], strict=False)):
                        rules.equal("seed_decides", one, two, f"seed {seed}, step {k}, in {what}")
                    rules.equal("seed_decides", len(found), len(played[seed]), f"seed {seed}: steps in {what}")
        if rules.wanted("seeds_differ"):
            tasks = self.some_tasks()
            rules.require("seeds_differ", len(tasks) > 1 or self.one_task(), f"{SEEDS_TRIED} seeds: only {tasks}")
        spec = self.spec
        if not elsewhere or spec is None or not isinstance(spec.entry_point, str):
            return  # no other process can make it, or knows what to play
        if rules.wanted("seed_decides_elsewhere"):
            for hash_seed in (1, 2):
                played_there = digest_elsewhere(spec, self.seeds, hash_seed)
                for seed, steps in zip(self.seeds, played_there, strict=True):
                    for k, (one, two) in enumerate(zip(steps, played[seed], strict=False)):
                        rules.equal("seed_decides_elsewhere", one, two, f"seed {seed}, step {k}")
                    rules.equal("seed_decides_elsewhere", len(steps), len(played[seed]), f"seed {seed}: steps")

    def some_tasks(self) -> set[str]:
        """Ids of tasks of some seeds: of no more than it takes to see two."""
        found: set[str] = set()
        with self.env() as env:
            for seed in range(SEEDS_TRIED):
                found.add(env.reset(seed=seed)[1]["task_id"])
                if len(found) > 1:
                    break
        return found

    def one_task(self) -> bool:
        """Whether the env has no more than one task."""
        with self.env() as env:
            return len(getattr(env.get_wrapper_attr("tasks"), "tasks", (1, 2))) == 1

    def rebuilding(self) -> None:
        """An env that is rebuilt from its spec, or copied, plays the same."""
        rules, seed = self.rules, self.seeds[0]
        with self.env() as env:
            first = record(env, seed, self.actions)
            if self.spec is not None:
                try:
                    again = EnvSpec.from_json(env.spec.to_json())  # type: ignore[union-attr]
                except Exception as error:
                    rules.broken("spec_round_trip", describe(error))
                rebuilt = make_tool_env(again)
                try:
                    rules.equal(
                        "spec_round_trip", record(rebuilt, seed, self.actions), first, "an episode of the rebuilt env"
                    )
                finally:
                    rebuilt.close()
        if rules.wanted("copies"):
            fresh = self.make()
            try:
                try:
                    copies = [copy.deepcopy(fresh.unwrapped), pickle.loads(pickle.dumps(fresh.unwrapped))]
                except Exception as error:
                    rules.broken("copies", describe(error))
                obs, _ = fresh.unwrapped.reset(seed=seed)
                for duplicate in copies:
                    rules.equal("copies", plain(duplicate.reset(seed=seed)[0]), plain(obs), "what a copy shows")
                    duplicate.close()
            finally:
                fresh.close()

    def asynchronous(self) -> None:
        """So does one that is awaited, or used inside a running loop."""
        if not self.rules.wanted("async_is_sync"):
            return
        seed = self.seeds[0]
        with self.env() as env:
            expected = record(env, seed, self.actions)

        async def played() -> list[str]:
            env = self.make()
            try:
                obs, info = await aio.areset(env, seed=seed)
                steps = [plain([obs, info])]
                for action in self.actions(info["tools"], seed):
                    result = await aio.astep(env, action)
                    steps.append(plain(result))
                    if result[2] or result[3]:
                        break
                return steps
            finally:
                await aio.aclose(env)

        async def facade() -> Any:
            with self.env() as env:
                return env.reset(seed=seed)

        self.rules.equal("async_is_sync", loop.run(played()), expected, "an awaited episode")
        self.rules.equal("async_is_sync", plain(asyncio.run(facade())), expected[0], "reset() inside a running loop")
