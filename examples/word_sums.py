"""A question-and-answer data set as an env: word problems in GSM8K's two columns, with a calculator as the tool.

    python examples/word_sums.py --rows 200 --output runs/word_sums          # writes rows.jsonl, plays them
    python examples/word_sums.py --policy openai                             # LLM_BASE_URL, LLM_MODEL_NAME are read

The problems are invented here, by program. The real data set goes the same way, since a Hugging Face ``Dataset`` is as
good as a file:

    rows = datasets.load_dataset("openai/gsm8k", "main")["train"]
    tasks = from_records(rows, prompt="question", answer="answer", scorer="number")

(``rows.to_parquet("train.parquet")`` makes it a file that workers of a trainer can read again, as below.)
``scorer="number"`` reads the last number of truth and answer, so a worked solution that ends in ``#### 72`` will do.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Callable
from pathlib import Path

import gymnasium as gym

import aworld_gym  # noqa: F401  (registers AWorld/*)
from aworld_gym import policies
from aworld_gym.metrics import summarize
from aworld_gym.rollout import rollout

NAMES = ("Ines", "Tomo", "Lale", "Piet", "Wanda", "Kofi", "Mirja", "Sami")
THINGS = ("pears", "marbles", "stamps", "candles", "bricks", "postcards", "walnuts", "buttons")

Problem = tuple[str, list[str], str, int]
"""Question, lines of the solution, one expression for the calculator, answer."""


def boxes(rng: random.Random) -> Problem:
    who, thing = rng.choice(NAMES), rng.choice(THINGS)
    count, each, gone = rng.randint(3, 12), rng.randint(11, 48), rng.randint(5, 30)
    total, left = count * each, count * each - gone
    question = f"{who} has {count} boxes with {each} {thing} in each, and gives {gone} {thing} away. "
    question += f"How many {thing} does {who} have left?"
    return question, [f"{count} * {each} = {total}", f"{total} - {gone} = {left}"], f"{count}*{each}-{gone}", left


def shares(rng: random.Random) -> Problem:
    (a, b), thing = rng.sample(NAMES, 2), rng.choice(THINGS)
    people, each, extra = rng.randint(3, 9), rng.randint(12, 60), rng.randint(2, 9)
    total, got = people * each, each + extra
    question = f"{a} divides {total} {thing} evenly among {people} friends, and {b} is one of them. "
    question += f"Later {b} finds {extra} more. How many {thing} does {b} have then?"
    return question, [f"{total} / {people} = {each}", f"{each} + {extra} = {got}"], f"{total}/{people}+{extra}", got


def savings(rng: random.Random) -> Problem:
    who, weeks = rng.choice(NAMES), rng.randint(6, 30)
    first, rate, price = rng.randint(20, 90), rng.randint(7, 25), rng.randint(15, 60)
    saved = first + weeks * rate
    question = (
        f"{who} has {first} coins, saves {rate} coins a week for {weeks} weeks, and then pays {price} coins for a "
    )
    question += f"lamp. How many coins does {who} have after that?"
    lines = [f"{weeks} * {rate} = {weeks * rate}", f"{first} + {weeks * rate} = {saved}"]
    return question, [*lines, f"{saved} - {price} = {saved - price}"], f"{first}+{weeks}*{rate}-{price}", saved - price


def trips(rng: random.Random) -> Problem:
    who, days = rng.choice(NAMES), rng.randint(3, 9)
    there, back, once = rng.randint(12, 70), rng.randint(12, 70), rng.randint(5, 40)
    daily = there + back
    question = f"On each of {days} days {who} rides {there} km out and {back} km back by another road, and on the last "
    question += f"day {once} km more. How many kilometres does {who} ride in all?"
    lines = [f"{there} + {back} = {daily}", f"{days} * {daily} = {days * daily}"]
    total = days * daily + once
    return question, [*lines, f"{days * daily} + {once} = {total}"], f"{days}*({there}+{back})+{once}", total


PROBLEMS: tuple[Callable[[random.Random], Problem], ...] = (boxes, shares, savings, trips)


def make_rows(count: int, seed: int) -> list[dict]:
    """Rows with the data set's columns ``question`` and ``answer``, and a plan for the oracle besides."""
    rng, rows, seen = random.Random(seed), [], set()
    while len(rows) < count:
        question, lines, expression, result = rng.choice(PROBLEMS)(rng)
        if question in seen:
            continue
        seen.add(question)
        plan = [
            {"tool": "calculate", "arguments": {"expression": expression}, "shows": [str(result)]},
            {"tool": "submit_answer", "arguments": {"answer": str(result)}},
        ]
        rows.append({"question": question, "answer": "\n".join([*lines, f"#### {result}"]), "plan": plan})
    return rows


def make_env(path: Path) -> gym.Env:
    """The env over a file of rows; its spec is JSON, so any trainer's workers can rebuild it."""
    calculator = {"python": "envs.gaia.server:make_server", "kwargs": {"tools": ["calculate"]}}
    return gym.make(
        "AWorld/Mcp-v0",
        mcp_config={"mcpServers": {"calculator": calculator}},
        tasks={"rows": str(path), "prompt": "question", "answer": "answer"},
        scorer="number",
        limits={"max_turns": 6},
    )


def main() -> dict:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("runs/word_sums"))
    parser.add_argument("--rows", type=int, default=200)
    parser.add_argument("--episodes", type=int, default=50)
    parser.add_argument("--policy", default="oracle", help="oracle, random, openai, or package.module:name")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    args.output.mkdir(parents=True, exist_ok=True)
    path = args.output / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in make_rows(args.rows, args.seed)), encoding="utf-8")
    env = make_env(path)
    try:
        found = summarize(rollout(env, policies.make(args.policy), episodes=args.episodes, seed=args.seed))
    finally:
        env.close()
    print(f"{args.policy}: success {found['success_rate']}, {found['valid']} episodes, {found['tool_calls']} calls")
    return found


if __name__ == "__main__":
    main()
