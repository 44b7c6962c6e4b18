"""The policy: whole episodes in ids against a server that speaks vLLM's dialect."""

import json
import sys
import time
from pathlib import Path

import psutil
import pytest
import vllm_stand_in
from cli_process import only_json, process
from say_env import ENV_ID
from vllm_stand_in import bad_request, drawn

from aworld_gym import policies
from aworld_gym.engines.travel import pack_policy, unpack_policy
from aworld_gym.errors import ConfigError, PolicyError
from aworld_gym.rollout import make_items, rollout
from aworld_gym.token_policy import TokenPolicy
from aworld_gym.trajectory import read_jsonl
from aworld_gym.types import Outcome
from aworld_gym.vllm import VllmGenerator, VllmPolicy


@pytest.fixture(autouse=True)
def no_settings(monkeypatch):
    for name in ("LLM_BASE_URL", "LLM_API_KEY", "LLM_MODEL_NAME"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def program(tmp_path, monkeypatch):
    """A ``vllm`` program, and how it fails: ``program.how = ...``."""

    class Program(str):
        @property
        def how(self):
            raise AttributeError

        @how.setter
        def how(self, value):
            monkeypatch.setenv("STAND_IN", value)

    path = tmp_path / "vllm"
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{vllm_stand_in.__file__}" "$@"\n')
    path.chmod(0o755)
    return Program(path)


def said(episodes):
    """What was sampled, per episode."""
    return [[list(step.sampled["token_ids"]) for step in episode.steps] for episode in episodes]


def test_episodes_are_exact_in_their_ids(serve, codec, folder):
    def sample(ids, body):
        """Slowly enough that the others ask meanwhile."""
        time.sleep(0.1)
        return drawing(ids, body)

    drawing = drawn(codec)
    server = serve(sample)
    policy = policies.make("vllm", model=str(folder), base_url=server.url)
    episodes = rollout(ENV_ID, policy, episodes=6, concurrency=6)
    assert [episode.score for episode in episodes] == [1.0] * 6
    assert {episode.outcome for episode in episodes} == {Outcome.ANSWERED}
    assert server.most_at_once > 1, "episodes are sampled at the same time"
    sent = {tuple(body["prompt"]) for body in server.requests if isinstance(body["prompt"], list)}
    for episode in episodes:
        ids = codec.prompt(episode.prompt, episode.tools)
        for step in episode.steps:
            assert tuple(ids) in sent
            sampled = step.sampled
            assert len(sampled["logprobs"]) == len(sampled["token_ids"]) and sampled["model_version"] == "stand-in"
            ids += [*sampled["token_ids"], *codec.extend(sampled["token_ids"], step.observation)]
        assert json.loads(episode.versions["policy_settings"])["temperature"] == 1.0


def test_a_run_is_repeated_by_its_seed(serve, codec, folder):
    def run(seed=0, concurrency=8):
        policy = VllmPolicy(str(folder), base_url=serve(drawn(codec)).url, seed=seed)
        return said(rollout(ENV_ID, policy, items=make_items(8, group_size=4), concurrency=concurrency))

    first = run()
    assert run(concurrency=1) == first
    assert len({str(turns) for turns in first}) == 8, "the episodes of a group are sampled apart"
    assert run(seed=1) != first


def test_the_context_ends_an_episode_as_a_budget_does(serve, codec, folder):
    def outcomes(**options):
        server = serve(**{k: options.pop(k) for k in ("trouble", "context") if k in options})
        policy = VllmPolicy(str(folder), base_url=server.url, **options)
        episodes = rollout(ENV_ID, policy, episodes=1)
        return episodes[0].outcome, len(episodes[0].steps), [body["max_tokens"] for body in server.requests[2:]]

    long = outcomes()
    assert long[:2] == (Outcome.ANSWERED, 2)
    prompt = 1024 - long[2][0]  # the first turn is left the rest of what the server takes
    assert outcomes(max_context=prompt)[:2] == (Outcome.MAX_TOKENS, 0)
    assert outcomes(max_context=prompt + 5) == (Outcome.MAX_TOKENS, 0, [5])
    assert outcomes(context=300)[2][0] == 300 - prompt
    assert outcomes(max_turn_tokens=4) == (Outcome.MAX_TOKENS, 0, [4])
    assert outcomes(max_tokens=15)[0] == Outcome.MAX_TOKENS
    with pytest.raises(ConfigError, match="fewer than the .* ids"):
        outcomes(context=20)

    def smaller(body, number):  # a server that turns out to take less than it said
        over = isinstance(body["prompt"], list) and len(body["prompt"]) > prompt
        return bad_request("This model's maximum context length is 9 tokens.", "input_tokens") if over else None

    assert outcomes(trouble=smaller)[:2] == (Outcome.MAX_TOKENS, 1)
    with pytest.raises(ConfigError, match="max_context is 2000, and the server takes at most 1024"):
        outcomes(max_context=2000)


def test_what_a_server_spoils_is_played_again_the_same(serve, codec, folder):
    def run(trouble):
        policy = VllmPolicy(str(folder), base_url=serve(drawn(codec), trouble=trouble).url, retries=0)
        return rollout(ENV_ID, policy, episodes=4, concurrency=1, retries=2)

    def sometimes(body, number):
        return bad_request("EngineCore encountered an issue.", status=500) if number in (3, 6) else None

    whole, troubled = run(lambda body, number: None), run(sometimes)
    spoiled = [episode for episode in troubled if not episode.valid]
    assert [episode.error_kind for episode in spoiled] == ["host_refused"] * 2
    assert said(episode for episode in troubled if episode.valid) == said(whole)


def test_trajectories_are_had_from_a_token_policy(serve, codec):
    generator = VllmGenerator(serve(drawn(codec)).url, codec)
    policy = TokenPolicy(codec, generator.generate, max_tokens=500)
    episodes = rollout(ENV_ID, policy, episodes=3)
    for k, episode in enumerate(episodes):
        trajectory = policy.agents[k].trajectory()
        assert trajectory.total_reward == episode.total_reward == 1.0
        assert trajectory.logprobs == tuple(-1.5 * bit for bit in trajectory.mask)


def test_two_rollouts_may_share_a_policy(serve, codec, folder):
    policy = VllmPolicy(str(folder), base_url=serve().url)
    for _ in range(2):
        assert [episode.score for episode in rollout(ENV_ID, policy, episodes=2)] == [1.0] * 2
    assert not policy._live


def test_a_server_of_its_own_is_there_for_the_rollout(folder, program):
    policy = VllmPolicy(str(folder), command=program, args=["--seed", "3"])
    with pytest.raises(ConfigError, match="a server of its own; .*--base-url"):
        pack_policy(policy)
    here = psutil.Process()
    before = set(here.children(recursive=True))
    episodes = rollout(ENV_ID, policy, episodes=3)
    assert [episode.score for episode in episodes] == [1.0] * 3
    deadline = time.monotonic() + 10
    while left := {p for p in set(here.children(recursive=True)) - before if p.status() != psutil.STATUS_ZOMBIE}:
        assert time.monotonic() < deadline, left
        time.sleep(0.05)
    assert policy._own.log_file is None


def test_a_server_that_dies_ends_the_run_and_says_why(folder, program, tmp_path):
    program.how = "dies after 4"
    log = tmp_path / "log"
    policy = VllmPolicy(str(folder), command=program, log_file=str(log), retries=1)
    with pytest.raises(PolicyError, match="ended in the middle of the run. It exited with 5.*out of cheese") as error:
        rollout(ENV_ID, policy, episodes=8, concurrency=1, journal=tmp_path / "episodes.jsonl")
    assert [episode.score for episode in error.value.finished if episode.valid] == [1.0]
    assert len([e for e in read_jsonl(tmp_path / "episodes.jsonl") if e.valid]) == 1
    policy = VllmPolicy(str(folder), command=program, log_file=str(log), args=[])
    program.how = ""
    again = rollout(ENV_ID, policy, episodes=8, journal=tmp_path / "episodes.jsonl", resume=True)
    assert sum(episode.valid for episode in again) == 8


def test_a_server_that_does_not_start_stops_the_rollout_before_its_first_episode(folder, program, tmp_path):
    program.how = "broken"
    policy = VllmPolicy(str(folder), command=program, log_file=str(tmp_path / "log"))
    with pytest.raises(ConfigError, match="this model cannot be served"):
        rollout(ENV_ID, policy, episodes=2, journal=tmp_path / "episodes.jsonl")
    assert not (tmp_path / "episodes.jsonl").read_text()


def test_other_processes_make_it_again_where_the_server_is_not_its_own(serve, folder):
    policy = VllmPolicy(str(folder), base_url=serve(key="k").url, api_key="k", top_k=7)
    again = unpack_policy(json.loads(json.dumps(pack_policy(policy))))
    assert again.settings == policy.settings
    assert [episode.score for episode in rollout(ENV_ID, again, episodes=1)] == [1.0]
    assert "k" not in policy.settings.values()


def test_what_cannot_be(serve, folder, tmp_path):
    with pytest.raises(ConfigError, match="no model is named"):
        VllmPolicy(base_url="http://127.0.0.1:9/v1")
    with pytest.raises(ConfigError, match="give one or the other"):
        VllmPolicy(str(folder), base_url="http://127.0.0.1:9/v1", args="--dtype float32")
    with pytest.raises(ConfigError, match="cannot load the tokenizer of"):
        VllmPolicy(str(tmp_path), base_url="http://127.0.0.1:9/v1")
    with pytest.raises(ConfigError, match="It takes model, base_url, .* Did you mean 'temperature'"):
        policies.make("vllm", model=str(folder), temprature=1)
    with pytest.raises(ConfigError, match="Check --base-url"):
        rollout(ENV_ID, VllmPolicy(str(folder), base_url="http://127.0.0.1:9/v1"), episodes=1)


def test_ends_that_the_model_declares_end_a_turn(folder, tmp_path, serve):
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [7, 362]}))
    assert 7 in VllmPolicy(str(tmp_path), base_url="http://127.0.0.1:9/v1").codec.stop_ids


