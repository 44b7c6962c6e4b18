"""What the command line prints and writes, and what it does where it cannot: full disks, closed pipes."""

import dataclasses
import json
import os
import resource
import subprocess
import sys
import types
from pathlib import Path

import pytest
import typer
from cli_process import ENV as NOISY
from cli_process import in_process, only_json, process
from quiet_envs import TASKS

from adapters.common import EpisodeCounts, TrainResult
from aworld_gym.cli_output import reporting
from aworld_gym.cli_support import check_output
from aworld_gym.errors import ConfigError
from aworld_gym.manifests import Manifest
from aworld_gym.tasks import TaskList
from aworld_gym.trajectory import read_jsonl

ENV = "quiet_envs:QuietTest/Small-v0"
FULL = Path("/dev/full")
needs_full = pytest.mark.skipif(not FULL.exists(), reason="no device that is always full")


@pytest.fixture
def run(capfd, monkeypatch):
    """Commands in this process, on a wide terminal."""
    monkeypatch.setenv("COLUMNS", "160")
    return in_process(capfd)


def said(err):
    """The one line that says what went wrong, of a stderr without a traceback."""
    assert "Traceback" not in err and "Exception ignored" not in err, err
    lines = [line for line in err.splitlines() if line.startswith("error:")]
    assert len(lines) == 1, err
    return lines[0]


@pytest.mark.parametrize(
    ("error", "notes", "message"),
    [
        (ConfigError("there is no plan; choose another policy"), ["In the episode with seed 3."],
         "error: there is no plan; choose another policy. In the episode with seed 3."),
        (ConfigError("out of credit"), ["(2 tasks are kept.)"], "error: out of credit (2 tasks are kept.)"),
        (ConfigError("It has an end."), ["So has this."], "error: It has an end. So has this."),
        (KeyboardInterrupt(), [], "error: interrupted; the first half is kept"),
    ],
    ids=["note", "brackets", "sentence", "interrupt"],
)  # fmt: skip
def test_an_error_is_said_in_sentences(capfd, error, notes, message):
    for note in notes:
        error.add_note(note)
    with pytest.raises(typer.Exit), reporting(False) as out:
        out.kept = "; the first half is kept"
        raise error
    assert said(capfd.readouterr().err) == message


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (["--output", "run"], "finished episodes are kept, go on with --resume"),
        ([], "nothing is kept without --output"),
    ],
)
def test_an_interrupted_eval_says_what_is_left(run, tmp_path, monkeypatch, output, message):
    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("aworld_gym.rollout.iterate", interrupted)
    code, _, err = run("eval", ENV, "--episodes", "2", *output)
    assert code == 130 and said(err) == f"error: interrupted; {message}"


# ---- what eval prints -----------------------------------------------------------------------------------------


@pytest.fixture
def manifest(tmp_path):
    """A file of two of the small env's tasks."""
    made = Manifest.of(
        TaskList(TASKS), ["second", "first"], name="two", env_kwargs={"split": "validation", "limits": None}
    )
    made.save(tmp_path / "two.json")
    return made, str(tmp_path / "two.json")


def test_the_setting_stands_with_the_score(run, manifest, tmp_path):
    made, path = manifest
    output = tmp_path / "run"
    args = ("eval", ENV, "--manifest", path, "--group-size", "3", "--seed", "5")
    code, out, err = run(*args, "--output", str(output), "--json")
    found = only_json(out)
    assert code == 0, err
    assert (found["metric"], found["pass_at_1"], found["pass_at_1_ci95"][1]) == ("pass@1", 1.0, 1.0)
    assert (found["split"], found["k"], found["seeds"], found["tasks"]) == ("validation", 3, [5, 6], 2)
    assert found["manifest"] == {"name": "two", "hash": made.hash, "tasks": 2, "tasks_by_level": {"1": 1, "2": 1}}
    assert found["episodes"] == 6 and found["pass_at_k"] == found["avg_at_k"] == 1.0
    assert json.loads((output / "summary.json").read_text()) == found
    records = list(read_jsonl(output / "episodes.jsonl"))
    assert {e.versions["manifest"] for e in records} == {made.hash}
    assert sorted(e.task_id for e in records) == sorted([t.id for t in made.tasks] * 3)
    assert "checking the 2 tasks of manifest two" in err
    code, out, _ = run(*args)
    for shown in (
        "pass@1",
        "pass@3",
        "avg@3",
        "1.000",
        "validation",
        "two, 2 tasks",
        made.hash[:19],
        "5 to 6",
        "3 of each",
    ):
        assert shown in out, shown


