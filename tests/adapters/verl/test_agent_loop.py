"""One episode per call of the agent loop, over real MCP servers and a scripted server manager."""

import asyncio
import threading
import time

import gymnasium as gym
import pytest
import torch
from say_env import ENV_ID, SESSIONS
from scripted_sampler import ScriptedSampler, echo_then_submit, tool_call
from verl_loops import ScriptedServers, Worker

from adapters.verl.agent_loop import make_codec
from aworld_gym.play import Item
from aworld_gym.token_policy import token_rollout
from aworld_gym.trajectory import read_jsonl
from aworld_gym.wrappers import RewardShaping


@pytest.fixture
def worker(untaught, tmp_path):
    return Worker(untaught, tmp_path)


@pytest.fixture
def codec(worker):
    return make_codec(worker.tokenizer, worker.config)


def shaped():
    return RewardShaping(gym.make(ENV_ID), "say_env:by_answer", scale=1.0)


def written(folder):
    """The records of the episodes that this process has played there."""
    return list(read_jsonl(folder / "episodes.0.jsonl"))


def seconds_apart(output):
    """The metrics of an episode, without its times."""
    found = dict(output.extra_fields["reward_extra_info"])
    assert found.pop("time/generate_s") >= 0 and found.pop("time/env_s") >= 0
    return found


async def test_the_same_row_as_a_token_rollout(worker, codec):
    """What verl is given is the trajectory of the package's own rollout, reward by reward."""
    for seed in range(3):
        (one,) = token_rollout(
            shaped(), codec, ScriptedSampler(codec, echo_then_submit), [Item(0, seed)], max_tokens=200
        )
        output = await worker.run(ScriptedServers(codec, echo_then_submit), shaped(), seed=seed)
        row, trajectory = output.as_dict(), one.trajectory
        assert row["prompts"].tolist() == list(trajectory.prompt_ids)
        assert row["responses"].tolist() == list(trajectory.response_ids)
        assert row["response_mask"].tolist() == list(trajectory.mask)
        assert row["rollout_log_probs"].tolist() == list(trajectory.logprobs)
        expected = torch.zeros(len(trajectory.mask))
        expected[list(trajectory.turn_ends)] = torch.tensor(trajectory.turn_rewards)
        assert torch.equal(row["rm_scores"], expected) and (expected != 0).sum() == 2, "a reward at each turn's end"
        assert output.reward_score == pytest.approx(one.episode.total_reward)
        assert output.extra_fields["turn_scores"] == list(trajectory.turn_rewards)
        assert (output.extra_fields["min_global_steps"], output.extra_fields["max_global_steps"]) == (3, 3)


async def test_what_the_sampler_is_asked(worker, codec):
    servers = ScriptedServers(codec, echo_then_submit)
    output = await worker.run(servers, ENV_ID)
    (first, prompt, params), (second, more, later) = servers.requests
    assert first == second, "one request id an episode: its turns stay on one server"
    assert more[: len(prompt)] == prompt and output.as_dict()["prompts"].tolist() == prompt
    assert params["max_tokens"] == 200 and later["max_tokens"] == 200 - (len(more) - len(prompt))
    assert params["stop_token_ids"] == sorted(codec.stop_ids) and params["temperature"] == 1.0 and params["logprobs"]
    again = ScriptedServers(codec, echo_then_submit)
    await worker.run(again, ENV_ID)
    await worker.run(again, ENV_ID, sample=1)
    seeds = [params["seed"] for *_, params in again.requests]
    assert seeds[:2] == [params["seed"], later["seed"]] and len(set(seeds)) == 4, "a seed for each turn of each sample"


async def test_lengths_are_capped(worker, codec):
    babble = ScriptedServers(codec, lambda word, turn: [3] * 10_000)
    output = await worker.run(babble, ENV_ID)
    assert len(output.response_ids) == len(output.response_mask) == 200 and set(output.response_mask) == {1}
    output = await worker.run(babble, ENV_ID, sample=1, rollout={"max_turn_tokens": 7})
    assert len(output.response_ids) == 7


async def test_a_prompt_that_does_not_fit_is_out_of_the_loss_and_says_why(untaught, tmp_path, codec, caplog):
    worker = Worker(untaught, tmp_path, **{"data.max_prompt_length": 5})
    output = await worker.run(ScriptedServers(codec, echo_then_submit), ENV_ID)
    assert output.response_mask == [0] and len(output.response_ids) == 1 == len(output.prompt_ids)
    assert "data.max_prompt_length is 5; set it higher" in caplog.text
    (episode,) = written(tmp_path)
    assert not episode.valid and episode.error.startswith("ConfigError: the prompt has")


async def test_verls_loop_goes_on_while_tools_work(worker, codec):
    SESSIONS.reset(slow=lambda number: 1.0)
    ticks = []

    async def tick():
        while True:
            ticks.append(time.monotonic())
            await asyncio.sleep(0.01)

    task = asyncio.create_task(tick())
    servers = ScriptedServers(codec, echo_then_submit)
    began = time.monotonic()
    await asyncio.gather(*(worker.run(servers, ENV_ID, seed=k) for k in range(4)))
    task.cancel()
    assert time.monotonic() - began < 3.5, "episodes run at once"
    assert max(b - a for a, b in zip(ticks, ticks[1:], strict=False)) < 0.9
    assert servers.sampler.threads == {threading.current_thread()}


