"""What the adapters share, without any trainer."""

import json
import logging
import math

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from say_env import ENV_ID, make_env

from adapters.common import (
    EpisodeCounts,
    LogprobAlarm,
    MetricsFile,
    RolloutOptions,
    TurnwiseOptions,
    check_model_folder,
    env_spec,
    episode_metrics,
    mean_metrics,
)
from aworld_gym import Episode, Outcome, StepRecord, ToolResult
from aworld_gym.errors import ConfigError
from aworld_gym.token_policy import TokenEpisode
from aworld_gym.tokens import TokenTrajectory
from aworld_gym.wrappers import RewardShaping


def test_the_alarm_warns_above_its_threshold(caplog):
    alarm = LogprobAlarm(1e-3)
    assert not alarm.check(9e-4, 1.0, step=1) and not caplog.records
    assert alarm.check(2e-3, 0.5, step=7) and alarm.check(math.nan, 0.0, step=8)
    assert alarm.warnings == 2 and "step 7" in caplog.text and "0.002" in caplog.text
    with pytest.raises(ConfigError, match="must be positive"):
        LogprobAlarm(0.0)


def test_the_alarm_looks_at_a_batch_of_all_processes(caplog):
    alarm = LogprobAlarm(1e-3)
    gaps = [np.array([0.0, 0.2]), np.array([]), np.array([0.1])]
    found = alarm.compare(gaps, step=3)
    assert found == pytest.approx({"logprob_gap/mean": 0.1, "logprob_gap/max": 0.2}) and "step 3" in caplog.text
    assert alarm.compare([np.array([])], step=4) == {} and alarm.warnings == 1
    others = lambda own: [*own, (0.9, 1, 0.9)]  # noqa: E731 - what another process found
    assert alarm.compare([np.array([0.1])], step=5, gather=others, speaks=False)["logprob_gap/mean"] == 0.5
    assert alarm.warnings == 1, "one process speaks"


def test_env_spec_takes_ids_specs_and_made_envs():
    env = RewardShaping(gym.make(ENV_ID, limits={"max_turns": 3}), "step_penalty", amount=0.5)
    spec = env_spec(env)
    assert [w.name for w in spec.additional_wrappers] == ["RewardShaping"] and spec is not env.spec
    assert EnvSpec.from_json(spec.to_json()).kwargs == {"limits": {"max_turns": 3}}
    assert env_spec(spec).id == env_spec(ENV_ID).id == ENV_ID


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ("Test/Nothing-v0", "no env 'Test/Nothing-v0'"),
        ("CartPole-v1", "'CartPole-v1' is not a tool env"),
        (gym.spec("CartPole-v1"), "'CartPole-v1' is not a tool env"),
        (3, "must be an id, an EnvSpec or an env"),
        (make_env, "must be an id, an EnvSpec or an env"),
    ],
)
def test_env_spec_refuses_what_cannot_be_rebuilt(env, message):
    with pytest.raises(ConfigError, match=message):
        env_spec(env)


def test_env_spec_refuses_an_env_without_a_spec():
    env = make_env()
    with pytest.raises(ConfigError, match="register it and make it with gym.make"):
        env_spec(env)


def test_a_model_that_is_a_path_must_be_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models" / "a").mkdir(parents=True)
    (tmp_path / "models" / "a" / "config.json").touch()
    for model in ("models/a", "./models/a", tmp_path / "models" / "a", "org/name", "name", object()):
        check_model_folder(model)
    with pytest.raises(ConfigError, match="the folder './models' holds no model"):
        check_model_folder("./models")
    for model in ("./nomodel", tmp_path / "nomodel", "runs/gaia/nomodel", "/nomodel", "~/nomodel"):
        with pytest.raises(ConfigError, match="there is no folder '.*nomodel'.*[^.]. Give a folder"):
            check_model_folder(model)


def test_rollout_options_name_what_they_do_not_know():
    assert RolloutOptions.of({"retries": 3}) == RolloutOptions(retries=3)
    with pytest.raises(ConfigError, match="unknown rollout option 'max_turn_token'.*Did you mean 'max_turn_tokens'"):
        RolloutOptions.of({"max_turn_token": 3})
    with pytest.raises(ConfigError, match="must be a mapping"):
        RolloutOptions.of(3)


@pytest.mark.parametrize("kind", [RolloutOptions, TurnwiseOptions])
@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("max_turn_tokens", (0, -1, 1.5, "8", True)),
        ("retries", (-1, None, "1", False)),
        ("concurrency", (0, None, 2.0)),
        ("straggler_s", (-0.1, None, math.nan, "2")),
        ("deadline_s", (0, -1.0, math.nan, "600")),
    ],
)
def test_rollout_options_that_cannot_be_are_found_before_the_first_episode(kind, name, values):
    for value in values:
        with pytest.raises(ConfigError, match=rf"rollout option {name} must be a .*number .*, got {value!r}"):
            kind.of({name: value})