def test_without_a_manifest_too(run):
    code, out, _ = run("eval", ENV, "--episodes", "4", "--group-size", "2", "-k", "split=test", "--json")
    found = only_json(out)
    assert code == 0 and found["manifest"] is None and found["metric"] == "pass@1" and found["seeds"] == [0, 1]
    code, out, _ = run("eval", ENV, "--episodes", "1", "-k", "split=test")
    assert code == 0 and "manifest" not in out and "pass@1" in out and "seeds" in out


def test_nouns_follow_their_numbers(run, tmp_path, monkeypatch):
    (tmp_path / "one_tool_server.py").write_text(
        "from aworld_gym.toolchain.compat import new_server\n\n"
        "def make(context):\n    server = new_server('one')\n    server.tool()(lone)\n    return server\n\n"
        "def lone(word: str) -> str:\n    return word\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "mcp.json").write_text('{"mcpServers": {"one": {"python": "one_tool_server:make"}}}')
    assert "1 tool of" in run("tools", "--mcp-config", str(tmp_path / "mcp.json"))[1]
    assert "8 tools of" in run("tools", ENV)[1]


def test_a_run_is_not_continued_with_another_manifest(run, manifest, tmp_path):
    made, path = manifest
    args = ("eval", ENV, "--output", str(tmp_path / "run"), "--json")
    assert run(*args, "--manifest", path)[0] == 0
    assert run(*args, "--manifest", path, "--resume")[0] == 0
    other = dataclasses.replace(made, tasks=made.tasks[:1])
    other.save(tmp_path / "one.json")
    code, out, err = run(*args, "--manifest", str(tmp_path / "one.json"), "--resume")
    message = only_json(out)["error"]["message"]
    assert code == 2 and f"its manifest is '{made.hash}', this one's is '{other.hash}'" in message and said(err)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--manifest", "validaton"], "no manifest 'validaton' of this env (it has none)"),
        (["--manifest", "{path}", "--episodes", "3"], "give either episodes or manifest"),
        (
            ["--manifest", "{path}", "-k", "split=test"],
            "is played with split='validation', and this env has split='test'",
        ),
        (["--manifest", "{path}", "--group-size", "0"], "group_size must be"),
        (["--manifest", "{changed}"], "was changed after it was made"),
        (["--manifest", "{other}"], "differs in its prompt"),
    ],
)
def test_a_manifest_that_cannot_be_played(run, manifest, tmp_path, args, message):
    made, path = manifest
    (tmp_path / "changed.json").write_text(
        Path(path).read_text().replace('"name": "two"', '"name": "x"').replace("valid", "v")
    )
    task = dataclasses.replace(made.tasks[0], digests={**made.tasks[0].digests, "prompt": "0" * 32})
    dataclasses.replace(made, tasks=(task,)).save(tmp_path / "other.json")
    places = {"path": path, "changed": tmp_path / "changed.json", "other": tmp_path / "other.json"}
    code, out, err = run("eval", ENV, *(arg.format(**places) for arg in args), "--json")
    assert code == 2 and message in only_json(out)["error"]["message"] and message in said(err)


# ---- where it cannot write ------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["file/run", "file", "/proc/none/run"])
def test_an_output_that_cannot_be_written_is_said_at_once(run, tmp_path, where):
    (tmp_path / "file").write_text("not a folder")
    code, out, err = run("eval", ENV, "--episodes", "2", "--output", str(tmp_path / where), "--json")
    message = only_json(out)["error"]["message"]
    assert code == 2 and "cannot write episodes to" in message and "choose another place" in message and said(err)
    assert "2/2" not in err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_an_output_without_permission(run, tmp_path):
    tmp_path.chmod(0o500)
    code, out, err = run("eval", ENV, "--episodes", "1", "--output", str(tmp_path / "run"), "--json")
    assert code == 2 and "Permission denied" in only_json(out)["error"]["message"] and said(err)


