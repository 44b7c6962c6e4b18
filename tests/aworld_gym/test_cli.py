"""The command line, as a user runs it: its commands, what they take, and what they say to what cannot work."""

import json
import logging
import subprocess
import sys
import types
from importlib.metadata import version
from pathlib import Path

import pytest
from cli_process import ENV, LIB, only_json, process, run_fixture  # noqa: F401

from adapters.common import EpisodeCounts, TrainResult
from aworld_gym import doctor

SMALL = str(Path(LIB) / "small_toolchain.py")
ENDPOINT = ["eval", ENV, "--policy", "openai", "--base-url", "http://127.0.0.1:9/v1", "--model", "m"]


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


# ---- what cannot work ---------------------------------------------------------------------------------------


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
        (["eval", "gaia"], "AWorld/Gaia-v0, AWorld/Mcp-v0"),
        (["eval", "no_such_module:Some-v0"], "cannot import 'no_such_module'"),
        (["eval", ":Some-v0"], "'' is no name of a module (from ':Some-v0')"),
        (["eval", ".relative:Some-v0"], "'.relative' is no name of a module"),
        (["eval", ENV, "--policy", "..relative:make"], "'..relative' is no name of a module"),
        (["eval", ENV, "--policy", "random", "-p", "seed=-1"], "seed must be a whole number of at least 0, got -1"),
        (["eval", ENV, "--policy", "random", "-p", "seed=x"], "seed must be a whole number of at least 0, got 'x'"),
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
        ([*ENDPOINT, "-p", "retries=-1"], "retries must be a whole number of at least 0, got -1"),
        ([*ENDPOINT, "-p", "timeout_s=soon"], "timeout_s must be a positive number of seconds, got 'soon'"),
        ([*ENDPOINT, "-p", "extra=top_k"], "extra is a mapping of further fields of the request, got 'top_k'"),
        ([*ENDPOINT, "-p", "timeout_s=0"], "timeout_s must be a positive number of seconds, got 0"),
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
    ("args", "message"),
    [
        (["eval", ENV, "--episodes", "abc"], "'--episodes'"),
        (["eval", ENV, "--episods", "1"], "--episods"),
        (["eval"], "'ENV'"),
        (["eval", ENV, "--seed"], "--seed"),
        (["evla", ENV], "'evla'"),
        (["rescore", "a", "b"], "b"),
    ],
)
def test_a_command_line_that_cannot_be_read_is_one_object_too(run, args, message):
    code, out, err = run(*args, "--json")
    error = only_json(out)["error"]
    assert code == 2 and message in error["message"] and error["type"] and message in err
    code, out, err = run(*args)
    assert code == 2 and out == "" and message in err


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
