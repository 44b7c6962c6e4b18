"""The command line, as a user runs it: real processes where processes matter, real file descriptors everywhere."""

import json
import logging
import signal
import subprocess
import sys
import time
import types
from importlib.metadata import version
from pathlib import Path

import psutil
import pytest
from chat_endpoint import ChatEndpoint, call, completion, refusal
from cli_process import ENV, LIB, only_json, process

from adapters.common import EpisodeCounts, TrainResult
from aworld_gym import doctor
from aworld_gym.cli import app
from aworld_gym.trajectory import read_jsonl

SMALL = str(Path(LIB) / "small_toolchain.py")


@pytest.fixture
def run(capfd, monkeypatch):
    """A command in this process: (exit status, stdout, stderr)."""
    for name in ("LLM_BASE_URL", "LLM_API_KEY", "LLM_MODEL_NAME", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)

    def run(*args):
        capfd.readouterr()
        with pytest.raises(SystemExit) as end:
            app(list(args))
        out, err = capfd.readouterr()
        return end.value.code or 0, out, err

    return run


# ---- tools ----------------------------------------------------------------------------------------------------


def test_tools_of_an_env(run):
    code, out, _ = run("tools", "AWorld/Gaia-v0", "--json", "-k", "level=1")
    found = only_json(out)
    assert code == 0 and found["source"] == "AWorld/Gaia-v0"
    names = [tool["function"]["name"] for tool in found["tools"]]
    assert {"search", "read_table", "run_python", "submit_answer"} <= set(names)
    assert all(tool["type"] == "function" and tool["function"]["parameters"] for tool in found["tools"])
    code, out, _ = run("tools", "AWorld/Gaia-v0")
    assert code == 0 and f"{len(names)} tools of AWorld/Gaia-v0" in out and "submit_answer" in out


def test_tools_of_an_mcp_config(run, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHON_HERE", sys.executable)
    config = tmp_path / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"small": {"command": "${PYTHON_HERE}", "args": [SMALL]}}}))
    code, out, _ = run("tools", "--mcp-config", str(config), "--json")
    assert code == 0
    assert {"echo", "add", "die"} <= {tool["function"]["name"] for tool in only_json(out)["tools"]}


# ---- eval -----------------------------------------------------------------------------------------------------


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


# ---- what goes wrong ------------------------------------------------------------------------------------------


def test_no_valid_episode_is_a_failure(run):
    code, out, _ = run(
        "eval", ENV, "-k", "stdio=true", "--policy", "cli_envs:dying", "--episodes", "1", "--retries", "0", "--json"
    )
    found = only_json(out)
    assert code == 1 and found["invalid"] == 1 and found["success_rate"] is None
    assert found["outcomes"] == {"infra_failure": 1} and found["failures"] == {"server_died": 1}


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


