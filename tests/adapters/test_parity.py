"""The same sampler, env and episodes give every adapter's trainer the same ids, masks, rewards and turn ends.

The three frameworks cannot be installed together. So the rows that each of them has to give stand in a file, made by
the package's own rollout (``python tests/adapters/test_parity.py``); each environment's suite compares its own.
"""

import json
from pathlib import Path

import importable_adapters
import pytest

from aworld_gym.testing import reference
from aworld_gym.token_policy import token_rollout
from aworld_gym.trained import TrainedRow

EXPECTED = Path(__file__).parents[1] / "data" / "parity_rows.json"
KINDS = ("hostile", "plain", "parallel", "direct", "overruns", "plain", "wrong", "stops", "babbles")
ADAPTERS = importable_adapters.here()


def core() -> list[TrainedRow]:
    codec = reference.codec()
    env, script, items = reference.shaped(), reference.Script(codec), reference.items(*KINDS)
    played = token_rollout(env, codec, script, items, max_tokens=reference.BUDGET)
    env.close()
    return [TrainedRow.of(one, filler=min(codec.stop_ids)) for one in played]


def expected() -> list[TrainedRow]:
    return [TrainedRow.from_dict(row) for row in json.loads(EXPECTED.read_text(encoding="utf-8"))["rows"]]


@pytest.fixture(scope="module", params=ADAPTERS)
def rows(request):
    codec = reference.codec()
    script = reference.Script(codec)
    env = reference.shaped()
    rollout = importable_adapters.rollout_rows(request.param)
    found = rollout(env, codec, script, reference.items(*KINDS), max_tokens=reference.BUDGET)
    env.close()
    return found


def test_the_file_is_what_the_core_gives():
    """In every environment: transformers, tokenizers and Python differ, ids and rewards do not."""
    assert core() == expected()


def test_the_file_tests_something():
    codec, rows = reference.codec(), expected()
    told = [codec.tokenizer.decode(list(row.response_ids)) for row in rows]
    turns = [codec.tokenizer.decode(list(row.response_ids[a:b])) for row in rows for a, b in row.turns]
    again = [codec.tokenizer.encode(text) for text in turns]
    sampled = [list(row.response_ids[a:b]) for row in rows for a, b in row.turns]
    assert sum(one != two for one, two in zip(again, sampled, strict=True)) >= len(sampled) - 3, "canonical ids"
    assert len({len(row.turn_ends) for row in rows}) >= 3 and all(row.valid for row in rows)
    assert all(len(set(row.turn_rewards)) > 1 for row in rows if len(row.turn_rewards) > 1), "turns earn the same"
    assert len({row.prompt_ids for row in rows}) == len(set(KINDS)) and reference.HOSTILE in told[0]


@pytest.mark.parametrize("field", ["prompt_ids", "response_ids", "mask", "turn_ends", "valid"])
def test_fields_are_identical(rows, field):
    assert [getattr(row, field) for row in rows] == [getattr(row, field) for row in expected()]


def test_step_rewards_are_identical(rows):
    for row, right in zip(rows, expected(), strict=True):
        assert row.turn_rewards == pytest.approx(right.turn_rewards, rel=1e-6)  # a trainer may hold them as float32


def test_log_probabilities_are_identical(rows):
    for row, right in zip(rows, expected(), strict=True):
        assert row.logprobs == pytest.approx(right.logprobs, rel=1e-6)


if __name__ == "__main__":
    lines = ",\n".join(json.dumps(row.to_dict()) for row in core())
    EXPECTED.write_text(f'{{"kinds": {json.dumps(KINDS)}, "rows": [\n{lines}\n]}}\n', encoding="utf-8")
