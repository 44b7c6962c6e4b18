"""``aworld-gym eval`` as a user runs it: real processes where processes matter, real file descriptors everywhere."""

import json
import signal
import time

import psutil
import pytest
from chat_endpoint import ChatEndpoint, call, completion, refusal
from cli_process import ENV, only_json, process, run_fixture  # noqa: F401

from aworld_gym.trajectory import read_jsonl


def test_eval_prints_one_object_and_writes_the_episodes(tmp_path):
    output = tmp_path / "run"
    args = [
        "eval",
        ENV,
        "--policy",
        "oracle",
        "--episodes",
        "6",
        "--seed",
        "5",
        "--group-size",
        "2",
        "-k",
        "split=test",
    ]
    done = process(*args, "--output", str(output), "--json")
    out, err = done.communicate(timeout=120)
    assert done.returncode == 0, err
    found = only_json(out)
    expected = dict(env_id="CliTest/Small-v0", policy="oracle", episodes=6, valid=6, invalid=0, success_rate=1.0)
    assert {k: found[k] for k in expected} == expected
    assert found["seeds"] == [5, 6, 7] and found["split"] == "test" and found["group_size"] == 2
    assert found["mean_return"] == 1.0 and found["mean_turns"] == 3.0 and found["outcomes"] == {"answered": 6}
    assert found["tool_calls"] == 18 and found["tool_errors"] == 0 and found["wall_s"] > 0
    assert "noise" in err and "6/6" in err
    assert json.loads((output / "summary.json").read_text()) == found
    assert sorted((e.seed, e.sample) for e in read_jsonl(output / "episodes.jsonl")) == [
        (seed, sample) for seed in (5, 6, 7) for sample in (0, 1)
    ]


def test_eval_for_people(run):
    code, out, err = run(
        "eval",
        ENV,
        "--policy",
        "random",
        "--episodes",
        "2",
        "-p",
        "seed=3",
        "-k",
        'limits={"max_turns":2,"call_timeout_s":1}',
    )
    assert code == 0 and "random on CliTest/Small-v0" in out and "2 (0 invalid" in out
    assert "2/2" in err and "2/2" not in out


def test_a_run_is_continued_only_when_asked(run, tmp_path):
    args = ("eval", ENV, "--episodes", "2", "--output", str(tmp_path), "--json")
    assert run(*args)[0] == 0
    code, out, err = run(*args)
    assert code == 2 and "already has episodes" in only_json(out)["error"]["message"] and "Traceback" not in err
    code, out, _ = run("eval", ENV, "--episodes", "4", "--output", str(tmp_path), "--resume", "--json")
    assert code == 0 and only_json(out)["episodes"] == 4
    assert len(list(read_jsonl(tmp_path / "episodes.jsonl"))) == 4


@pytest.mark.parametrize(
    ("other", "difference"),
    [
        (["--policy", "random"], "its policy is 'oracle', this one's is 'random'"),
        (["--policy", "cli_envs:oracle", "-p", "style=terse"], "this one's is {'style': 'terse'}"),
        (["-k", "split=test"], "its env spec is {'kwargs': {}}, this one's is {'kwargs': {'split': 'test'}}"),
    ],
)
@pytest.mark.parametrize("episodes", ["2", "3"])
def test_a_run_is_not_continued_as_another_one(run, tmp_path, other, difference, episodes):
    args = ("eval", ENV, "--episodes", "2", "--output", str(tmp_path), "--json")
    assert run(*args)[0] == 0
    files = {path: path.read_bytes() for path in tmp_path.iterdir()}
    assert {path.name for path in files} == {"episodes.jsonl", "summary.json"}
    code, out, err = run("eval", ENV, "--episodes", episodes, "--output", str(tmp_path), "--resume", "--json", *other)
    message = only_json(out)["error"]["message"]
    assert code == 2 and "is of another run" in message and difference in message and "Traceback" not in err
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == files