def test_an_unexpected_bug_keeps_its_traceback_and_the_promise_of_one_object():
    running = process("eval", ENV, "--policy", "cli_envs:crashing", "--json")
    out, err = running.communicate(timeout=60)
    assert running.returncode == 1 and only_json(out)["error"]["type"] == "RuntimeError"
    assert "Traceback" in err and "an unexpected bug" in err


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["eval", "AWorld/Gaja-v0"], "Did you mean"),
        (["eval", "AWorld/Gaia-v9"], "v0"),
        (["eval", "no_such_module:Some-v0"], "cannot import 'no_such_module'"),
        (["eval", "AWorld/Gaia-v0", "-k", "splt=test"], "takes no argument 'splt'; it takes split, level"),
        (["eval", "AWorld/Gaia-v0", "-k", "split"], "expected KEY=VALUE, got 'split'"),
        (["eval", "AWorld/Gaia-v0", "-k", "split=tset"], "tset"),
        (["eval", "AWorld/Gaia-v0", "-k", 'limits={"max_turn":3}'], "unknown limit 'max_turn'"),
        (["eval", "CartPole-v1"], "'CartPole-v1' is not a tool env"),
        (["tools", "CartPole-v1"], "'CartPole-v1' is not a tool env"),
        (["train", "CartPole-v1", "--model", "m", "--output", "o"], "'CartPole-v1' is not a tool env"),
        (["train", ENV, "--model", "m", "--output", "o", "--set", "model=n"], "--set model: use --model"),
        (["train", ENV, "--model", "m", "--output", "o", "--set", "output_dir=n"], "use --output"),
        (["eval", ENV, "--policy", "cli_envs:make_env"], "gave what is no policy"),
        (["eval", ENV, "--policy", "cli_envs:slow", "-p", "name=x"], "options ['name']"),
        (["eval", "AWorld/Gaia-v0", "--env-kwargs", "{"], "--env-kwargs is not valid JSON"),
        (["eval", "AWorld/Gaia-v0", "--env-kwargs", "[]"], "must be a JSON object, got list"),
        (["eval", ENV, "--policy", "orakle"], "Did you mean 'oracle'"),
        (["eval", ENV, "--policy", "random", "-p", "sed=1"], "options ['sed']"),
        (["eval", ENV, "--policy", "openai"], "LLM_MODEL_NAME"),
        (["eval", ENV, "--resume"], "--resume needs --output"),
        (["eval", ENV, "--episodes", "0"], "episodes must be"),
        (["tools"], "either an env id or --mcp-config"),
        (["tools", "--mcp-config", "none.json"], "none.json"),
        (["train", ENV, "--model", "m", "--output", "o", "--trainer", "tlr"], "Did you mean 'trl'"),
        (["train", ENV, "--model", "m", "--output", "o", "--trainer", "verl"], "the adapter needs verl"),
        (["train", ENV, "--model", "m", "--output", "o", "--config", "none.yaml"], "cannot read the settings file"),
    ],
)
def test_what_cannot_work_says_what_to_do_without_a_traceback(run, args, message):
    code, out, err = run(*args, "--json")
    error = only_json(out)["error"]
    assert code == 2 and message in error["message"]
    said = [line for line in err.splitlines() if line.startswith("error:")]
    assert len(said) == 1 and message in said[0] and "Traceback" not in err
    assert [line for line in err.splitlines() if "noise" not in line] == said, "one line, and nothing besides"
    code, out, _ = run(*args)
    assert code == 2 and out.replace("noise from making an env\n", "") == ""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not valid JSON"),
        ('{"mcpServers": {}}', "mcpServers"),
        ('{"mcpServers": {"a": {"command": "x", "env": {"K": "${NOT_SET_ANYWHERE}"}}}}', "NOT_SET_ANYWHERE"),
        ('{"mcpServers": {"a": {"command": "no-such-command-here"}}}', "no-such-command-here"),
    ],
)
def test_a_broken_mcp_config(run, tmp_path, text, message):
    (tmp_path / "mcp.json").write_text(text)
    code, out, err = run("tools", "--mcp-config", str(tmp_path / "mcp.json"), "--json")
    assert code == 2 and message in only_json(out)["error"]["message"] and "Traceback" not in err


def test_a_server_that_does_not_start_shows_its_stderr(run, tmp_path):
    server = {"command": sys.executable, "args": ["-c", "import sys; sys.exit('licence expired')"]}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"a": server}}))
    code, out, err = run("tools", "--mcp-config", str(tmp_path / "mcp.json"), "--json")
    assert code == 1 and "licence expired" in only_json(out)["error"]["message"] and "Traceback" not in err


# ---- train ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".yaml", ".json"])
def test_train_hands_everything_to_the_adapter(run, tmp_path, monkeypatch, caplog, suffix):
    got = {}

    def train(env, **kwargs):
        print("noise from a trainer")
        logging.getLogger("adapters.trl.run").info("set by the adapter: use_cpu=True")
        got.update(kwargs, env=env)
        return TrainResult(Path("runs/x/model"), [{"loss": 1.0}], Path("runs/x/e.jsonl"), EpisodeCounts(episodes=3))

    monkeypatch.setitem(sys.modules, "adapters.trl", types.SimpleNamespace(train=train))
    config = tmp_path / f"c{suffix}"
    config.write_text("learning_rate: 1.0e-5\n" if suffix == ".yaml" else '{"learning_rate": 1e-5}')
    args = (
        "--model",
        "some/model",
        "--output",
        "runs/x",
        "--config",
        str(config),
        "--set",
        "max_steps=3",
        "-k",
        "split=test",
    )
    code, out, err = run("train", ENV, *args, "--json")
    assert code == 0, err
    assert only_json(out) == {
        "trainer": "trl",
        "checkpoint": "runs/x/model",
        "metrics": [{"loss": 1.0}],
        "episodes": "runs/x/e.jsonl",
        "counts": {"episodes": 3},
    }
    assert got["env"].id == "CliTest/Small-v0" and got["env"].kwargs == {"split": "test"}
    rest = {k: v for k, v in got.items() if k != "env"}
    assert rest == {"model": "some/model", "output_dir": "runs/x", "config": {"learning_rate": 1e-5}, "max_steps": 3}
    assert "noise from a trainer" in err
    assert "set by the adapter: use_cpu=True" in caplog.text


