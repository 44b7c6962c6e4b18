"""``check_adapter``: does a rollout path hand a trainer exactly what was sampled, appended and earned?

An adapter for another trainer offers its rollout path as a function of the form
:class:`~aworld_gym.trained.RolloutRows`: what it does in training, with a given sampler in the place of the trainer's
own. Here that function plays episodes of a reference env whose course is known, with a sampler that knows what it has
sampled; nothing is compared with the adapter's own word.
"""

from __future__ import annotations

import tempfile
import time
from collections import defaultdict
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from aworld_gym.generation import Sampled
from aworld_gym.play import Item
from aworld_gym.testing import reference
from aworld_gym.testing.reference import BUDGET, Script
from aworld_gym.testing.rules import AdapterError, Rules
from aworld_gym.token_policy import token_rollout
from aworld_gym.tokens import ChatCodec
from aworld_gym.trained import RolloutRows, TrainedRow

ADAPTER_RULES = {
    "one_row_per_item": "A rollout gives one row for each item, in the order of the items.",
    "aligned": "Mask, log-probabilities and turn ends are aligned with the response ids, turn rewards with turn ends.",
    "spec_reaches_the_env": "An env is rebuilt from its spec, with its arguments and its wrappers.",
    "seed_reaches_the_env": "An episode is reset with the seed of its item.",
    "prompt_ids": "The prompt is what ChatCodec.prompt makes of the env's messages and tools.",
    "sampled_ids_exact": "Ids with mask 1 are the sampler's, unchanged: a turn is never tokenised again.",
    "mask_only_on_sampled_ids": "Whatever the sampler did not sample has mask 0.",
    "sampled_after_the_same_ids": "A turn stands in its row after exactly the ids that it was sampled after.",
    "no_id_beyond_the_stop": "A turn ends with its first stop id, whatever the sampler gives beyond it.",
    "appended_ids": "What is appended after a turn is what ChatCodec.extend makes of the env's answer.",
    "turn_ends": "Turn ends are the last sampled id of each turn.",
    "turn_rewards": "Each turn has the reward of its own env step.",
    "truncation": "Prompts aside, no row is longer than max_tokens, and a turn that was cut keeps its ids.",
    "logprobs": "Where a row has log-probabilities, they are the sampler's, and 0.0 where the mask is 0.",
    "without_logprobs": "A sampler without log-probabilities is trained on without them, or its rows are not valid.",
    "failures_are_retried": "An episode that infrastructure spoiled is played again, in a fresh env, from its prompt.",
    "invalid_rows_have_no_loss": "An episode that is no measurement is marked invalid and has no id with mask 1.",
    "slow_tools_are_answered": "A tool that does not answer in time is reported to the model, and the episode goes on.",
    "siblings_are_unharmed": "Rows of other episodes are what they are without those that failed.",
    "envs_are_closed": "Every env is closed, whatever became of its episode.",
    "same_again": "The same sampler and items give the same rows.",
    "sampler_fails_cleanly": "A sampler that raises ends the rollout or makes rows invalid, and envs are closed.",
}
"""What :func:`check_adapter` checks, by name."""

SETTLE_S = 10.0
"""How long a closed env may take until its workspace is gone."""

_PLAIN = ("hostile", "plain", "overruns", "direct", "parallel", "plain", "wrong", "babbles", "stops", "hostile")


def check_adapter(
    rollout: RolloutRows, *, codec: ChatCodec | None = None, max_tokens: int = BUDGET, skip: Collection[str] = ()
) -> tuple[str, ...]:
    """Check an adapter's rollout path.

    Args:
        rollout: the function; see :class:`~aworld_gym.trained.RolloutRows`.
        codec: for a tokenizer and template of yours; by default one that is built here (which needs transformers).
        max_tokens: ids of an episode after its prompt. More than the default, if your codec writes tool calls at
            greater length.
        skip: names of rules that are not checked.

    Returns:
        The names of the rules that were checked.

    Raises:
        AdapterError: a rule does not hold; it names which.
        MissingDependencyError: no ``codec``, and no transformers to build one.
    """
    rules = Rules(ADAPTER_RULES, skip, AdapterError)
    check = _Check(rollout, codec or reference.codec(), max_tokens, rules)
    check.episodes()
    check.lengths()
    check.failures()
    check.edges()
    return tuple(rules.checked)