async def test_concurrency_is_a_workers(worker, codec):
    SESSIONS.reset(slow=lambda number: 0.3)
    servers = ScriptedServers(codec, echo_then_submit)
    began = time.monotonic()
    await asyncio.gather(*(worker.run(servers, ENV_ID, seed=k, rollout={"concurrency": 1}) for k in range(3)))
    assert time.monotonic() - began > 0.9


async def test_an_env_that_cannot_start_is_tried_again_and_then_left_out(worker, codec, tmp_path):
    SESSIONS.reset(broken=lambda number: number in (0, 2, 3))
    servers = ScriptedServers(codec, echo_then_submit)
    retried = await worker.run(servers, ENV_ID)
    assert sum(retried.response_mask) > 10 and retried.extra_fields["reward_extra_info"]["env/retried"] == 1
    lost = await worker.run(servers, ENV_ID, sample=1)
    assert lost.response_mask == [0] and lost.reward_score == 0.0 and lost.as_dict()["rm_scores"].tolist() == [0.0]
    assert seconds_apart(lost) == {"env/invalid": 1.0, "env/retried": 1.0}
    journal = written(tmp_path)
    assert [(e.sample, e.attempt, e.valid) for e in journal] == [
        (0, 0, False),
        (0, 1, True),
        (1, 0, False),
        (1, 1, False),
    ]
    assert {e.group_id for e in journal} == {"3/0"}


async def test_a_server_that_dies(worker, codec, tmp_path):
    output = await worker.run(ScriptedServers(codec, echo_then_submit), "Test/SayStdio-v0")  # it dies of an echo
    assert output.response_mask == [0] and len(output.prompt_ids) > 5
    assert [(e.attempt, "server_died" in e.error) for e in written(tmp_path)] == [(0, True), (1, True)]


async def test_a_tool_that_hangs(worker, codec, tmp_path):
    SESSIONS.reset(slow=lambda number: 2.0)
    env = gym.make(ENV_ID, limits={"call_timeout_s": 0.3})
    output = await worker.run(ScriptedServers(codec, echo_then_submit), env)
    assert sum(output.response_mask) > 10, "the model was told, and went on"
    (episode,) = written(tmp_path)
    assert episode.valid and output.extra_fields["reward_extra_info"]["env/tool_errors"] == 1


async def test_an_episode_has_a_deadline(worker, codec, tmp_path):
    SESSIONS.reset(slow=lambda number: 5.0)
    began = time.monotonic()
    await worker.run(ScriptedServers(codec, echo_then_submit), ENV_ID, rollout={"deadline_s": 0.4})
    assert time.monotonic() - began < 4
    (episode,) = written(tmp_path)
    assert episode.outcome == "timeout" and episode.valid


@pytest.mark.parametrize("fault", ["raises", "hangs", "is empty"])
async def test_a_sampler_that_fails_never_raises_and_closes_the_env(worker, codec, tmp_path, fault, caplog):
    class Broken(ScriptedServers):
        async def generate(self, *args, **kwargs):
            if fault == "raises":
                raise ConnectionError("the rollout server is gone")
            if fault == "hangs":
                await asyncio.sleep(60)
            out = await super().generate(*args, **kwargs)
            out.token_ids = []
            return out

    output = await worker.run(Broken(codec, echo_then_submit), ENV_ID, rollout={"deadline_s": 1.0})
    assert output.response_mask == [0]
    *before, episode = written(tmp_path)
    assert not episode.valid and episode.error and episode.outcome == "infra_failure"
    assert [e.outcome for e in before] == (["timeout"] if fault == "hangs" else []), "the deadline is the sampler's too"
    assert seconds_apart(output) == {"env/invalid": 1.0, "env/retried": 0.0}
    assert "left out of loss and baseline: group 3/0, seed 0, sample 0" in caplog.text


async def test_without_log_probabilities_a_row_cannot_be_trained_on_where_they_were_asked_for(worker, codec, tmp_path):
    output = await worker.run(ScriptedServers(codec, echo_then_submit, logprobs=False), ENV_ID)
    assert output.response_mask == [0] and "no log-probabilities" in written(tmp_path)[0].error


async def test_a_spec_that_cannot_be_made(worker, codec, tmp_path):
    gym.register("Test/Gone-v0", entry_point="say_env:no_such_function")
    output = await worker.run(ScriptedServers(codec, echo_then_submit), "Test/Gone-v0")
    del gym.registry["Test/Gone-v0"]
    assert output.response_mask == [0] and "no_such_function" in written(tmp_path)[0].error


async def test_cancelling_closes_the_env(worker, codec):
    class Slow(ScriptedServers):
        async def generate(self, *args, **kwargs):
            await asyncio.sleep(60)

    task = asyncio.create_task(worker.run(Slow(codec, echo_then_submit), ENV_ID))
    await asyncio.sleep(0.5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_malformed_turns_are_answered_and_trained_on(worker, codec):
    def script(word, turn):
        return (
            codec.tokenizer.encode("<tool_call>{nonsense}</tool_call>") + [min(codec.stop_ids)]
            if turn == 0
            else (tool_call("submit_answer", answer=word))
        )

    output = await worker.run(ScriptedServers(codec, script), ENV_ID)
    assert output.reward_score == 1.0 and len(output.extra_fields["turn_scores"]) == 2