def test_a_killed_run_resumes_without_loss_or_repetition(tmp_path):
    journal = tmp_path / "episodes.jsonl"
    args = (
        "eval",
        ENV,
        "--policy",
        "cli_envs:slow",
        "--episodes",
        "24",
        "--concurrency",
        "4",
        "--output",
        str(tmp_path),
    )
    first = process(*args)
    wait_for(lambda: journal.exists() and journal.read_bytes().count(b"\n") >= 6, first)
    first.kill()
    first.communicate(timeout=60)
    finished = {e.seed for e in read_jsonl(journal)}
    assert 6 <= len(finished) < 24
    second = process(*args, "--resume", "--json")
    out, err = second.communicate(timeout=120)
    assert second.returncode == 0, err
    found = only_json(out)
    assert found["episodes"] == found["valid"] == 24 and found["success_rate"] == 1.0 and found["retried"] == 0
    seeds = [e.seed for e in read_jsonl(journal)]
    assert sorted(seeds) == list(range(24)) and set(seeds[: len(finished)]) == finished


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_closes_what_is_open_and_keeps_what_is_finished(tmp_path, number, code):
    journal = tmp_path / "episodes.jsonl"
    args = ("-k", "stdio=true", "--policy", "cli_envs:slow", "--concurrency", "2", "--output", str(tmp_path), "--json")
    running = process("eval", ENV, *args, "--episodes", "40")
    wait_for(lambda: journal.exists() and journal.read_bytes().count(b"\n") >= 2, running)
    servers = psutil.Process(running.pid).children(recursive=True)
    assert servers
    running.send_signal(number)
    out, err = running.communicate(timeout=60)
    assert running.returncode == code, err
    assert "finished episodes are kept" in only_json(out)["error"]["message"] and "Traceback" not in err
    assert all(e.valid for e in read_jsonl(journal))
    gone, alive = psutil.wait_procs(servers, timeout=10)
    assert not alive


