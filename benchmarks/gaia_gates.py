"""What ``gaia_quality`` measures: functions of a handful of tasks that give plain counts, so that processes share them.

Nothing here knows a bar. The independent solver and its readers stand in ``tests/lib``.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
import random
import re
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests" / "lib"), str(ROOT)]

import gaia_evidence  # noqa: E402
from gaia_grammar import ATTRIBUTES  # noqa: E402
from gaia_solver import FRAME  # noqa: E402

import aworld_gym  # noqa: E402, F401  (registers the env)
from aworld_gym.policies import OraclePolicy, Policy, RandomPolicy  # noqa: E402
from aworld_gym.rollout import rollout  # noqa: E402
from aworld_gym.types import Task  # noqa: E402
from benchmarks.gaia_guesser import GuessingReader  # noqa: E402
from envs.gaia import scorers  # noqa: E402
from envs.gaia.levels import fits  # noqa: E402
from envs.gaia.splits import SPLITS  # noqa: E402
from envs.gaia.tasks import GaiaTasks  # noqa: E402
from envs.gaia.templates import templates  # noqa: E402
from envs.gaia.world import FLAVOURS  # noqa: E402

POLICIES: Mapping[str, type[Policy]] = {"oracle": OraclePolicy, "random": RandomPolicy, "guessing": GuessingReader}
KEPT = 20
"""Failures that a result names."""
TRAINING_FLAVOURS = tuple(flavour for flavour in FLAVOURS if flavour != "real")
LEVELS = tuple(sorted({one.level for one in templates().values()}))


@dataclass(frozen=True)
class Draw:
    """Tasks to draw: the same each time."""

    level: int
    split: str
    world: str
    seed: int
    count: int

    def tasks(self) -> list[Task]:
        """The tasks, built."""
        rng = np.random.default_rng([self.seed, self.level, SPLITS.index(self.split), FLAVOURS.index(self.world)])
        source = GaiaTasks(self.split, level=self.level, world=self.world)
        return [source.sample(rng) for _ in range(self.count)]


def draws(count: int, seed: int, levels: Iterable[int] = LEVELS, worlds: Sequence[str] = FLAVOURS) -> list[Draw]:
    """``count`` tasks of each level, spread evenly over splits and worlds, the real one included."""
    places = list(itertools.product(SPLITS, worlds))
    shares = [count // len(places) + (i < count % len(places)) for i in range(len(places))]
    return [
        Draw(level, split, world, seed, share)
        for level in levels
        for (split, world), share in zip(places, shares, strict=True)
        if share
    ]


# --- true answers -----------------------------------------------------------------------------------------------


def solved(draw: Draw) -> dict[str, Any]:
    """How many answers the independent solver finds too, and how many both scorers take."""
    found: dict[str, Any] = {"level": draw.level, "tasks": 0, "solver": 0, "scorers": 0, "failures": []}
    for task in draw.tasks():
        answer = attempt(task)
        found["tasks"] += 1
        found["solver"] += answer == task.answer["text"]
        found["scorers"] += all(scorers.score(task.answer, task.answer["text"], w).value == 1 for w in scorers.SCORERS)
        if answer != task.answer["text"]:
            found["failures"].append({"task": task.id, "answer": task.answer["text"], "solver": answer})
    return found


def attempt(task: Task, **missing: Any) -> str:
    """The solver's answer, or why it has none (in a form that no answer has)."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            return gaia_evidence.answer_of(task, Path(folder), **missing)
        except gaia_evidence.UNSOLVED as error:
            return f"({type(error).__name__}: {str(error)[:300]})"


def needed(draw: Draw) -> dict[str, Any]:
    """Tasks that are solved although something that they need is missing, or with one of their files alone."""
    found: dict[str, Any] = {"tasks": 0, "removals": 0, "failures": []}
    for task in draw.tasks():
        found["tasks"] += 1
        trials: list[dict[str, Any]] = [{"without": need} for need in task.metadata["needs"]]
        containers = {need.split("!")[0] for need in task.metadata["needs"] if "!" in need}
        trials += [{"only": name} for name in task.metadata["files"] if name not in containers]
        for trial in trials:
            found["removals"] += 1
            if attempt(task, **trial) == task.answer["text"]:
                found["failures"].append({"task": task.id, **trial})
    return found