def test_train_takes_settings_as_arguments(run, monkeypatch):
    got = {}

    def train(env, **kwargs):
        got.update(kwargs)
        return TrainResult(Path("m"), [], Path("e.jsonl"))

    monkeypatch.setitem(sys.modules, "adapters.verl", types.SimpleNamespace(train=train))
    given = "trainer.nnodes=2 --model a=b --output runs/x +a.b=[1] --set credit=step --json --trainer verl"
    code, _, err = run("train", ENV, *given.split())
    assert code == 0, err
    found = {name: value for name, value in got.items() if name not in ("output_dir", "config")}
    assert found == {"model": "a=b", "trainer.nnodes": 2, "+a.b": [1], "credit": "step"}


# ---- the rest -------------------------------------------------------------------------------------------------


def test_entry_points():
    script = Path(sys.executable).with_name("aworld-gym")
    shown = subprocess.run([str(script), "--help"], capture_output=True, text=True, timeout=60)
    assert shown.returncode == 0
    assert all(command in shown.stdout for command in ("tools", "eval", "train", "doctor"))


def test_the_version(run):
    code, out, _ = run("--version")
    assert code == 0 and out == f"aworld-gym {version('aworld-gym')}\n"


def test_train_offers_the_trainers_that_there_are(run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    code, out, _ = run("train", "--help")
    line = next(line for line in out.splitlines() if "--trainer" in line)
    adapters = {path.stem for path in (Path(__file__).parents[2] / "adapters").iterdir()}
    assert code == 0
    assert {name for name in ("trl", "verl", "swift") if name in line} == adapters & {"trl", "verl", "swift"}


PROGRAMS = {
    "script": (str(Path(sys.executable).with_name("aworld-gym")),),
    "module": (sys.executable, "-m", "aworld_gym"),
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_modules_in_the_current_folder_can_be_named(tmp_path, program):
    (tmp_path / "here_policies.py").write_text(
        "def say(messages, tools): return {'role': 'assistant', 'content': '<answer>42</answer>'}\n"
    )
    done = process(
        "eval", ENV, "--policy", "here_policies:say", "--episodes", "1", "--json", program=program, cwd=tmp_path
    )
    out, err = done.communicate(timeout=120)
    assert done.returncode == 0, err
    assert only_json(out)["success_rate"] == 1.0
    (tmp_path / "here_server.py").write_text(Path(SMALL).read_text(encoding="utf-8"))
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"s": {"python": "here_server:make_server"}}}))
    done = process("tools", "--mcp-config", "mcp.json", "--json", program=program, cwd=tmp_path)
    out, err = done.communicate(timeout=120)
    assert done.returncode == 0, err
    assert "echo" in {tool["function"]["name"] for tool in only_json(out)["tools"]}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_the_current_folder_hides_nothing(tmp_path, program):
    (tmp_path / "typer.py").write_text("raise RuntimeError('hidden')\n")
    done = process("--version", program=program, cwd=tmp_path)
    out, err = done.communicate(timeout=60)
    assert done.returncode == 0 and out.startswith("aworld-gym"), err


def test_the_current_folder_is_left_alone_where_python_is_told_so(tmp_path):
    (tmp_path / "here_policies.py").write_text("")
    program = (sys.executable, "-P", "-m", "aworld_gym")
    done = process("eval", ENV, "--policy", "here_policies:say", "--json", program=program, cwd=tmp_path)
    out, _ = done.communicate(timeout=60)
    assert done.returncode == 2 and "cannot import 'here_policies'" in only_json(out)["error"]["message"]


def test_the_doctor_says_what_takes_its_time(run, monkeypatch):
    monkeypatch.setattr(doctor, "_probe", lambda statement: None)
    code, out, err = run("doctor", "--json")
    assert code == 0 and only_json(out)["trainers"]["trl"]["can_run"]
    assert "importing trl to see whether it works" in err and "--fast" in err
    assert "importing" not in run("doctor", "--fast", "--json")[2]


def test_importing_the_package_imports_no_client_and_no_terminal_library():
    code = (
        "import sys, aworld_gym, aworld_gym.rollout, aworld_gym.policies;"
        "heavy = {'openai', 'typer', 'rich', 'torch', 'transformers', 'trl'} & set(sys.modules); print(sorted(heavy))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stderr


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
