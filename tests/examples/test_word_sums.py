"""The example of a question-and-answer data set: its rows are right, stay the same, and play."""

import ast
import json
import operator
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "examples" / "word_sums.py"
SIGNS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}


@pytest.fixture(scope="module")
def word_sums():
    sys.path.insert(0, str(ROOT))
    try:
        from examples import word_sums
    finally:
        sys.path.remove(str(ROOT))
    return word_sums


def value(node):
    if isinstance(node, ast.Constant):
        return node.value
    return SIGNS[type(node.op)](value(node.left), value(node.right))


def test_every_line_of_every_solution_is_true(word_sums):
    for row in word_sums.make_rows(300, seed=4):
        *lines, last = row["answer"].splitlines()
        for line in lines:
            left, right = line.split(" = ")
            assert value(ast.parse(left, mode="eval").body) == float(right), row
        expression = row["plan"][0]["arguments"]["expression"]
        assert last == f"#### {lines[-1].split(' = ')[1]}" and value(ast.parse(expression, mode="eval").body) == int(
            last[5:]
        )
        numbers = set(re.findall(r"\d+", row["question"]))
        assert set(re.findall(r"\d+", expression)) <= numbers, "whatever is computed with stands in the question"


def test_rows_are_the_same_for_a_seed_and_none_is_there_twice(word_sums):
    rows = word_sums.make_rows(300, seed=4)
    assert rows == word_sums.make_rows(300, seed=4) and rows != word_sums.make_rows(300, seed=5)
    assert len({row["question"] for row in rows}) == 300


def test_a_sentence_with_the_number_scores_and_another_number_does_not(word_sums, tmp_path):
    row = word_sums.make_rows(1, seed=0)[0]
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n")
    truth = int(row["answer"].rpartition("#### ")[2])
    env = word_sums.make_env(tmp_path / "rows.jsonl")
    for answer, reward in ((f"That makes {truth:,}.", 1.0), (f"{truth + 1}", 0.0), ("many", 0.0)):
        _, info = env.reset(seed=0)
        assert [tool["function"]["name"] for tool in info["tools"]] == ["calculate", "submit_answer"]
        assert env.step({"role": "assistant", "content": f"<answer>{answer}</answer>"})[1] == reward
    env.close()


def test_it_runs(tmp_path):
    command = [sys.executable, str(SCRIPT), "--output", str(tmp_path), "--rows", "20", "--episodes", "10"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "oracle: success 1.0, 10 episodes, 20 calls\n"
    assert len((tmp_path / "rows.jsonl").read_text().splitlines()) == 20
