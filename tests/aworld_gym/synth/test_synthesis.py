"""Synthesis with a scripted model and real MCP servers: every gate, resume, determinism, and its tasks played."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import gymnasium as gym
import pytest
from interop_servers import FILES, TIME, config
from synth_model import SynthModel, proposal

import aworld_gym  # noqa: F401
from aworld_gym.errors import ConfigError, InfraError
from aworld_gym.metrics import summarize
from aworld_gym.policies import OraclePolicy
from aworld_gym.rollout import rollout
from aworld_gym.synth import GATES, Settings, synthesize
from aworld_gym.synth.evaluation import MAX_REPLY
from aworld_gym.tasks import from_records

LIB = Path(__file__).parents[2] / "lib"
SMALL = {"python": "small_toolchain:make_server", "tools": ["echo", "add", "fail", "count", "write", "list_files"]}
SERVERS = {"mcpServers": {"small": SMALL}}
QUICK = Settings(gap_s=0.0, closed_book=2, samples=2, batch=4)


def add(a, b, question=None, **more):
    question = question or f"Two piles hold {a} and {b} tokens of the {'abcdefghijk'[a % 11] * 3} kind; count them?"
    return proposal(question, ("add", {"a": a, "b": b}), type="int", **more)


def made(model, output, n=100, servers=SERVERS, settings=QUICK, **kwargs):
    return synthesize(servers, model.policy, output, n=n, settings=settings, **kwargs)


def rows(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def verdicts(path):
    log = rows(path.with_suffix(".synth.jsonl"))
    return [(row["gate"], row["reason"]) for row in log if row["kind"] == "verdict"]


# ---- what comes out ------------------------------------------------------------------------------------------------

CHAIN = proposal(
    "Two pears join three on the table, and ten more fall from the tree: how many are there in the end?",
    ("add", {"a": 2, "b": 3}),
    ("add", {"a": {"$from": {"step": 1, "as": "number"}}, "b": 10}),
    type="float",
)
CLOCK = proposal(
    "By how many hours is the clock of Tokyo ahead of UTC, written as the converter writes it?",
    ("convert_time", {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}),
    answer={"step": 1, "json": "/time_difference"},
)
NOTE = proposal(
    "What is the second word of the note in the working folder?",
    ("list_directory", {"path": "."}),
    ("read_text_file", {"path": {"$from": {"step": 1, "after": "[FILE] ", "before": "\n"}}}),
    answer={"step": 2, "after": "alpha ", "before": " charlie"},
)


def test_tasks_over_foreign_servers_that_the_oracle_solves(tmp_path):
    folder = tmp_path / "given"
    folder.mkdir()
    (folder / "note.txt").write_text("alpha brävo charlie")
    (folder / "other.txt").write_text("x")
    servers, output = config(small=SMALL, time=TIME, files=FILES), tmp_path / "out/tasks.jsonl"
    servers["mcpServers"]["small"] = {**SMALL, "tools": ["add"]}
    calls = [
        {"tool": "add", "arguments": {"a": 1, "b": 1}},
        {"tool": "read_text_file", "arguments": {"path": "no"}},
    ]
    with SynthModel([[CHAIN, CLOCK, NOTE]], calls=calls) as model:
        report = made(model, output, n=3, servers=servers, files=folder)
    assert report.complete and report.accepted == report.proposals == 3 and report.stopped is None
    assert 'add({"a": 1, "b": 1}) -> 2' in model.proposed[0]
    assert 'read_text_file({"path": "no"}) -> (failed)' in model.proposed[0]
    assert "note.txt, other.txt" in model.proposed[0] and '"name": "convert_time"' in model.proposed[0]
    assert len(model.asked) == 3 * QUICK.closed_book
    tasks = from_records(output)
    assert [t.answer["text"] for t in tasks.tasks] == ["15", "+9.0h", "brävo"]
    assert tasks.tasks[0].plan[1].arguments == {"a": 5, "b": 10}, "the plan has what was called, not where it stood"
    assert tasks.tasks[2].plan[1].shows == ("brävo",)
    env = gym.make("AWorld/Mcp-v0", mcp_config=servers, tasks=str(output))
    episodes = rollout(env, OraclePolicy(), episodes=4, concurrency=2)
    env.close()
    found = summarize(episodes)
    assert found["success_rate"] == 1.0 and found["valid"] == 4 and found["tool_errors"] == 0
    assert len({e.task_id for e in episodes}) > 1
    moved = tmp_path / "elsewhere"
    output.parent.rename(moved)
    assert len(from_records(moved / "tasks.jsonl").tasks) == 3, "the files go with the tasks"


# ---- the gates -----------------------------------------------------------------------------------------------------


def echo(question, text, *more, type="string", **place):
    """A proposal whose first step echoes the text; the answer is at that place of the last step."""
    return proposal(question, ("echo", {"text": text}), *more, answer={"step": 1 + len(more), **place}, type=type)


def from_first(**place):
    return {"$from": {"step": 1, **place}}


COINS = (
    "How many gold coins lie in both of the chests in the great hall, if the first was filled by the king and the "
    "second by his brother?"
)
GATE_CASES = [
    ("malformed", "a task is an object", "text"),
    ("malformed", "`question` is a text", {"steps": []}),
    ("malformed", "there is no tool 'no_such_tool'", proposal("x?", ("no_such_tool", {}))),
    ("malformed", "expected integer", proposal("x?", ("add", {"a": "one"}))),
    ("malformed", "'submit_answer' is called by itself", proposal("x?", ("submit_answer", {"answer": "1"}))),
    ("malformed", "`$from` in step 1: no step", echo("x?", from_first())),
    ("malformed", "`answer` names a step from 1 to 1", echo("x?", "a", step=2)),
    ("malformed", "unknown key 'regex'", echo("x?", "a", regex=".")),
    ("malformed", "`type` is one of", echo("x?", "a", type="number")),
    ("malformed", "`steps` is a list of 1 to 12 calls", {"question": "x?", "steps": [], "answer": {"step": 1}}),
    ("failed", "step 1 (fail): .*boo", proposal("What does failing say?", ("fail", {"message": "boo"}))),
    ("failed", "'zz' does not stand", echo("What is after zz?", "abc", after="zz")),
    ("failed", "is no JSON", echo("At the pointer?", "abc", json="/a")),
    ("failed", "nothing at '/b'", echo("At slash b?", '{"a": 1}', json="/b")),
    ("failed", "cannot be read as int", echo("As an int?", "many", type="int")),
    ("failed", "the answer is empty", echo("Nothing?", '{"a": ""}', json="/a")),
    ("failed", "the answer is empty", echo("What does silence give?", "")),
    ("failed", "the answer is an object", echo("All?", "{}", json="")),
    ("failed", "longer than 200", echo("Long?", "ab" * 200)),
    ("failed", "is no number", echo("Sum?", "q", ("add", {"a": from_first(**{"as": "number"})}))),
    ("failed", "step 2 (add): .*expected integer", echo("Bad?", "q", ("add", {"a": from_first()}))),
    ("answerable", "the answer stands in the question", echo("What is echoed of Pear Tree?", "pear tree")),
    ("answerable", "without tools the model said '42'", add(40, 2, "How many are forty and two?")),
    ("accepted", "", add(1, 2, COINS)),
    ("repeated", "nearly the question", add(1, 3, f"{COINS.upper()}!")),
    ("repeated", "nearly the question", add(7, 1, COINS.replace("hall", "halls"))),
    ("repeated", "the solution of", add(1, 2, "An altogether different way to put it, is it not?")),
    ("repeated", "the solution of", proposal("Again, but said in full?", ("add", {"b": 2, "a": 1}), type="int")),
    ("accepted", "", add(9, 9, "Which number of swans do two lakes hold together?")),
]


@pytest.mark.parametrize("concurrency", [1, 8])
def test_every_gate_drops_what_it_is_for_and_counts_it(concurrency, tmp_path):
    cases = [case[2] for case in GATE_CASES]
    batches = [cases[i : i + 4] for i in range(0, len(cases), 4)]
    said = []
    with SynthModel(batches, known={"How many are forty and two?": "42"}) as model:
        report = made(model, tmp_path / "t.jsonl", max_proposals=len(cases), concurrency=concurrency, say=said.append)
    found = verdicts(tmp_path / "t.jsonl")
    for (gate, reason), (expected, words, case) in zip(found, GATE_CASES, strict=True):
        assert gate == expected and all(part in reason for part in words.split(".*")), (case, gate, reason)
    counts = {gate: sum(case[0] == gate for case in GATE_CASES) for gate in GATES}
    assert report.fell == counts and report.accepted == 2 and report.proposals == len(cases)
    assert not report.complete and "29 proposals were judged" in report.stopped
    assert [r["answer"]["text"] for r in rows(tmp_path / "t.jsonl")] == ["3", "18"]
    assert said[-1] == "round 8: 1 accepted; 2 of 100 tasks"


def test_an_answer_that_changes_between_two_runs_is_dropped(tmp_path):
    now = proposal(
        "What is the time in UTC now?",
        ("get_current_time", {"timezone": "UTC"}),
        answer={"step": 1, "json": "/datetime"},
    )
    settings = Settings(gap_s=1.1, closed_book=1, samples=0)
    with SynthModel([[now, CLOCK]]) as model:
        report = made(model, tmp_path / "t.jsonl", servers=config(time=TIME), settings=settings, max_proposals=2)
    assert report.fell["unstable"] == 1 and report.accepted == 1
    assert verdicts(tmp_path / "t.jsonl")[0][1].startswith("first '20") and not model.explored


def test_a_call_that_ends_its_server_falls_alone(tmp_path):
    stdio = {"mcpServers": {"small": {"command": sys.executable, "args": [str(LIB / "small_toolchain.py")]}}}
    die = proposal("What does dying say?", ("die", {}))
    calls = [{"tool": "die", "arguments": {}}, {"tool": "echo", "arguments": {"text": "x"}}]
    with SynthModel([[die, add(1, 2)]], calls=calls) as model:
        report = made(model, tmp_path / "t.jsonl", n=1, servers=stdio)
    assert report.complete and report.fell["failed"] == 1
    assert verdicts(tmp_path / "t.jsonl")[0][1].startswith("step 1 (die): server_died")


def test_every_session_is_fresh_so_state_does_not_leak_between_runs(tmp_path):
    count = proposal("After three tries, what does the counter of this session show?", *[("count", {})] * 3, type="int")
    with SynthModel([[count]]) as model:
        made(model, tmp_path / "t.jsonl", n=1)
    assert rows(tmp_path / "t.jsonl")[0]["answer"] == {"text": "3", "type": "int"}


def test_lists_units_and_structured_values(tmp_path):
    data = json.dumps({"a/b": [{"n": ["x y", "z"]}], "d": 3.5})
    items = echo("Which items, in order, are in the box?", data, json="/a~1b/0/n", type="list")
    far = {**echo("How far is it in the record?", data, json="/d", type="float"), "unit": "km"}
    with SynthModel([[items, far]]) as model:
        made(model, tmp_path / "t.jsonl", n=2)
    tasks = from_records(tmp_path / "t.jsonl")
    for task, right, wrong in zip(tasks.tasks, ("x y, z", "3.5 km"), ("z, x y", "3.5 mi"), strict=True):
        assert tasks.score(task, right).value == 1.0 and tasks.score(task, wrong).value == 0.0
        assert tasks.score(task, task.plan[-1].arguments["answer"]).value == 1.0


@pytest.mark.parametrize(
    "reply",
    [
        "Here:\n```json\n[{}]\n```\n",
        "Sure, see [1]! {} Done.",
        '{{"tasks": [{}]}}',
        "[{}]",
        "{}",
        "<think>Perhaps [1] or {{}}?</think>\n[{}]",
        '[{}, {{"question": "and then it was cu',
    ],
    ids=["fence", "prose", "object", "list", "one", "thoughts", "cut"],
)
def test_replies_however_a_model_wraps_them(reply, tmp_path):
    with SynthModel([reply.format(json.dumps(add(1, 2)))]) as model:
        assert made(model, tmp_path / "t.jsonl", n=1).complete


def test_a_question_with_half_a_surrogate_pair_harms_nobody(tmp_path):
    odd = add(1, 2, "How many are one and two \ud83d together?")
    with SynthModel([[odd]]) as model:
        assert made(model, tmp_path / "t.jsonl", n=1).complete
    assert (
        from_records(tmp_path / "t.jsonl").tasks[0].prompt == "How many are one and two ? together?" == model.asked[0]
    )


def test_a_result_that_is_nested_too_deep_falls_alone(tmp_path):
    for depth in (900, 100_000):
        text = "[" * depth + "]" * depth
        deep = proposal("How deep is it?", ("echo", {"text": text}), answer={"step": 1, "json": "/0"}, type="list")
        with SynthModel([[deep, add(1, 2)]]) as model:
            report = made(model, tmp_path / f"{depth}.jsonl", n=1)
        assert report.complete and report.fell["failed"] == 1


def test_a_model_that_writes_no_proposals_is_given_up(tmp_path):
    with SynthModel(["I cannot.", "[", "[]", "{" * 3000]) as model:
        report = made(model, tmp_path / "t.jsonl", n=1)
    assert not report.complete and report.rounds == 10 and report.fell["malformed"] == report.proposals == 10
    assert "10 replies in a row held no well-formed proposal" in report.stopped


def test_a_reply_without_an_end_is_kept_as_far_as_it_is_read(tmp_path):
    endless = f"[{json.dumps(add(1, 2))}, {' and so on' * 1_000_000}"
    with SynthModel([endless]) as model:
        assert made(model, tmp_path / "t.jsonl", n=1).complete
    assert (tmp_path / "t.synth.jsonl").stat().st_size < 2 * MAX_REPLY


# ---- order, resume -------------------------------------------------------------------------------------------------

ROUNDS = [[add(i, j) for i in range(k, k + 3)] for j, k in ((2, 1), (3, 4), (5, 7))]


def whole(folder, **kwargs):
    with SynthModel(ROUNDS) as model:
        report = made(model, folder / "t.jsonl", n=8, **kwargs)
    return report, (folder / "t.jsonl").read_bytes(), (folder / "t.synth.jsonl").read_bytes()


def test_the_same_replies_give_the_same_bytes_however_many_are_evaluated_at_once(tmp_path):
    (one, *files), (many, *others) = whole(tmp_path / "a", concurrency=1), whole(tmp_path / "b", concurrency=8)
    assert files == others and one.accepted == many.accepted == 8
    assert len({row["id"] for row in rows(tmp_path / "a/t.jsonl")}) == 8


def test_accepted_questions_are_shown_to_the_model(tmp_path):
    with SynthModel(ROUNDS) as model:
        made(model, tmp_path / "t.jsonl", n=8)
    assert ROUNDS[0][0]["question"] not in model.proposed[0] and ROUNDS[0][0]["question"] in model.proposed[1]


def test_a_synthesis_that_was_broken_off_goes_on_as_if_it_had_not_been(tmp_path):
    _, *expected = whole(tmp_path / "whole")
    output = tmp_path / "t.jsonl"
    with SynthModel(ROUNDS, broken_from=1) as model, pytest.raises(InfraError, match="out of credit"):
        made(model, output, n=8)
    assert len(rows(output)) == 3
    with pytest.raises(ConfigError, match="already has tasks or a log; resume"):
        made(model, output, n=8)
    with SynthModel(ROUNDS[1:]) as model:
        report = made(model, output, n=8, resume=True)
    assert report.complete and not model.explored, "what was answered is not asked again"
    assert [output.read_bytes(), output.with_suffix(".synth.jsonl").read_bytes()] == expected


@pytest.mark.parametrize("lost", range(1, 14))
def test_wherever_it_was_killed_nothing_is_lost_or_twice(lost, tmp_path):
    """The log as a killed process leaves it: cut short, torn, and perhaps one task ahead of it in the output."""
    _, *expected = whole(tmp_path / "whole")
    output, log = tmp_path / "t.jsonl", tmp_path / "t.synth.jsonl"
    lines = expected[1].splitlines(keepends=True)
    kept, torn = lines[:-lost], lines[-lost]
    accepted = sum(b'"gate": "accepted"' in line for line in kept)
    ahead = b'"gate": "accepted"' in torn
    log.write_bytes(b"".join(kept) + torn[: len(torn) // 2])
    output.write_bytes(b"".join(expected[0].splitlines(keepends=True)[: accepted + ahead]))
    rounds = sum(b'"kind": "round"' in line for line in kept)
    with SynthModel(ROUNDS[rounds:]) as model:
        made(model, output, n=8, resume=True)
    assert [output.read_bytes(), log.read_bytes()] == expected


def test_it_goes_on_to_more_tasks_and_not_with_other_settings(tmp_path):
    output = tmp_path / "t.jsonl"
    with SynthModel(ROUNDS) as model:
        made(model, output, n=2)
        before = output.read_bytes()
        assert made(model, output, n=2, resume=True).accepted == 2 and output.read_bytes() == before
        with pytest.raises(ConfigError, match="its settings is .* resume with the same settings"):
            made(model, output, n=4, resume=True, settings=Settings(seed=1))
        with pytest.raises(ConfigError, match="its servers is"):
            made(model, output, n=4, resume=True, servers={"mcpServers": {"other": SMALL}})
        assert made(model, output, n=5, resume=True).accepted == 5
    assert output.read_bytes().startswith(before)


def test_a_command_that_is_interrupted_and_then_killed_resumes(tmp_path):
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"small": SMALL}}))
    output = tmp_path / "tasks.jsonl"
    env = {k: v for k, v in os.environ.items() if not k.startswith("LLM_")} | {"PYTHONPATH": str(LIB)}
    with SynthModel(ROUNDS) as model:
        args = ["synth", "--mcp-config", str(tmp_path / "mcp.json"), "--n", "8", "--output", str(output), "--json"]
        args += ["--llm-base-url", model.url, "--llm-model-name", "scripted", "--closed-book", "1", "--batch", "4"]
        command = [sys.executable, "-m", "aworld_gym", *args, "--gap", "0.3", "--concurrency", "1"]
        kept = []
        for number, code, tasks in ((signal.SIGINT, 130, 2), (signal.SIGKILL, -signal.SIGKILL, 4)):
            running = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            deadline = time.monotonic() + 60
            while not (output.exists() and output.read_bytes().count(b"\n") >= tasks):
                assert running.poll() is None and time.monotonic() < deadline, running.communicate(timeout=20)
                time.sleep(0.02)
            running.send_signal(number)
            _, err = running.communicate(timeout=60)
            assert running.returncode == code and b"Traceback" not in err, err
            assert rows(output)[: len(kept)] == kept
            kept = rows(output)
            command = [*command, *([] if "--resume" in command else ["--resume"])]
        again = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
    assert again.returncode == 0, again.stderr
    found = json.loads(again.stdout)
    assert found["accepted"] == 8 and found["fell"]["repeated"] == 0 and found["model"] == "scripted"
    assert rows(output)[: len(kept)] == kept and len(rows(output)) == 8
    assert len(model.proposed) == 3 and len(model.explored) == 1, "what was answered is not asked again"


# ---- what cannot work ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"n": 0}, "n must be a whole number"),
        ({"concurrency": 0}, "concurrency must be"),
        ({"output": "t.json"}, "ends in .jsonl"),
        ({"files": "none"}, "--files is a folder"),
        ({"servers": {"mcpServers": {}}}, "at least one server"),
        (
            {"servers": {"mcpServers": {"s": {"python": "envs.mcp.submission:make_server"}}}},
            "no tool but 'submit_answer'",
        ),
        ({"settings": Settings(tools=("ad",))}, "Did you mean 'add'"),
    ],
)
def test_what_cannot_work_is_said(kwargs, message, tmp_path):
    output = tmp_path / kwargs.pop("output", "t.jsonl")
    with SynthModel([]) as model, pytest.raises(ConfigError, match=message):
        made(model, output, **kwargs)


@pytest.mark.parametrize(
    ("field", "value"), [("seed", -1), ("batch", 0), ("closed_book", 1.5), ("similarity", 0), ("gap_s", float("nan"))]
)
def test_settings_that_make_no_sense(field, value):
    with pytest.raises(ConfigError, match=f"{field} must be"):
        Settings(**{field: value})


def test_files_beside_the_output_are_not_overwritten(tmp_path):
    folder = tmp_path / "given"
    folder.mkdir()
    with SynthModel([]) as model:
        with pytest.raises(ConfigError, match="holds no files"):
            made(model, tmp_path / "t.jsonl", files=folder)
        (folder / "a").write_text("1")
        (tmp_path / "t_files").mkdir()
        (tmp_path / "t_files/a").write_text("2")
        with pytest.raises(ConfigError, match="is another file"):
            made(model, tmp_path / "t.jsonl", files=folder)
        (folder / "b").symlink_to("/etc/hostname")
        with pytest.raises(ConfigError, match="is a link"):
            made(model, tmp_path / "t.jsonl", files=folder)