def test_options_without_a_deadline_get_one_where_nothing_else_ends_an_episode():
    assert RolloutOptions.of({"deadline_s": None, "straggler_s": math.inf}).deadline_s is None
    assert TurnwiseOptions.of(RolloutOptions(retries=3)) == TurnwiseOptions(retries=3)
    assert TurnwiseOptions.of(RolloutOptions(deadline_s=5)).deadline_s == 5
    assert RolloutOptions.of(TurnwiseOptions()).deadline_s == 1800.0
    with pytest.raises(ConfigError, match="deadline_s must be a number above 0, got None"):
        TurnwiseOptions.of({"deadline_s": None})


def played(
    outcome=Outcome.ANSWERED, components=({"task": 0.0, "bonus": 0.5}, {"task": 1.0, "bonus": -0.25}), attempts=1
):
    results = (ToolResult("c", "echo", (), error="tool_error"), ToolResult("d", "echo", ()))
    steps = tuple(
        StepRecord(k, {"role": "assistant", "content": ""}, results, (), math.fsum(c.values()), c, "key")
        for k, c in enumerate(components)
    )
    return TokenEpisode(
        Episode("env", "task", 0, steps=steps, outcome=outcome, score=1.0, error="it broke"), None, attempts
    )


def test_episode_metrics():
    found = episode_metrics(played())
    assert found["env/return"] == 1.25 and found["env/score"] == 1.0 and found["env/turns"] == 2.0
    assert (found["env/tool_calls"], found["env/tool_errors"]) == (4.0, 2.0)
    assert (found["env/reward/task"], found["env/reward/bonus"]) == (1.0, 0.25)
    assert sum(value for name, value in found.items() if name.startswith("env/outcome/")) == 1.0
    stopped = episode_metrics(played(Outcome.NO_ANSWER))
    assert stopped["env/invalid"] == 0.0 and stopped["env/outcome/no_answer"] == 1.0
    assert episode_metrics(played(Outcome.INFRA_FAILURE, attempts=3)) == {"env/invalid": 1.0, "env/retried": 2.0}


def test_counts_speak_up(caplog):
    counts, batch = EpisodeCounts(), [played(), played(Outcome.INFRA_FAILURE, attempts=2)]
    counts.add_batch(batch, step=4, room="")
    assert counts == {"episodes": 2, "invalid": 1, "retried": 1, "answered": 1, "infra_failure": 1}
    assert "step 4: 1 of 2 episodes" in caplog.text and "it broke" in caplog.text
    caplog.clear()
    counts.add_batch(batch[:1], step=5, room="")
    assert not caplog.records
    counts.add_batch(batch[1:], step=6, room="")
    assert caplog.records[-1].levelno == logging.ERROR, "a batch without one measurement is more than a warning"


def test_prompts_that_leave_no_room_are_said(caplog):
    full = TokenEpisode(
        Episode("env", "task", 0, outcome=Outcome.MAX_TOKENS), TokenTrajectory((1, 2, 3), (), (), (), (), ()), 1
    )
    EpisodeCounts().add_batch([full, played()], step=1, room="set max_length higher")
    assert "1 of 2 prompts (of up to 3 ids) leave no room for a turn; set max_length higher" in caplog.text


def test_metrics_are_means_over_those_that_have_them():
    assert mean_metrics([{"a": 1.0, "b": 3.0}, {"a": 2.0}]) == {"a": 1.5, "b": 3.0}


def test_the_metrics_file(tmp_path):
    path = tmp_path / "run" / "metrics.jsonl"
    file = MetricsFile(path)
    for step in range(1, 4):
        file.append({"step": step, "loss": math.nan if step == 2 else 0.5})
    with path.open("a") as torn:
        torn.write('{"step": 4, "lo')
    assert MetricsFile.read(path) == [{"step": 1, "loss": 0.5}, {"step": 2, "loss": None}, {"step": 3, "loss": 0.5}]
    MetricsFile(path, resume_step=2).append({"step": 3, "loss": 0.25})
    assert [json.loads(line)["loss"] for line in path.read_text().splitlines()] == [0.5, None, 0.25]
    assert MetricsFile(path).read(path) == [], "a new run begins a new file"


def test_what_a_framework_logged_elsewhere_follows_what_was_logged_before(tmp_path):
    path, rows = tmp_path / "metrics.jsonl", [{"step": k, "a": k} for k in (1, 2, 3)]
    assert MetricsFile.take_over(path, rows, resumes=False) == rows
    again = [{"step": k, "a": 10 * k} for k in (3, 4)]
    assert [row["a"] for row in MetricsFile.take_over(path, again, resumes=True)] == [1, 2, 30, 40]
