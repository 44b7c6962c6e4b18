"""The synthesis itself: explore the tools, then rounds of proposals through the gates, until there are enough.

Everything random is of the seed, and verdicts are given in the order of the proposals, however many are evaluated at
once: given the same replies of the language model, the same tasks are written.
"""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import json
import logging
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from aworld_gym.actions import canonical_json
from aworld_gym.errors import ConfigError, InfraError, OutputError
from aworld_gym.policies.endpoint import OpenAIPolicy
from aworld_gym.records.files import RecordFile, write_all
from aworld_gym.synth import prompts
from aworld_gym.synth.attachments import content_of, folder_of, place
from aworld_gym.synth.evaluation import Verdict, evaluate, said
from aworld_gym.synth.gates import ACCEPTED, GATES, Seen
from aworld_gym.synth.ledger import Lines
from aworld_gym.synth.proposal import Malformed, Proposal, read_items, read_proposal
from aworld_gym.synth.settings import Report, Settings
from aworld_gym.synth.solution import Solution
from aworld_gym.toolchain import Toolchain, loop
from aworld_gym.types import Limits, Message

log = logging.getLogger(__name__)

SUBMIT_TOOL = "submit_answer"
"""The last call of every task's plan; a server's own tool of that name is not used."""
SAMPLE_CHARS = 800
"""Of a sample call's result, shown in prompts."""
KNOWN_QUESTIONS = 30
"""Accepted questions that a prompt lists, the latest."""
BARREN_ROUNDS = 10
"""Rounds in a row without one well-formed proposal, after which the model is given up."""
TOOLS_A_PROMPT = 40
"""Tools that are explored with one prompt."""


def synthesize(
    mcp_config: str | os.PathLike[str] | Mapping[str, Any],
    llm: OpenAIPolicy,
    output: str | os.PathLike[str],
    *,
    n: int,
    settings: Settings | None = None,
    files: str | os.PathLike[str] | None = None,
    limits: Limits | Mapping[str, Any] | None = None,
    concurrency: int = 4,
    max_proposals: int | None = None,
    resume: bool = False,
    say: Callable[[str], None] | None = None,
) -> Report:
    """Make tasks for a toolchain; each accepted one is on disk at once.

    The tools are called as the language model proposes. Point them at what may be tried out: a stand-in account, a
    copy of a database.

    Args:
        mcp_config: the ``mcpServers`` configuration.
        llm: the language model; its sampling options are its own.
        output: a JSON-lines file of tasks, for ``from_records`` and ``AWorld/Mcp-v0``. Beside it stand
            ``<name>.synth.jsonl``, a line for every reply and verdict, and ``<name>_files/``.
        n: how many tasks.
        settings: what decides which tasks are made.
        files: a folder of files that every task has in its workspace.
        limits: time and length of tool calls.
        concurrency: proposals evaluated at once.
        max_proposals: after so many proposals it is given up; ten times ``n``, and at least 50, where None.
        resume: go on with ``output``; without it, one that has tasks is refused.
        say: called with a line about each round.

    Raises:
        ConfigError: what cannot work. InfraError: the tools or the model failed. OutputError: the disk is full, say.
            After the last two the run can be resumed.
    """
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise ConfigError(f"n must be a whole number of at least 1, got {n!r}")
    if isinstance(concurrency, bool) or not isinstance(concurrency, int) or concurrency < 1:
        raise ConfigError(f"concurrency must be a whole number of at least 1, got {concurrency!r}")
    settings = settings or Settings()
    output = Path(output)
    if output.suffix != ".jsonl":
        raise ConfigError(f"the output is a JSON-lines file, its name ends in .jsonl; got {str(output)!r}")
    toolchain = Toolchain(mcp_config, limits, settings.tools)
    placed = place(files, output)
    with Lines(output) as tasks, Lines(output.with_suffix(".synth.jsonl")) as ledger:
        if (tasks.rows or ledger.rows) and not resume:
            raise ConfigError(f"{output} already has tasks or a log; resume that run, or write to another place")
        run = _Synthesis(toolchain, llm, tasks, ledger, settings, placed, n, concurrency, say or log.info)
        run.begin(_identity(toolchain, llm, settings, placed))
        limit = max(10 * n, 50) if max_proposals is None else max_proposals
        try:
            loop.run(run.through(limit))
        except (InfraError, OutputError) as error:
            error.add_note(f"({len(tasks.rows)} tasks are kept in {output}; mend it, then resume the run.)")
            raise
        return run.report()