def test_the_command_line(serve, codec, folder, tmp_path):
    server = serve(drawn(codec))
    args = ["eval", f"say_env:{ENV_ID}", "--policy", "vllm", "--model", str(folder), "--base-url", server.url]
    with process(*args, "--episodes", "4", "-p", "top_k=5", "--output", str(tmp_path / "run"), "--json") as done:
        out, err = done.communicate(timeout=120)
    found = only_json(out)
    assert done.returncode == 0, err
    assert found["policy"] == "vllm" and found["success_rate"] == 1.0 and found["valid"] == 4
    assert server.requests[-1]["top_k"] == 5
    assert len(list(read_jsonl(tmp_path / "run" / "episodes.jsonl"))) == 4


def test_the_command_line_starts_a_server(folder, program, tmp_path):
    args = ["eval", f"say_env:{ENV_ID}", "--policy", "vllm", "--model", str(folder), "-p", f"command={program}"]
    args += ["-p", f"log_file={tmp_path / 'log'}", "--vllm-args", "--max-num-seqs 4", "--episodes", "2", "--json"]
    with process(*args) as done:
        out, err = done.communicate(timeout=120)
    assert done.returncode == 0, err
    assert only_json(out)["success_rate"] == 1.0
    assert "starting vLLM" in err and "vLLM is ready after" in err
    assert "--max-num-seqs 4" in Path(tmp_path / "log").read_text()
