"""The journal: what is written comes back, and no kill costs more than the line being written."""

import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from episodes import episode, episodes
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aworld_gym.errors import ConfigError, OutputError
from aworld_gym.trajectory import Journal, Resume, append, read_jsonl, write_jsonl
from aworld_gym.types import Episode, Outcome

ODD_TASK = json.dumps({**episode(1).to_dict(), "task": None}).encode()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(episodes, max_size=4))
def test_what_is_written_comes_back(tmp_path, some):
    expected = [e.to_dict() for e in some]
    assert write_jsonl(tmp_path / "a.jsonl", some) == len(some)
    assert [e.to_dict() for e in read_jsonl(tmp_path / "a.jsonl")] == expected
    (tmp_path / "b.jsonl").unlink(missing_ok=True)
    append(tmp_path / "b.jsonl", *some)
    assert (tmp_path / "b.jsonl").read_bytes() == (tmp_path / "a.jsonl").read_bytes()
    assert all(Episode.from_dict(e.to_dict()).to_dict() == e.to_dict() for e in some)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_file_cut_anywhere_loses_only_the_line_that_was_cut(tmp_path, data):
    some = [episode(seed, turns=seed % 3) for seed in range(3)]
    path = tmp_path / "cut.jsonl"
    path.unlink(missing_ok=True)
    append(path, *some)
    whole = path.read_bytes()
    cut = data.draw(st.integers(0, len(whole)))
    path.write_bytes(whole[:cut])
    complete = whole[:cut].count(b"\n")
    seeds = [e.seed for e in read_jsonl(path)]
    # A line that lacks nothing but its newline is complete too.
    assert seeds[:complete] == list(range(complete)) and len(seeds) - complete in (0, 1)
    with Journal(path) as journal:
        journal.append(episode(7))
    assert [e.seed for e in read_jsonl(path)] == [*seeds, 7]


def test_a_line_that_lacks_only_its_end_is_given_one(tmp_path):
    path = tmp_path / "a.jsonl"
    append(path, episode(1), episode(2))
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    assert [e.seed for e in read_jsonl(path)] == [1, 2]
    with Journal(path):
        pass
    assert path.read_bytes() == whole


def test_a_torn_line_is_left_out_aloud_and_an_empty_one_without_a_word(tmp_path, caplog):
    path = tmp_path / "a.jsonl"
    append(path, episode(1), episode(2))
    one, two = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"\n" + one + b" \n\n" + two)
    assert [e.seed for e in read_jsonl(path)] == [1, 2] and not caplog.records
    path.write_bytes(one + two[:50])
    assert [e.seed for e in read_jsonl(path)] == [1]
    assert [r.getMessage() for r in caplog.records] == [f"{path}: the last line is torn (50 bytes) and is left out"]


def test_a_torn_line_longer_than_a_block_is_cut_off_whole(tmp_path):
    path = tmp_path / "a.jsonl"
    append(path, episode(1))
    sound = path.read_bytes()
    path.write_bytes(sound + b'{"env_id": "' + b"x" * 300_000)
    with Journal(path):
        pass
    assert path.read_bytes() == sound


@pytest.mark.parametrize(
    "line", [b'{"env_id": 3', b"[" * 100_000, b"5", ODD_TASK], ids=["cut", "deep", "number", "task"]
)
def test_a_broken_line_in_the_middle_is_an_error_that_names_it(line, tmp_path):
    path = tmp_path / "a.jsonl"
    append(path, episode(1))
    path.write_bytes(path.read_bytes() + line + b"\n" + path.read_bytes())
    with pytest.raises(ConfigError, match=r"a\.jsonl:2 is not an episode record"):
        list(read_jsonl(path))
    with pytest.raises(ConfigError, match=r"no episodes file at \S+none\.jsonl$"):
        list(read_jsonl(tmp_path / "none.jsonl"))
    path.rename(tmp_path / "episodes.jsonl")
    with pytest.raises(ConfigError, match=r"no episodes file at .*; there is .*episodes\.jsonl"):
        list(read_jsonl(tmp_path))


def test_two_runs_cannot_write_one_journal(tmp_path):
    with Journal(tmp_path / "a.jsonl"), pytest.raises(ConfigError, match="being written by another run"):
        Journal(tmp_path / "a.jsonl")
    Journal(tmp_path / "a.jsonl").close()


def test_where_there_are_no_locks_a_journal_is_written_all_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr("aworld_gym.trajectory.fcntl", None)  # as on Windows
    with Journal(tmp_path / "a.jsonl") as one, Journal(tmp_path / "a.jsonl") as other:
        one.append(episode(0))
        other.append(episode(1))
    assert [e.seed for e in read_jsonl(tmp_path / "a.jsonl")] == [0, 1]