@dataclass
class _Synthesis:
    toolchain: Toolchain
    llm: OpenAIPolicy
    tasks: Lines
    ledger: Lines
    settings: Settings
    files: Sequence[RecordFile]
    wanted: int
    concurrency: int
    say: Callable[[str], None]

    tools: Sequence[Mapping[str, Any]] = ()
    samples: list[tuple[str, str]] | None = None
    """(tool, what is shown of the call)."""
    replies: dict[int, str] = field(default_factory=dict)
    verdicts: dict[tuple[int, int], str] = field(default_factory=dict)
    questions: list[str] = field(default_factory=list)
    stopped: str | None = None

    def __post_init__(self) -> None:
        self._seen = Seen(self.settings.similarity)
        self._written = {row.get("id") for row in self.tasks.rows}
        self._check: Callable[[str, Any], tuple[str, str] | None] = lambda tool, arguments: None
        self._slots = asyncio.Semaphore(self.concurrency)

    # ---- what stands already -----------------------------------------------------------------------------------------

    def begin(self, identity: Mapping[str, Any]) -> None:
        """Take up what the ledger has; ConfigError where it is of another synthesis."""
        if not self.ledger.rows:
            if self.tasks.rows:
                raise ConfigError(f"{self.tasks.path} has tasks, and {self.ledger.path} nothing of how they were made")
            self.ledger.append({"kind": "run", **identity})
            return
        first = self.ledger.rows[0]
        for name, value in json.loads(json.dumps(identity)).items():
            if first.get(name) != value:
                raise ConfigError(
                    f"{self.ledger.path} is of another run: its {name} is {first.get(name)!r}, this one's is "
                    f"{value!r}; resume with the same settings, or write to another place"
                )
        for row in self.ledger.rows[1:]:
            if row["kind"] == "samples":
                self.samples = [(tool, shown) for tool, shown in row["samples"]]
            elif row["kind"] == "round":
                self.replies[row["round"]] = row["reply"]
            elif row["kind"] == "verdict":
                self._remember(row["round"], row["index"], row["gate"], row.get("question", ""), row.get("keys", ()))

    def _remember(self, number: int, index: int, gate: str, question: str, keys: Sequence[str]) -> None:
        self.verdicts[number, index] = gate
        if gate == ACCEPTED:
            self.questions.append(question)
            self._seen.add(question, *keys)

    # ---- the run -----------------------------------------------------------------------------------------------------

    async def through(self, max_proposals: int) -> None:
        """Explore, then play rounds until there are enough tasks."""
        try:
            session = await self.toolchain.open()
            try:
                self.tools = [tool for tool in session.tools if tool["function"]["name"] != SUBMIT_TOOL]
                if not self.tools:
                    raise ConfigError(f"the servers offer no tool but {SUBMIT_TOOL!r}: there is nothing to ask for")
                # The table outlives the session, which only calls need.
                self._check = session.check
                if self.samples is None:
                    await self._explore()
            finally:
                await session.aclose()
            number = barren = 0
            while len(self.questions) < self.wanted and self.stopped is None:
                well_formed = await self._round(number)
                barren = 0 if well_formed else barren + 1
                if len(self.questions) >= self.wanted:
                    break
                if barren >= BARREN_ROUNDS:
                    self.stopped = f"{barren} replies in a row held no well-formed proposal; see {self.ledger.path}"
                elif len(self.verdicts) >= max_proposals:
                    self.stopped = f"{len(self.verdicts)} proposals were judged, which is the most that were asked for"
                number += 1
        finally:
            await self.llm.aclose()
            await self.toolchain.aclose()

    async def _explore(self) -> None:
        """Let the model try the tools; what came of it goes into the prompts."""
        found: list[tuple[str, str]] = []
        for start in range(0, len(self.tools), TOOLS_A_PROMPT) if self.settings.samples else ():
            tools = self.tools[start : start + TOOLS_A_PROMPT]
            reply = await said(self.llm, prompts.explore(tools, self._names(), self.settings.samples))
            session = await self.toolchain.open()
            try:
                await asyncio.to_thread(write_all, self.files, session.workspace)
                for tool, arguments in self._sample_calls(reply):
                    try:
                        result = await session.call("sample", tool, arguments)
                    except InfraError as error:  # a call that ends its server; the next prompt does without the rest
                        self.say(f"the sample call {tool}({json.dumps(arguments)}) failed: {error}")
                        break
                    found.append((tool, prompts.sample(tool, arguments, result, SAMPLE_CHARS)))
            finally:
                await session.aclose()
        self.samples = found
        self.ledger.append({"kind": "samples", "samples": found})
        self.say(f"tried {len(found)} sample calls of {len(self.tools)} tools")

    def _sample_calls(self, reply: str) -> list[tuple[str, Mapping[str, Any]]]:
        """Those calls of the reply that can be made; a reply without any leaves the prompts without samples."""
        try:
            items = read_items(reply)[: self.settings.samples]
        except Malformed:
            return []
        calls = [(i["tool"], i.get("arguments") or {}) for i in items if isinstance(i, Mapping) and "tool" in i]
        return [(tool, arguments) for tool, arguments in calls if self._check_call(tool, arguments) is None]

    async def _round(self, number: int) -> int:
        """Ask for proposals (or take the reply that is there), and judge each; returns how many were well-formed."""
        if number not in self.replies:
            reply = await said(self.llm, self._propose(number))
            self.ledger.append({"kind": "round", "round": number, "reply": reply})
            self.replies[number] = reply
        try:
            items = read_items(self.replies[number])[: 2 * self.settings.batch]
        except Malformed as error:
            items = [error]
        proposals = [self._read(item) for item in items] or [Malformed("the reply holds no task")]
        done = sum((number, index) in self.verdicts for index in range(len(proposals)))
        if done == len(proposals):
            return sum(isinstance(proposal, Proposal) for proposal in proposals)
        before = Counter(self.verdicts.values())
        work = [
            None
            if (number, index) in self.verdicts or self._repeats(proposal)
            else asyncio.create_task(self._evaluated(proposal))
            for index, proposal in enumerate(proposals)
        ]
        try:
            for index, proposal in enumerate(proposals):
                if len(self.questions) >= self.wanted:
                    break
                if (number, index) not in self.verdicts:
                    await self._judge(number, index, proposal, work[index])
        finally:
            rest = [task for task in work if task is not None]
            for task in rest:
                task.cancel()
            await asyncio.gather(*rest, return_exceptions=True)
        came = Counter(self.verdicts.values()) - before
        self.say(
            f"round {number + 1}: {', '.join(f'{count} {gate}' for gate, count in sorted(came.items()))}; "
            f"{len(self.questions)} of {self.wanted} tasks"
        )
        return sum(isinstance(proposal, Proposal) for proposal in proposals)

    def _read(self, item: Any) -> Proposal | Malformed:
        if isinstance(item, Malformed):
            return item
        try:
            return read_proposal(item, self._check_call)
        except Malformed as error:
            return error

    def _check_call(self, tool: str, arguments: Any) -> tuple[str, str] | None:
        if tool == SUBMIT_TOOL:
            return "call_unknown_tool", f"{SUBMIT_TOOL!r} is called by itself, after the last step"
        return self._check(tool, arguments)

    def _propose(self, number: int) -> list[Message]:
        rng = np.random.default_rng([self.settings.seed, number])
        names = [tool["function"]["name"] for tool in self.tools]
        focus = [names[i] for i in sorted(rng.permutation(len(names))[: min(3, len(names))])]
        shown = [text for tool, text in self.samples or () if tool in focus]
        shown += [text for tool, text in self.samples or () if tool not in focus][: max(0, 12 - len(shown))]
        return prompts.propose(
            self.tools,
            self._names(),
            shown,
            self.questions[-KNOWN_QUESTIONS:],
            count=self.settings.batch,
            focus=focus,
            steps=self.settings.steps,
        )

    # ---- the gates ---------------------------------------------------------------------------------------------------

    def _repeats(self, proposal: Proposal | Malformed) -> str | None:
        return None if isinstance(proposal, Malformed) else self._seen.repeats(proposal.question, proposal.key)

    async def _evaluated(self, proposal: Proposal | Malformed) -> Verdict:
        async with self._slots:
            return await evaluate(proposal, self.toolchain, self.llm, self.files, self.settings)

    async def _judge(
        self, number: int, index: int, proposal: Proposal | Malformed, work: asyncio.Task[Verdict] | None
    ) -> None:
        """Give the proposal its verdict, and write it down; first the task, where it is one."""
        repeated = self._repeats(proposal)
        verdict = await work if repeated is None and work is not None else Verdict("repeated", str(repeated))
        row: dict[str, Any] = {"kind": "verdict", "round": number, "index": index}
        keys: list[str] = []
        if isinstance(proposal, Proposal):
            row["question"] = proposal.question
            if verdict.solution is not None:
                keys = [proposal.key, verdict.solution.key]
                again = self._seen.repeats(proposal.question, *keys)
                if again is None:
                    self._write(proposal, verdict.solution)
                    row["keys"] = keys
                else:
                    verdict = Verdict("repeated", again)
        self.ledger.append({**row, "gate": verdict.gate, "reason": verdict.reason})
        self._remember(number, index, verdict.gate, row.get("question", ""), keys)

    def _write(self, proposal: Proposal, solution: Solution) -> None:
        """Write the task, unless a run that was killed right after it did so already."""
        record = self._record(proposal, solution)
        if record["id"] not in self._written:
            self.tasks.append(record)
            self._written.add(record["id"])

    def _record(self, proposal: Proposal, solution: Solution) -> dict[str, Any]:
        digest = hashlib.sha256(canonical_json([proposal.question, solution.key]).encode("utf-8", "replace"))
        plan = [{"tool": s.tool, "arguments": s.arguments, "shows": list(s.shows)} for s in solution.plan]
        files = {file.name: {"path": f"{folder_of(self.tasks.path)}/{file.name}"} for file in self.files}
        return {
            "id": f"synth-{digest.hexdigest()[:16]}",
            "prompt": proposal.question,
            "answer": dict(solution.answer),
            "plan": [*plan, {"tool": SUBMIT_TOOL, "arguments": {"answer": solution.text}}],
            **({"files": files} if files else {}),
            "tools": sorted({step.tool for step in solution.plan}),
        }

    # ---- small things ------------------------------------------------------------------------------------------------

    def report(self) -> Report:
        """The numbers."""
        came = Counter(self.verdicts.values())
        return Report(
            output=str(self.tasks.path),
            log=str(self.ledger.path),
            wanted=self.wanted,
            accepted=came[ACCEPTED],
            proposals=sum(came.values()),
            fell={gate: came[gate] for gate in GATES},
            rounds=len(self.replies),
            stopped=self.stopped,
        )

    def _names(self) -> list[str]:
        return [file.name for file in self.files]


def _identity(
    toolchain: Toolchain, llm: OpenAIPolicy, settings: Settings, files: Sequence[RecordFile]
) -> dict[str, Any]:
    """What must be the same for a synthesis to be continued. Of the servers only a digest: they hold secrets."""
    servers = [server.key for server in toolchain.config.servers]
    held = [[file.name, hashlib.sha256(content_of(file)).hexdigest()] for file in files]
    return {
        "servers": hashlib.sha256(json.dumps(servers).encode()).hexdigest()[:16],
        "files": hashlib.sha256(json.dumps(held).encode()).hexdigest()[:16] if held else None,
        "model": dict(llm.settings),
        "settings": dataclasses.asdict(settings),
    }