# --- policies ---------------------------------------------------------------------------------------------------


def played(draw: Draw, policy: str) -> dict[str, Any]:
    """Success of a policy in real episodes with real tools. An invalid episode counts as a failure of the oracle."""
    episodes = rollout(
        lambda: gym.make("AWorld/Gaia-v0", split=draw.split, level=draw.level, world=draw.world),
        POLICIES[policy](),
        episodes=draw.count,
        seed=draw.seed,
        concurrency=4,
    )
    scored = [episode for episode in episodes if episode.valid]
    return {
        "level": draw.level,
        "episodes": draw.count,
        "invalid": draw.count - len(scored),
        "right": sum(episode.score == 1.0 for episode in scored),
        "failures": [
            {"task": episode.task_id, "outcome": str(episode.outcome)} for episode in episodes if episode.score != 1.0
        ][:KEPT],
    }


# --- guessing ---------------------------------------------------------------------------------------------------


def answers_of(template: str, count: int, worlds: Sequence[str], seed: int) -> dict[str, Any]:
    """The template's commonest answer, and its share."""
    split, rng = templates()[template].split, np.random.default_rng(seed)
    common: Counter[str] = Counter()
    for world in worlds:  # every template has tasks in the worlds that are trained on
        source = GaiaTasks(split, world=world, templates=[template])
        common.update(source.sample(rng).answer["text"] for _ in range(count // len(worlds)))
    answer, times = min(common.items(), key=lambda pair: (-pair[1], pair[0]))
    return {"template": template, "answer": answer, "share": times / common.total(), "tasks": common.total()}


def recalled(draw: Draw) -> list[dict[str, Any]]:
    """Questions of the shifted world, with what their answer is where only the real tables are known.

    The attacker understands every question (it is the independent solver) and knows the real world by heart, but sees
    no file and no page.
    """
    found = []
    for task in draw.tasks():
        question = task.prompt.split("\n\n")[0]
        found.append(
            {"question": question, "answer": dict(task.answer), "recall": _recall(task), "shapes": shapes(question)}
        )
    return found


def webless(draw: Draw) -> dict[str, int]:
    """Of the tasks that need a page of the web: how many are solved with their files and the real world's pages."""
    tasks = [task for task in draw.tasks() if any("://" in need for need in task.metadata["needs"])]
    return {"tasks": len(tasks), "right": sum(_recall(task, files=True) == task.answer["text"] for task in tasks)}


def _recall(task: Task, *, files: bool = False) -> str | None:
    with tempfile.TemporaryDirectory() as folder:
        try:
            return gaia_evidence.from_memory(task, Path(folder), files=files)
        except gaia_evidence.UNSOLVED:
            return None


def shapes(question: str) -> list[str]:
    """What a question has in common with others, from the most to the least special.

    First its noun phrase with names, numbers and files masked; then what the phrase begins with, which is the
    attribute or the kind of result that is asked for; then nothing.
    """
    phrase = next((match[1] for s in re.split(r"(?<=[.?]) ", question) if (match := FRAME.fullmatch(s))), question)
    names = r"\S*[\w-]\.[a-z]\w+\b|[A-Z][\w'-]*(?: (?:and |of |the )?[A-Z][\w'-]*)*|\d[\d.,-]*"
    masked = re.sub(r"# (?=#)", "", re.sub(names, "#", phrase))
    asked = next((name for name in sorted(ATTRIBUTES, key=len, reverse=True) if phrase.startswith(f"the {name} ")), "")
    begun = re.match(r"(.*?) (?:of|over|in|among|from|between|that|with|to|recorded)\b", masked)
    return [masked, asked or (begun[1] if begun else masked), ""]


def guessed(known: Sequence[dict[str, Any]], asked: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Shares of ``asked`` that are right by recall, by the best constant for such questions in ``known``, by both."""
    common: dict[str, Counter[str]] = {}
    for item in known:
        for shape in item["shapes"]:
            common.setdefault(shape, Counter())[item["answer"]["text"]] += 1
    right = Counter(dict.fromkeys(("recall", "constant", "both"), 0))
    for item in asked:
        shape = next(shape for shape in item["shapes"] if len(common.get(shape, ())) >= 1 and _many(common[shape]))
        constant = min(common[shape].items(), key=lambda pair: (-pair[1], pair[0]))[0]
        recall = item["recall"]
        for name, guess in (("recall", recall), ("constant", constant), ("both", recall or constant)):
            right[name] += scorers.score(item["answer"], guess).value == 1.0
    return {name: count / len(asked) for name, count in right.items()}


def _many(answers: Counter[str]) -> bool:
    return answers.total() >= 30 or answers.most_common(1)[0][1] > 2


# --- bytes, time and size -----------------------------------------------------------------------------------------


def contents(draw: Draw) -> list[tuple[str, str, bool]]:
    """A hash of question and answer, the id, and whether the plan has the task's level, of each task.

    The files of tasks matter only where questions and answers are alike.
    """
    return [
        (_digest(f"{task.prompt}\0{task.answer['text']}".encode()), task.id, fits(draw.level, task.plan))
        for task in draw.tasks()
    ]


def files_digest(task_id: str) -> str:
    """A hash of the task's files."""
    source = GaiaTasks(task_id.split("/")[1])
    with tempfile.TemporaryDirectory() as folder:
        source.setup(source.get(task_id), Path(folder))
        return _digest(*(part for p in sorted(Path(folder).iterdir()) for part in (p.name.encode(), p.read_bytes())))


def _digest(*parts: bytes) -> str:
    whole = hashlib.sha256()
    for part in parts:
        whole.update(len(part).to_bytes(8, "big") + part)
    return whole.hexdigest()


def print_digests(count: int, seed: int) -> None:
    """A line for each of ``count`` tasks of every template and world: its files, itself, and its pages."""
    from envs.gaia.world import pages

    rng, webs = random.Random(seed), {}
    for one in templates().values():
        for world in one.worlds:
            source = GaiaTasks(one.split, world=world, templates=[one.name])
            for _ in range(count):
                task = source.sample(np.random.default_rng(rng.randrange(1 << 32)))
                webs[json.dumps(task.public, sort_keys=True)] = task.public["corpus"]
                sys.stdout.write(f"{task.id} {files_digest(task.id)} {_digest(repr(task).encode())}\n")
    for name, corpus in webs.items():
        sys.stdout.write(f"{name} {_digest(repr(list(pages(corpus).items())).encode())}\n")


def times(count: int, seed: int) -> dict[int, float]:
    """Median CPU milliseconds to draw, make and render a task that was not seen before, by level; the process warm."""
    rng, found = np.random.default_rng(seed), {}
    for level in LEVELS:
        sources = [GaiaTasks(split, level=level) for split in SPLITS]
        spent = []
        for number in range(40 + count):  # the first ones import and make worlds
            source = sources[number % len(sources)]
            with tempfile.TemporaryDirectory() as folder:
                start = time.process_time()
                source.setup(source.sample(rng), Path(folder))
                spent.append(time.process_time() - start)
        found[level] = round(1000 * statistics.median(spent[40:]), 2)
    return found


def schema_tokens() -> int:
    """Tokens that the tools add to a prompt, by Qwen3's tokenizer and chat template."""
    import chat_tokenizers
    from gaia_tools import openai_schemas, served

    async def listed() -> list[dict[str, Any]]:
        with tempfile.TemporaryDirectory() as folder:
            async with served(Path(folder)) as session:
                return openai_schemas(await session.tools())

    tokenizer = chat_tokenizers.build("real_qwen3")
    chat = [{"role": "user", "content": "x"}]
    with_tools, without = (
        tokenizer.apply_chat_template(chat, tools=tools, tokenize=False) for tools in (asyncio.run(listed()), None)
    )
    return len(tokenizer(with_tools)["input_ids"]) - len(tokenizer(without)["input_ids"])


if __name__ == "__main__":
    print_digests(int(sys.argv[1]), int(sys.argv[2]))
