"""Real optimiser steps of verl's own trainer on ``AWorld/Gaia-v0``, in its own Ray processes.

verl takes minutes to start, so there is one run: three steps with step credit, in which infrastructure fails
(``fragile_gaia``), and a validation whose servers die. What its processes did is on disk (``verl_probe``); each test
looks at one thing.
"""

import json
import os
import shutil
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path

import gymnasium as gym
import pytest
import torch
import verl_probe
from fragile_gaia import STEP_FILE
from transformers import AutoModelForCausalLM, AutoTokenizer

import aworld_gym  # noqa: F401 - registers envs
from adapters import verl
from adapters.credit import turn_advantages
from aworld_gym.trajectory import read_jsonl
from aworld_gym.wrappers import RewardShaping

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

LIB = Path(__file__).parents[2] / "lib"
MODEL = Path(__file__).parents[2] / "data" / "warm_start"
TASKS, GROUP, STEPS = 2, 4, 3
SETTINGS = {
    "data": {"train_batch_size": TASKS, "max_prompt_length": 1024, "max_response_length": 400, "seed": 1},
    "actor_rollout_ref": {
        "rollout": {"n": GROUP, "log_prob_micro_batch_size_per_gpu": 8, "seed": 5},
        "actor": {
            "ppo_mini_batch_size": TASKS,
            "ppo_micro_batch_size_per_gpu": 4,
            "optim": {"lr": 1e-3, "weight_decay": 0.0},
            "policy_loss": {"loss_mode": verl_probe.LOSS},
        },
    },
    "trainer": {"total_training_steps": STEPS, "v1": {"trainer_mode": verl_probe.TRAINER}},
}


def fragile(server):
    limits = {"max_turns": 5, "max_calls_per_turn": 4, "call_timeout_s": 3.0}
    env = gym.make("AWorld/Gaia-v0", preset="mini", toolchain={"mcpServers": {"gaia": server}}, limits=limits)
    return RewardShaping(env, "say_env:by_answer", scale=1.0)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The run's result, its folder, and the probe's."""
    folder, probe = tmp_path_factory.mktemp("run"), tmp_path_factory.mktemp("probe")
    temp = tempfile.mkdtemp(prefix="r", dir="/tmp")  # Ray's sockets lie there, and their paths must be short
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VERL_USE_EXTERNAL_MODULES", "verl_probe")
        patch.setenv(verl_probe.FOLDER, str(probe))
        patch.setenv(STEP_FILE, str(probe / "step"))
        result = verl.train(
            fragile({"python": "fragile_gaia:make_server"}),
            eval_env=fragile({"command": sys.executable, "args": [str(LIB / "fragile_gaia.py")]}),
            eval_tasks=2,
            model=MODEL,
            output_dir=folder,
            credit="step",
            config=SETTINGS,
            rollout={"max_turn_tokens": 80, "deadline_s": 240},
            stall_s=900,
            **{"+ray_kwargs.ray_init._temp_dir": temp},
        )
    left = [path for path in Path("/proc").glob("[0-9]*/cmdline") if temp.encode() in _read(path)]
    assert not left, "processes of Ray outlive the run"
    shutil.rmtree(temp, ignore_errors=True)
    return result, folder, probe


def _read(path):
    try:
        return path.read_bytes()
    except OSError:  # it has just ended
        return b""


def steps(probe):
    return {k: torch.load(probe / f"step{k}.pt", weights_only=False) for k in range(1, STEPS + 1)}


def rows_of(step):
    """Each row of a step's tensors as a mapping."""
    names = [name for name in step if name != "updated"]
    for values in zip(*(step[name] for name in names), strict=True):
        yield dict(zip(names, values, strict=True))


def runs_of_ones(mask):
    edges = torch.nn.functional.pad(mask, (1, 1)).diff()
    return list(zip((edges == 1).nonzero()[:, 0].tolist(), (edges == -1).nonzero()[:, 0].tolist(), strict=True))