@pytest.mark.parametrize("where", ["file/run", "file"])
def test_a_training_that_could_not_be_kept_is_not_begun(run, tmp_path, monkeypatch, where):
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setitem(sys.modules, "adapters.trl", types.SimpleNamespace(train=lambda *args, **kwargs: 1 / 0))
    code, out, err = run("train", ENV, "--model", "m", "--output", str(tmp_path / where), "--json")
    message = only_json(out)["error"]["message"]
    assert code == 2 and "cannot write to --output" in message and "file is not a folder" in message and said(err)


def test_where_an_output_may_go(tmp_path, monkeypatch):
    check_output(tmp_path / "new" / "er")
    check_output(tmp_path)
    assert not (tmp_path / "new").exists()
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(ConfigError, match="may not be written; choose another place"):
        check_output(tmp_path / "new")


def limited(size):
    """For ``preexec_fn``: no file may grow beyond ``size`` bytes; a write beyond fails as on a full disk."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


@pytest.mark.parametrize("as_json", [True, False])
def test_a_disk_that_fills_up_keeps_what_was_finished(tmp_path, as_json):
    args = ("eval", ENV, "--episodes", "12", "--concurrency", "2", "--output", str(tmp_path))
    json_option = ["--json"] if as_json else []
    failing = process(*args, *json_option, preexec_fn=limited(25_000))
    out, err = failing.communicate(timeout=60)
    assert failing.returncode == 1, err
    line = said(err)
    assert "episodes.jsonl" in line and "File too large" in line and "kept" in line
    if as_json:
        assert only_json(out)["error"]["type"] == "OutputError"
    kept = list(read_jsonl(tmp_path / "episodes.jsonl"))
    assert 0 < len(kept) < 12 and (tmp_path / "episodes.jsonl").read_bytes().endswith(b"\n"), "no half line"
    again = process(*args, "--resume", "--json")
    out, err = again.communicate(timeout=60)
    assert again.returncode == 0 and only_json(out)["episodes"] == 12, err
    assert len(list(read_jsonl(tmp_path / "episodes.jsonl"))) == 12


def test_a_summary_that_cannot_be_written_is_printed_all_the_same(run, tmp_path):
    (tmp_path / "summary.json.partial").mkdir()
    code, out, err = run("eval", ENV, "--episodes", "2", "--output", str(tmp_path), "--json")
    assert code == 1 and only_json(out)["episodes"] == 2
    assert "cannot write" in said(err) and "summary.json" in said(err)
    assert len(list(read_jsonl(tmp_path / "episodes.jsonl"))) == 2


# ---- where it cannot print ------------------------------------------------------------------------------------


def evaluation(tmp_path, *more):
    return ("eval", ENV, "--episodes", "3", "--output", str(tmp_path / "run"), *more)


def kept(tmp_path):
    assert len(list(read_jsonl(tmp_path / "run/episodes.jsonl"))) == 3
    assert json.loads((tmp_path / "run/summary.json").read_text())["episodes"] == 3


@needs_full
@pytest.mark.parametrize("more", [["--json"], []])
def test_a_full_stdout(tmp_path, more):
    with FULL.open("w") as full:
        done = process(*evaluation(tmp_path, *more), stdout=full)
        _, err = done.communicate(timeout=60)
    assert done.returncode == 1, err
    assert "cannot print to stdout: No space left on device" in said(err)
    kept(tmp_path)


@pytest.mark.parametrize("more", [["--json"], []])
def test_a_stdout_whose_reader_has_gone(tmp_path, more):
    reader, writer = os.pipe()
    os.close(reader)
    done = process(*evaluation(tmp_path, *more), stdout=writer)
    os.close(writer)
    _, err = done.communicate(timeout=60)
    assert done.returncode == 1, err
    assert "cannot print to stdout: Broken pipe" in said(err)
    kept(tmp_path)


@pytest.mark.parametrize(
    "command", [("tools", ENV), ("tools", ENV, "--json"), ("doctor", "--fast"), ("eval", "AWorld/Gaja-v0", "--json")]
)
def test_every_command_says_so_in_one_line(command):
    reader, writer = os.pipe()
    os.close(reader)
    done = process(*command, stdout=writer)
    os.close(writer)
    _, err = done.communicate(timeout=60)
    wrong = command[0] == "eval"
    assert done.returncode == (2 if wrong else 1), err
    assert ("Did you mean" if wrong else "Broken pipe") in said(err)


@pytest.mark.parametrize("more", [["--json"], []])
def test_a_closed_stdout_is_refused_before_anything_is_spent(tmp_path, more):
    done = process(*evaluation(tmp_path, *more), preexec_fn=lambda: os.close(1))
    _, err = done.communicate(timeout=60)
    assert done.returncode == 2 and "stdout is closed" in said(err)
    assert not (tmp_path / "run").exists()


@needs_full
@pytest.mark.parametrize("how", ["full", "gone", "closed"])
def test_a_stderr_that_takes_nothing_ends_no_run(tmp_path, how):
    """Progress and warnings are lost, results are not; that of ``--policy random`` holds failed calls."""
    reader, writer = os.pipe()
    os.close(reader)
    streams = {
        "full": {"stderr": FULL.open("w")},
        "gone": {"stderr": writer},
        "closed": {"preexec_fn": lambda: os.close(2)},
    }
    done = process(*evaluation(tmp_path, "--json", "-k", "stdio=true", "--retries", "0"), **streams[how])
    os.close(writer)
    out, _ = done.communicate(timeout=60)
    assert only_json(out)["episodes"] == 3
    kept(tmp_path)


# ---- train ----------------------------------------------------------------------------------------------------


def test_training_is_summed_up_for_people(run, monkeypatch):
    metrics = [{"step": k, "reward": k / 10, "loss": 0.5 - k / 100, f"odd/{k}": 1.0} for k in range(30)]
    metrics.append({"train_runtime": 12.0, "note": "text"})
    counts = EpisodeCounts(episodes=96, invalid=2, retried=3, answered=80, max_turns=14, infra_failure=2)

    def train(env, **kwargs):
        return TrainResult(Path("runs/x/final"), metrics, Path("runs/x/episodes.jsonl"), counts)

    monkeypatch.setitem(sys.modules, "adapters.trl", types.SimpleNamespace(train=train))
    args = ("train", ENV, "--model", "some/model", "--output", "runs/x")
    code, out, err = run(*args)
    assert code == 0, err
    shown = [line for line in out.splitlines() if "noise" not in line]
    assert len(shown) < 16 and all(len(line) <= 160 for line in shown)
    text = "\n".join(shown)
    for part in (
        "trained with trl",
        "runs/x/final",
        "runs/x/episodes.jsonl",
        "96 (invalid 2, retried 3): answered 80, max_turns 14, infra_failure 2",
        "2.9 (first 0, 30 times)",
        "0.21 (first 0.5, 30 times)",
        "31 lines of",
    ):
        assert part in text, part
    assert "odd/3" not in text
    code, out, _ = run(*args, "--json")
    assert only_json(out)["metrics"] == metrics


def test_numbers_that_json_lacks_are_null(run, monkeypatch):
    metrics = [{"loss": float("nan"), "more": [float("inf"), {"x": (1.5, float("-inf"))}]}]
    result = TrainResult(checkpoint="c", metrics=metrics, episodes="e", counts={})
    monkeypatch.setattr("aworld_gym.cli.adapter", lambda name: types.SimpleNamespace(train=lambda *a, **k: result))
    code, out, _ = run("train", ENV, "--model", "m", "--output", "o", "--json")
    (line,) = json.loads(out, parse_constant=pytest.fail)["metrics"]
    assert code == 0 and line == {"loss": None, "more": [None, {"x": [1.5, None]}]}


def test_training_without_numbers_is_no_error(run, monkeypatch):
    result = TrainResult(Path("final"), [], Path("e.jsonl"))
    monkeypatch.setitem(sys.modules, "adapters.trl", types.SimpleNamespace(train=lambda env, **kwargs: result))
    code, out, err = run("train", ENV, "--model", "m", "--output", "o")
    assert code == 0 and "none" in out and "0 lines" in out, err


def test_what_an_env_prints_into_a_closed_pipe():
    reader, writer = os.pipe()
    os.close(reader)
    done = process("eval", NOISY, "--episodes", "1", stdout=writer)
    os.close(writer)
    _, err = done.communicate(timeout=60)
    assert done.returncode == 1 and "Broken pipe" in said(err)


def test_help_into_a_closed_pipe_is_no_traceback():
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "aworld_gym", "--help"], stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60
    )
    os.close(writer)
    assert done.returncode != 0 and "Traceback" not in done.stderr
