"""``aworld-gym synth`` as a user runs it, and what its tasks are for: ``eval`` of AWorld/Mcp-v0."""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from chat_endpoint import ChatEndpoint, refusal
from cli_process import in_process
from synth_model import SynthModel, proposal

SERVERS = {"mcpServers": {"small": {"python": "small_toolchain:make_server", "tools": ["echo", "add"]}}}
SUMS = [
    proposal("Four and a half dozen eggs lie here, plus three: how many?", ("add", {"a": 54, "b": 3}), type="int"),
    proposal("Which number do nine hundred and one make?", ("add", {"a": 900, "b": 1}), type="int"),
]


@pytest.fixture
def run(capfd, monkeypatch):
    """Commands in this process, on a wide terminal, with no endpoint set."""
    for name in ("LLM_BASE_URL", "LLM_API_KEY", "LLM_MODEL_NAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    return in_process(capfd)


@pytest.fixture
def place(tmp_path):
    (tmp_path / "mcp.json").write_text(json.dumps(SERVERS))
    return tmp_path


def args(place, url, *more):
    model = ("--llm-base-url", url, "--llm-model-name", "scripted", "--gap", "0")
    return ("synth", "--mcp-config", place / "mcp.json", "--output", place / "tasks.jsonl", *model, *more)


def test_synth_then_eval(run, place, monkeypatch):
    with SynthModel([SUMS]) as model:
        monkeypatch.setenv("LLM_API_KEY", "secret-key")
        code, out, err = run(*args(place, model.url, "--n", "2", "-p", "temperature=0.5", "--json"))
    found = json.loads(out)
    assert code == 0 and out.count("\n") == 1
    assert (found["accepted"], found["proposals"], found["rounds"], found["stopped"]) == (2, 2, 1, None)
    assert found["fell"] == {"malformed": 0, "repeated": 0, "failed": 0, "unstable": 0, "answerable": 0}
    assert {r["temperature"] for r in model.requests} == {0.5} and set(model.keys) == {"Bearer secret-key"}
    written = (place / "tasks.jsonl").read_text() + (place / "tasks.synth.jsonl").read_text()
    assert "secret-key" not in out + err + written
    env = ("AWorld/Mcp-v0", "-k", f"mcp_config={place / 'mcp.json'}")
    code, out, _ = run("eval", *env, "-k", f"tasks={place / 'tasks.jsonl'}", "--episodes", "6", "--json")
    found = json.loads(out)
    assert code == 0 and found["success_rate"] == 1.0 and found["scorer"] == "strict"
    code, out, _ = run("tools", *env, "--json")
    assert [t["function"]["name"] for t in json.loads(out)["tools"]] == ["echo", "add", "submit_answer"]


def test_synth_for_people_and_too_few_tasks(run, place):
    with SynthModel([[*SUMS, "text"]]) as model:
        code, out, err = run(*args(place, model.url, "--n", "5", "--max-proposals", "3"))
    assert code == 1 and "2 of 5 wanted" in out and "1: no proposal" in out and "3 in 1 rounds" in out
    assert "round 1: 2 accepted, 1 malformed; 2 of 5 tasks" in err and "stopped before there were enough" in err


def test_a_model_that_fails_keeps_what_is_there_and_says_how_to_go_on(run, place):
    with SynthModel([SUMS], broken_from=1) as model:
        code, out, _ = run(*args(place, model.url, "--n", "5", "-p", "retries=0", "--json"))
    message = json.loads(out)["error"]["message"]
    assert code == 1 and "out of credit" in message and "(2 tasks are kept in" in message and "resume" in message
    with SynthModel([[proposal("Eight and eighty?", ("add", {"a": 8, "b": 80}), type="int")]]) as model:
        code, out, _ = run(*args(place, model.url, "--n", "3", "--resume", "-p", "retries=3", "--json"))
    assert code == 0 and json.loads(out)["accepted"] == 3


def test_a_disk_that_fills_up_ends_the_run_and_it_is_resumed_without_loss(place):
    """No file may grow beyond so many bytes: a write beyond fails as on a full disk."""
    batches = [
        [proposal(f"Which number do {k} and one make?", ("add", {"a": k, "b": 1}), type="int")] for k in range(9)
    ]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1] / "lib")}

    def command(model, *more):
        words = map(str, args(place, model.url, "--n", "6", "--batch", "1", "--similarity", "1", "--json", *more))
        return [sys.executable, "-m", "aworld_gym", *words]

    with SynthModel(batches) as model:
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))  # noqa: E731
        done = subprocess.run(
            command(model), env=environment, capture_output=True, text=True, preexec_fn=limit, timeout=90
        )
        message = json.loads(done.stdout)["error"]["message"]
        assert done.returncode == 1 and "File too large; what it holds is whole (4 tasks are kept in" in message, (
            done.stderr
        )
        lines = (place / "tasks.jsonl").read_text().splitlines()
        assert len([json.loads(line) for line in lines]) == 4 and "Traceback" not in done.stderr
    replies = sum('"kind": "round"' in line for line in (place / "tasks.synth.jsonl").read_text().splitlines())
    with SynthModel(batches[replies:]) as model:
        done = subprocess.run(command(model, "--resume"), env=environment, capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in (place / "tasks.jsonl").read_text().splitlines()]
    assert [row["answer"]["text"] for row in found] == ["1", "2", "3", "4", "5", "6"]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--n", "0"], "n must be a whole number of at least 1"),
        (["--similarity", "2"], "similarity must be"),
        (["--tool", "ad"], "Did you mean 'add'"),
        (["--files", "none"], "--files is a folder"),
        (["-p", "temprature=1"], "temprature"),
        (["--mcp-config", "none.json"], "cannot read the toolchain configuration"),
    ],
)
def test_what_cannot_work_says_what_to_do_without_a_traceback(run, place, more, message):
    with SynthModel([]) as model:
        code, out, err = run(*args(place, model.url, *more, "--json"))
    assert code == 2 and message in json.loads(out)["error"]["message"] and "Traceback" not in err


def test_no_model_and_a_model_that_refuses(run, place):
    code, out, _ = run("synth", "--mcp-config", place / "mcp.json", "--output", place / "t.jsonl", "--json")
    assert code == 2 and "LLM_MODEL_NAME" in json.loads(out)["error"]["message"]
    with ChatEndpoint(lambda body, number: refusal(401, "Incorrect API key provided")) as endpoint:
        code, out, _ = run(*args(place, endpoint.url, "--json"))
    assert code == 2 and "Incorrect API key" in json.loads(out)["error"]["message"]
    too_long = "This model's maximum context length is 4096 tokens"
    with ChatEndpoint(lambda body, number: refusal(400, too_long, "context_length_exceeded")) as endpoint:
        code, out, _ = run(*args(place, endpoint.url, "--resume", "--json"))
    assert code == 2 and "offer fewer tools" in json.loads(out)["error"]["message"]