def test_it_went_on_to_the_end(run):
    result, folder, probe = run
    assert [row["step"] for row in result.metrics] == [1, 2, 3]
    assert [step["updated"] for step in steps(probe).values()] == [True, False, True]
    assert result.metrics == [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_weights_changed_and_final_can_be_loaded(run):
    result, folder, _ = run
    before = AutoModelForCausalLM.from_pretrained(MODEL, dtype="auto")
    after = AutoModelForCausalLM.from_pretrained(result.checkpoint, dtype="auto")
    assert after.dtype == torch.float32, "not the bfloat16 that verl's config.json says"
    old, new = before.state_dict(), after.state_dict()
    assert all(not torch.equal(old[name].float(), new[name]) for name in old if name.endswith("weight"))
    assert (
        AutoTokenizer.from_pretrained(result.checkpoint).chat_template
        == AutoTokenizer.from_pretrained(MODEL).chat_template
    )
    assert result.checkpoint == folder / "final"


def test_what_is_trained_on_is_what_was_sampled(run):
    """Every run of mask-1 ids in every row was sampled, after exactly the ids before it."""
    _, _, probe = run
    known = defaultdict(list)
    for path in probe.glob("samples.*.jsonl"):
        for line in path.read_text().splitlines():
            sample = json.loads(line)
            known[tuple(sample["prompt"])].append(sample)
    turns = 0
    for step in steps(probe).values():
        for row in rows_of(step):
            prompt, response = row["prompts"].tolist(), row["responses"].tolist()
            assert len(response) <= 400 and len(prompt) <= 1024
            for start, stop in runs_of_ones(row["response_mask"]):
                samples = known[tuple(prompt + response[:start])]
                ids, logprobs = response[start:stop], row["rollout_log_probs"][start:stop].tolist()
                same = [s for s in samples if s["ids"] == ids]
                assert same, "an id with mask 1 that was not sampled here"
                assert any(torch.allclose(torch.tensor(s["logprobs"]), torch.tensor(logprobs)) for s in same)
                turns += 1
    assert turns > 20


def test_log_probabilities_of_rollout_and_trainer(run):
    result, _, probe = run
    for k, step in steps(probe).items():
        gaps = [(r["rollout_log_probs"] - r["old_log_probs"]).abs()[r["response_mask"].bool()] for r in rows_of(step)]
        gap = torch.cat(gaps)
        if gap.numel():
            assert gap.max() < 1e-4
            assert result.metrics[k - 1]["rollout/logprob_gap/max"] == pytest.approx(gap.max().item(), abs=1e-6)


def test_rewards_stand_at_the_ends_of_turns(run):
    _, _, probe = run
    several = 0
    for step in steps(probe).values():
        for row in rows_of(step):
            spans, rewards = runs_of_ones(row["response_mask"]), row["extra_fields"]["turn_scores"]
            expected = torch.zeros(len(row["responses"]))
            for (_, stop), reward in zip(spans, rewards, strict=True):
                expected[stop - 1] = reward
            assert torch.allclose(row["rm_scores"], expected)
            several += (row["rm_scores"] != 0).sum() > 1
    assert several > 4, "rows with more than one reward"


def test_invalid_rows_are_out_of_loss_and_baseline(run):
    """The advantages of a group are those of its valid rows alone."""
    _, _, probe = run
    first = steps(probe)[1]
    groups = defaultdict(list)
    for row in rows_of(first):
        groups[row["uid"]].append(row)
    lost = 0
    for rows in groups.values():
        assert len(rows) == GROUP
        valid = [row for row in rows if row["response_mask"].any()]
        for row in rows:
            if not row["response_mask"].any():
                lost += 1
                assert row["extra_fields"]["reward_extra_info"]["env/invalid"] == 1.0
                assert not row["advantages"].any() and not row["rm_scores"].any()
        rewards = [row["extra_fields"]["turn_scores"] for row in valid]
        expected = (
            turn_advantages(rewards, group_size=len(valid)) if len(valid) > 1 else [[0.0] * len(r) for r in rewards]
        )
        for row, values in zip(valid, expected, strict=True):
            for (start, stop), value in zip(runs_of_ones(row["response_mask"]), values, strict=True):
                assert torch.allclose(row["advantages"][start:stop], torch.tensor(value), atol=1e-4)
    assert 1 <= lost <= 4
    assert not any(row["response_mask"].any() for row in rows_of(steps(probe)[2])), "a step without a measurement"


def test_gradients_only_on_sampled_ids(run):
    _, _, probe = run
    trained = 0
    for path in probe.glob("loss*.pt"):
        loss = torch.load(path)
        expected = loss["mask"].bool() & (loss["advantages"].abs() > 0)
        assert torch.equal(loss["gradient"] != 0, expected)
        trained += int(expected.sum())
    assert trained > 100


def test_every_env_is_closed(run):
    _, _, probe = run
    files = [path for path in probe.glob("sessions.*.json") if path.name != f"sessions.{os.getpid()}.json"]
    counts = [json.loads(path.read_text()) for path in files]
    assert len(counts) == 1, "one worker plays"
    assert counts[0]["opened"] == counts[0]["closed"] > TASKS * GROUP


def test_episodes_are_written_and_counted(run):
    result, folder, _ = run
    episodes = list(read_jsonl(result.episodes))
    assert Counter(e.group_id.split("/")[0] for e in episodes if e.attempt == 0) == dict.fromkeys("123", TASKS * GROUP)
    last = {(e.group_id, e.sample): e for e in sorted(episodes, key=lambda e: e.attempt)}
    assert len(last) == STEPS * TASKS * GROUP == result.counts["episodes"]
    assert result.counts["invalid"] == sum(not e.valid for e in last.values()) > TASKS * GROUP
    assert result.counts["retried"] == sum(e.attempt for e in last.values())
    assert result.counts["infra_failure"] == result.counts["invalid"]
    assert all("told to be broken" in e.error for e in last.values() if not e.valid)
    assert {e.seed for e in episodes} == set(range(10**9, 10**9 + STEPS * TASKS)), "each group plays a new task"
    hung = [e for e in last.values() if any(r.error == "tool_timeout" for s in e.steps for r in s.results)]
    assert hung and all(e.valid and e.group_id.startswith("3/") for e in hung), "the model was told that its tool hung"


def test_servers_that_die_in_validation(run):
    result, folder, _ = run
    died = list(read_jsonl(folder / "eval_episodes.jsonl"))
    assert {e.seed for e in died} == {10**15, 10**15 + 1}
    assert all(not e.valid and "server_died" in e.error for e in died) and {e.attempt for e in died} == {0, 1}
    assert any(name.startswith("val-") for name in result.metrics[-1])


def test_metrics(run):
    result, _, _ = run
    first, second, third = result.metrics
    assert 0 < first["env/invalid"] < 1 and second["env/invalid"] == 1 and third["env/invalid"] == 0
    assert "actor/grad_norm" not in second and third["actor/grad_norm"] > 0
    assert third["env/turns"] > 1 and third["env/reward/by_answer"] > 0 and third["env/tool_errors"] > 0