class _Check:
    def __init__(self, rollout: RolloutRows, codec: ChatCodec, max_tokens: int, rules: Rules):
        self.rollout, self.codec, self.max_tokens, self.rules = rollout, codec, max_tokens, rules

    # ---- scenes ------------------------------------------------------------------------------------------------------

    def episodes(self) -> None:
        """Episodes of all kinds that end by themselves: each row against the sampler, then against the core's."""
        items = reference.items(*_PLAIN)
        script = Script(self.codec)
        rows = self.play(script, items)
        expected = self.core(items)
        prompts, wanted = [row.prompt_ids for row in rows], [row.prompt_ids for row in expected]
        moved = prompts != wanted and sorted(prompts) == sorted(wanted)
        self.rules.require("one_row_per_item", not moved, "the rows are in another order")
        for item, row, right in zip(items, rows, expected, strict=True):
            self.row(f"row {item.index} ({item.group_id})", row, right, script)
        again = self.play(Script(self.codec), items)
        self.rules.equal("same_again", _ids(again), _ids(rows), "ids of a second rollout")

    def lengths(self) -> None:
        """Budgets that end in the middle of a turn, of an observation, and before anything."""
        items = reference.items("hostile", "plain")
        whole = self.core(items)
        first, second = whole[0].turns[0], whole[0].turns[1]
        for limit in (1, first[1] - 1, first[1], first[1] + 1, second[0], second[0] + 2):
            rows, script = [], Script(self.codec)
            rows = self.play(script, items, max_tokens=limit)
            right = self.core(items, max_tokens=limit)
            for item, row, one in zip(items, rows, right, strict=True):
                what = f"row {item.index} with max_tokens={limit}"
                longer = len(row.response_ids) - limit
                self.rules.require("truncation", longer <= 0, f"{what} is longer by {longer}")
                self.rules.equal("truncation", row.response_ids, one.response_ids, what)
                self.rules.equal("truncation", row.mask, one.mask, what)

    def failures(self) -> None:
        """Envs that cannot be reset or break in the middle: once, and always."""
        kinds = ("plain", "flaky", "hopeless", "direct", "breaks", "hopeless", "plain")
        items = reference.items(*kinds)
        with tempfile.TemporaryDirectory(prefix="aworld-check-") as folder:
            ledger = Path(folder)
            rows = list(self.call(Script(self.codec), items, ledger))
            self.rules.equal("one_row_per_item", len(rows), len(items), "rows")
            right = self.core(items)  # keeps no ledger, so that nothing fails
            for item, kind, row, one in zip(items, kinds, rows, right, strict=True):
                what = f"row {item.index} ({kind})"
                if kind == "hopeless":
                    self.rules.require("invalid_rows_have_no_loss", not row.valid, f"{what} is marked valid")
                    self.rules.equal("invalid_rows_have_no_loss", sum(row.mask), 0, f"{what}: ids with mask 1")
                    self.rules.equal("invalid_rows_have_no_loss", len(row.turn_rewards), 0, f"{what}: turn rewards")
                    continue
                rule = "failures_are_retried" if kind in ("flaky", "breaks") else "siblings_are_unharmed"
                self.rules.require(rule, row.valid, f"{what} is marked invalid")
                self.rules.equal(rule, _plain(row), _plain(one), what)
            tries = len((ledger / "opened-flaky").read_text(encoding="utf-8").splitlines())
            self.rules.equal(
                "failures_are_retried", tries, 2, "attempts at the episode whose first env cannot be reset"
            )
            self.closed(ledger)

    def edges(self) -> None:
        """A tool that hangs; a sampler without log-probabilities, and one that raises."""
        if self.rules.wanted("slow_tools_are_answered"):
            items = reference.items("slow")
            (row,), (right,) = self.play(Script(self.codec), items, slow=True), self.core(items, slow=True)
            self.rules.require("slow_tools_are_answered", row.valid, "the row is marked invalid")
            self.rules.equal("slow_tools_are_answered", _plain(row), _plain(right), "the row")
        items = reference.items("plain", "direct")
        if self.rules.wanted("without_logprobs"):
            for item, row in zip(items, self.play(Script(self.codec, logprobs=False), items), strict=True):
                invented = row.valid and any(p == p and p != 0.0 for p in row.logprobs or ())
                self.rules.require("without_logprobs", not invented, f"row {item.index} has {row.logprobs}")
        if self.rules.wanted("sampler_fails_cleanly"):
            self.failing_sampler(reference.items("plain", "direct", "plain"))

    def failing_sampler(self, items: Sequence[Item]) -> None:
        script = Script(self.codec)

        def fails(prompts: list[list[int]], limits: list[int]) -> list[Sampled]:
            if len(script.asked) >= 2:
                raise ConnectionError("the sampler is told to fail")
            return script(prompts, limits)

        with tempfile.TemporaryDirectory(prefix="aworld-check-") as folder:
            try:
                rows = list(self.call(fails, items, Path(folder)))
            except Exception:  # what it raises is the adapter's to choose
                rows = []
            for row in rows:
                sound = not row.valid or sum(row.mask) > 0
                self.rules.require("sampler_fails_cleanly", sound, "a valid row has nothing to train on")
            self.closed(Path(folder), rule="sampler_fails_cleanly")

    # ---- one row -----------------------------------------------------------------------------------------------------

    def row(self, what: str, row: TrainedRow, right: TrainedRow, script: Script) -> None:
        """All rules of one row of an episode that ended by itself."""
        rules, n = self.rules, len(row.response_ids)
        rules.equal("aligned", len(row.mask), n, f"{what}: length of the mask")
        rules.equal("aligned", len(row.turn_rewards), len(row.turn_ends), f"{what}: number of turn rewards")
        rules.require("aligned", all(0 <= end < n for end in row.turn_ends), f"{what}: turn ends {row.turn_ends}")
        if row.logprobs is not None:
            rules.equal("aligned", len(row.logprobs), n, f"{what}: number of log-probabilities")
        rules.equal("siblings_are_unharmed", row.valid, True, f"{what}: valid")
        self.prompt(what, row, right)
        self.turns(what, row, script)
        rules.equal("appended_ids", _appended(row), _appended(right), f"{what}: ids between turns")
        rules.equal("sampled_ids_exact", row.response_ids, right.response_ids, f"{what}: response ids")
        rules.equal("mask_only_on_sampled_ids", row.mask, right.mask, f"{what}: mask")
        rules.equal("turn_ends", row.turn_ends, right.turn_ends, f"{what}: turn ends")
        rules.equal("turn_rewards", _rewards(row), _rewards(right), f"{what}: turn rewards")
        if row.logprobs is not None and rules.wanted("logprobs"):
            for k, (i, bit, p) in enumerate(zip(row.response_ids, row.mask, row.logprobs, strict=True)):
                wanted = Script.logprob(i) if bit else 0.0
                rules.require("logprobs", abs(p - wanted) < 1e-6, f"{what}, id {k}: expected {wanted}, got {p}")

    def prompt(self, what: str, row: TrainedRow, right: TrainedRow) -> None:
        if row.prompt_ids == right.prompt_ids:
            for rule in ("spec_reaches_the_env", "seed_reaches_the_env", "prompt_ids"):
                self.rules.require(rule, True)
            return
        said, wanted = (self.codec.tokenizer.decode(list(one.prompt_ids)) for one in (row, right))
        kind = wanted.partition("Kind: ")[2].partition(".")[0]
        self.rules.require(
            "spec_reaches_the_env", "你好" in said, f"{what}: the env's system prompt is not in {said[:200]!r}"
        )
        self.rules.require(
            "seed_reaches_the_env", f"Kind: {kind}." in said, f"{what}: expected a task of the kind {kind!r}"
        )
        self.rules.equal("prompt_ids", row.prompt_ids, right.prompt_ids, f"{what}: prompt ids")

    def turns(self, what: str, row: TrainedRow, script: Script) -> None:
        """Runs of mask 1 against what the sampler remembers; needs no expected row."""
        known: dict[tuple[int, ...], list[tuple[int, ...]]] = defaultdict(list)
        for context, ids in script.asked:
            known[context].append(ids)
        outputs = {ids for found in known.values() for ids in found}
        for start, stop in _runs(row.mask):
            context, run = row.prompt_ids + row.response_ids[:start], row.response_ids[start:stop]
            where = f"{what}, ids {start} to {stop}"
            if context in known and run in known[context]:
                continue
            longer = [ids for ids in outputs if len(run) > len(ids) and run[: len(ids)] == ids]
            if longer:
                rule = "no_id_beyond_the_stop" if what.endswith("overruns)") else "mask_only_on_sampled_ids"
                self.rules.require(
                    rule, False, f"{where}: {len(run) - len(longer[0])} more than were sampled have mask 1"
                )
            self.rules.require("sampled_ids_exact", run in outputs, f"{where}: nobody sampled {run[:40]}")
            self.rules.require("sampled_after_the_same_ids", False, f"{where}: was sampled after other ids")
        for rule in ("sampled_after_the_same_ids", "no_id_beyond_the_stop"):
            self.rules.require(rule, True)

    # ---- playing -----------------------------------------------------------------------------------------------------

    def call(
        self, generate: Any, items: Sequence[Item], ledger: Path, *, max_tokens: int | None = None, slow: bool = False
    ) -> Sequence[TrainedRow]:
        """The adapter's rollout."""
        env = reference.shaped(ledger, slow=slow)
        try:
            return self.rollout(env, self.codec, generate, items, max_tokens=max_tokens or self.max_tokens)
        finally:
            env.close()

    def play(self, script: Script, items: Sequence[Item], **options: Any) -> list[TrainedRow]:
        """The adapter's rows, one per item, envs closed."""
        with tempfile.TemporaryDirectory(prefix="aworld-check-") as folder:
            rows = list(self.call(script, items, Path(folder), **options))
            self.closed(Path(folder))
        self.rules.equal("one_row_per_item", len(rows), len(items), "rows")
        return rows

    def core(self, items: Sequence[Item], *, max_tokens: int | None = None, slow: bool = False) -> list[TrainedRow]:
        """The rows of the package's own rollout of the same episodes, none of which fails."""
        env, script = reference.shaped(slow=slow), Script(self.codec)
        played = token_rollout(env, self.codec, script, items, max_tokens=max_tokens or self.max_tokens)
        env.close()
        return [TrainedRow.of(one, filler=min(self.codec.stop_ids)) for one in played]

    def closed(self, ledger: Path, rule: str = "envs_are_closed") -> None:
        """Workspaces are gone, in whatever process the envs were."""
        if not self.rules.wanted(rule):
            return
        deadline = time.monotonic() + SETTLE_S
        while (left := [p for p in reference.workspaces(ledger) if p.exists()]) and time.monotonic() < deadline:
            time.sleep(0.02)
        self.rules.require(rule, not left, f"{len(left)} episodes' workspaces are still there, such as {left[:1]}")


def _runs(mask: Sequence[int]) -> list[tuple[int, int]]:
    edges = [k for k in range(len(mask) + 1) if (mask[k] if k < len(mask) else 0) != (mask[k - 1] if k else 0)]
    return list(zip(edges[::2], edges[1::2], strict=True))


def _appended(row: TrainedRow) -> list[tuple[int, ...]]:
    """The ids of each run of zeros."""
    return [row.response_ids[a:b] for a, b in _runs([1 - bit for bit in row.mask])]


def _ids(rows: Sequence[TrainedRow]) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    return [(row.prompt_ids, row.response_ids) for row in rows]


def _plain(row: TrainedRow) -> tuple[Any, ...]:
    return row.prompt_ids, row.response_ids, row.mask, row.turn_ends, _rewards(row)


def _rewards(row: TrainedRow) -> tuple[float, ...]:
    """Rounded: a trainer may hold them as float32."""
    return tuple(round(reward, 5) for reward in row.turn_rewards)