def wait_for(condition, running, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert running.poll() is None, running.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_eval_with_an_endpoint(run, monkeypatch):
    def replies(body, number):
        if body["messages"][-1]["role"] == "tool":
            return completion({"content": f"<answer>{body['messages'][-1]['content']}</answer>"})
        return completion({"tool_calls": [call("add", {"a": 40, "b": 2})]})

    with ChatEndpoint(replies) as endpoint:
        monkeypatch.setenv("LLM_BASE_URL", endpoint.url)
        monkeypatch.setenv("LLM_API_KEY", "secret-key")
        args = ("eval", ENV, "--policy", "openai", "--episodes", "5", "-p", "temperature=0.5", "--json")
        code, out, err = run(*args, "--llm-model-name", "tiny")
    found = only_json(out)
    assert code == 0 and found["success_rate"] == 1.0 and found["mean_turns"] == 2.0
    assert found["policy_args"] == {"temperature": 0.5, "model": "tiny"}
    assert {(r["model"], r["temperature"]) for r in endpoint.requests} == {("tiny", 0.5)}
    assert set(endpoint.keys) == {"Bearer secret-key"} and "secret-key" not in out + err


def test_eval_of_tasks_without_true_answers_says_that_nothing_was_scored(run, tmp_path):
    folder = tmp_path / "2023/test"
    folder.mkdir(parents=True)
    row = {"task_id": "a", "Question": "Who?", "Level": 1, "Final answer": "?", "file_name": ""}
    (folder / "metadata.jsonl").write_text(json.dumps(row) + "\n")
    args = ("eval", "AWorld/Gaia-v0", "-k", f"dataset={tmp_path}", "-k", "split=test", "--policy", "random")
    args += ("--episodes", "2")
    code, out, _ = run(*args, "--json")
    found = only_json(out)
    assert code == 0 and found["scorer"] == "official" and found["split"] == "test"
    assert (found["valid"], found["scored"], found["success_rate"], found["mean_score"]) == (2, 0, None, None)
    code, out, _ = run(*args)
    assert code == 0 and "none scored" in out and "no true answer" in " ".join(out.split())


def test_every_task_of_an_env_that_has_a_list_is_played_once(run, tmp_path):
    folder = tmp_path / "2023/validation"
    folder.mkdir(parents=True)
    rows = [
        {"task_id": f"t{k}", "Question": f"How many are {k} and 1?", "Level": 1 + k % 3, "Final answer": f"{k + 1}"}
        for k in range(6)
    ]
    (folder / "metadata.jsonl").write_text("".join(json.dumps({**row, "file_name": ""}) + "\n" for row in rows))
    args = ("eval", "AWorld/Gaia-v0", "-k", f"dataset={tmp_path}", "-k", "split=validation", "--manifest", "all")
    code, out, _ = run(*args, "--policy", "cli_envs:two", "--output", str(tmp_path / "run"), "--json")
    found = only_json(out)
    assert code == 0 and found["episodes"] == 6 and found["pass_at_1"] == pytest.approx(1 / 6)
    assert found["manifest"]["name"] == "all" and found["manifest"]["tasks_by_level"] == {"1": 2, "2": 2, "3": 2}
    assert {level: numbers["pass_at_1"] for level, numbers in found["by_level"].items()} == {"1": 0, "2": 0.5, "3": 0}
    assert sorted(e.task_id for e in read_jsonl(tmp_path / "run/episodes.jsonl")) == [f"t{k}" for k in range(6)]
    code, out, _ = run("eval", "AWorld/Gaia-v0", "--manifest", "all", "--json")
    assert code == 2 and "its manifests: validation, test" in only_json(out)["error"]["message"]


# ---- what goes wrong ------------------------------------------------------------------------------------------


def test_no_valid_episode_is_a_failure(run):
    code, out, _ = run(
        "eval", ENV, "-k", "stdio=true", "--policy", "cli_envs:dying", "--episodes", "1", "--retries", "0", "--json"
    )
    found = only_json(out)
    assert code == 1 and found["invalid"] == 1 and found["success_rate"] is None
    assert found["outcomes"] == {"infra_failure": 1} and found["failures"] == {"server_died": 1}


def test_what_was_not_measured_is_said_and_no_table_of_nothing(run, tmp_path):
    args = ["eval", ENV, "-k", "stdio=true", "--policy", "cli_envs:dying", "--episodes", "2", "--retries", "0"]
    code, out, err = run(*args, "--output", tmp_path / "run")
    assert code == 1 and "not measured: no episode is valid" in out and "server_died 2" in out
    assert "none" not in out and "mean" not in out and "level" not in out
    assert "error: nothing was measured: no episode is valid (server_died 2)" in err and "--resume" in err
    assert "--resume" not in run(*args)[2]


def test_a_policys_bug(run, tmp_path):
    code, out, err = run(
        "eval", ENV, "--policy", "cli_envs:broken", "--episodes", "2", "--output", str(tmp_path), "--json"
    )
    error = only_json(out)["error"]
    assert code == 1 and error["type"] == "PolicyError"
    assert "policy 'broken' raised in act(): KeyError: 'a bug of the policy'" in error["message"]
    assert "seed" in error["message"] and "Traceback" not in err


def test_a_wrong_address_of_the_endpoint_is_said_once_and_soon(run):
    began = time.monotonic()
    args = ("--policy", "openai", "--llm-base-url", "http://127.0.0.1:9/v1", "--llm-model-name", "m")
    code, out, err = run("eval", ENV, *args, "--episodes", "8", "--json")
    assert code == 2 and "Check LLM_BASE_URL (--llm-base-url)" in only_json(out)["error"]["message"]
    assert sum("ConnectionRefused" in line for line in err.splitlines()) == 1
    assert time.monotonic() - began < 20.0


def test_an_endpoint_that_refuses(run):
    with ChatEndpoint(lambda body, number: refusal(401, "Incorrect API key provided")) as endpoint:
        args = ("--policy", "openai", "--llm-base-url", endpoint.url, "--llm-model-name", "m", "--llm-api-key", "x")
        code, out, err = run("eval", ENV, *args, "--json")
    assert code == 2 and "answered 401: Incorrect API key provided" in only_json(out)["error"]["message"]
    assert "Traceback" not in err