def test_processes_that_append_wait_for_each_other(tmp_path):
    code = """
import sys
from episodes import episode
from aworld_gym.trajectory import append
for sample in range(25):
    append(sys.argv[1], episode(int(sys.argv[2]), sample=sample))
"""
    here = [sys.executable, "-c", code, str(tmp_path / "a.jsonl")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    writers = [subprocess.Popen([*here, str(seed)], env=environment) for seed in range(3)]
    assert [writer.wait(60) for writer in writers] == [0, 0, 0]
    assert {(e.seed, e.sample) for e in read_jsonl(tmp_path / "a.jsonl")} == {
        (i, k) for i in range(3) for k in range(25)
    }


def test_appending_to_another_runs_journal_ends_in_words(tmp_path, monkeypatch):
    monkeypatch.setattr("aworld_gym.trajectory.APPEND_WAIT_S", 0.05)
    with Journal(tmp_path / "a.jsonl"), pytest.raises(ConfigError, match="being written by another run"):
        append(tmp_path / "a.jsonl", episode(1))


def test_a_torn_line_costs_no_more_than_reading_it(tmp_path):
    path, costs = tmp_path / "a.jsonl", []
    for blocks in (16, 256):
        path.write_bytes(b"x" * (blocks * (1 << 16)))
        began = time.process_time()
        Journal(path).close()
        costs.append(time.process_time() - began)
        assert path.read_bytes() == b""
    assert costs[1] < 0.5, f"16 MiB took {costs[1]} s, 1 MiB {costs[0]} s: that grows with the square"


@pytest.mark.parametrize("place", ["/dev/null/a.jsonl", "/proc/no/a.jsonl"])
def test_a_file_that_cannot_be_written_is_said(place):
    with pytest.raises(OutputError, match=f"cannot write {place}: .*choose another place"):
        write_jsonl(place, [episode(0)])


def test_writing_what_breaks_off_leaves_nothing(tmp_path):
    def some():
        yield episode(0)
        raise ConfigError("no more")

    (tmp_path / "a.jsonl").write_text("old")
    with pytest.raises(ConfigError, match="no more"):
        write_jsonl(tmp_path / "a.jsonl", some())
    assert [p.name for p in tmp_path.iterdir()] == ["a.jsonl"] and (tmp_path / "a.jsonl").read_text() == "old"


def test_a_closed_journal_refuses(tmp_path):
    journal = Journal(tmp_path / "deep" / "a.jsonl")
    journal.close()
    journal.close()
    assert journal.closed
    with pytest.raises(ValueError, match="is closed"):
        journal.append(episode(1))


def test_threads_do_not_mix_their_lines(tmp_path):
    with Journal(tmp_path / "a.jsonl", sync_every_s=0.0) as journal:
        threads = [
            threading.Thread(target=lambda k=k: [journal.append(episode(k, sample=i, turns=20)) for i in range(20)])
            for k in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    found = sorted((e.seed, e.sample) for e in read_jsonl(tmp_path / "a.jsonl"))
    assert found == [(k, i) for k in range(4) for i in range(20)]


WRITER = """
import sys
from aworld_gym.trajectory import Journal
from episodes import episode
journal, seed = Journal(sys.argv[1]), 0
while True:
    journal.append(episode(seed, turns=50)); print(seed, flush=True); seed += 1
"""


def test_a_killed_writer_loses_nothing_that_it_finished(tmp_path):
    path = tmp_path / "a.jsonl"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, env=env)
    deadline = time.monotonic() + 60
    while not path.exists() or path.stat().st_size < 100_000:
        assert writer.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    writer.send_signal(signal.SIGKILL)
    announced = writer.communicate(timeout=60)[0].split()
    found = [e.seed for e in read_jsonl(path)]
    assert found == list(range(len(found))) and len(found) >= len(announced) > 5


def test_the_resume_index():
    broken = dict(outcome=Outcome.INFRA_FAILURE, score=None)
    done = Resume(
        (
            episode(1, **broken),
            episode(1, attempt=1),
            episode(1, sample=1, **broken),
            episode(2, **broken, task_id=""),
            episode(3, task_id="x"),
            episode(3, task_id="y"),
        )
    )
    assert done.finished(1).attempt == 1
    assert done.finished(1, 1) is None and done.next_attempt(1, 1) == 1
    assert done.finished(2) is None and done.next_attempt(2) == 1
    assert done.finished(9) is None and done.next_attempt(9) == 0
    assert done.finished(3, 0, "y").task_id == "y" and done.finished(3, 0, "z") is None
    assert [e.attempt for e in done.records(1)] == [0, 1]


def test_resume_of_no_file_is_empty(tmp_path):
    assert Resume.of(tmp_path / "none.jsonl").episodes == ()


def test_lines_are_json_that_any_reader_takes(tmp_path):
    append(tmp_path / "a.jsonl", episode(1, score=0.5))
    (line,) = (tmp_path / "a.jsonl").read_text("ascii").splitlines()
    data = json.loads(line)
    assert data["valid"] is True and data["return"] == 0.5 and data["outcome"] == "answered"


def test_a_journal_whose_disk_is_full_is_as_it_was(tmp_path, monkeypatch):
    path = tmp_path / "e.jsonl"
    journal = Journal(path)
    journal.append(episode(0))
    before, real = path.read_bytes(), os.write

    def full(fd, data):
        if len(data) > 40:
            return real(fd, data[:40])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OutputError, match="No space left on device; the episodes that stand there are kept"):
        journal.append(episode(1))
    assert path.read_bytes() == before
    monkeypatch.setattr(os, "write", real)
    journal.append(episode(2))
    journal.close()
    assert [e.seed for e in read_jsonl(path)] == [0, 2]


@pytest.mark.parametrize("when", ["beside", "at the end"])
def test_a_disk_that_fails_to_synchronise_is_said(tmp_path, monkeypatch, when):
    def broken(fd):
        raise OSError(5, "Input/output error")

    journal = Journal(tmp_path / "e.jsonl", sync_every_s=0.0 if when == "beside" else 1000.0)
    real = os.fsync
    monkeypatch.setattr(os, "fsync", broken)
    journal.append(episode(0))
    if when == "beside":
        journal._syncing.join()
        with pytest.raises(OutputError, match="Input/output error"):
            journal.append(episode(1))
        monkeypatch.setattr(os, "fsync", real)
        journal.close()
    else:
        with pytest.raises(OutputError, match="Input/output error"):
            journal.close()
    assert journal.closed
    journal.close()


def test_a_journal_in_a_place_that_cannot_be(tmp_path):
    for path in (tmp_path, tmp_path / "file" / "e.jsonl"):
        (tmp_path / "file").touch()
        with pytest.raises(ConfigError, match="cannot write episodes to"):
            Journal(path)
