"""``from_records``: rows from everywhere, ids that stay, files, JSON descriptions, errors that name row and column."""

import json
import math
import os
import pickle
import subprocess
import sys
from decimal import Decimal

import datasets
import gymnasium as gym
import numpy as np
import pandas
import pytest
from gymnasium.envs.registration import EnvSpec
from hypothesis import given
from hypothesis import strategies as st

from aworld_gym.errors import ConfigError, MissingDependencyError, UnknownTaskError
from aworld_gym.records.rows import read_rows
from aworld_gym.tasks import TaskSource, from_records, task_source

ROWS = [
    {"question": "What is 2 + 3?", "result": 5, "kind": "sum"},
    {"question": "What is 4 - 1?", "result": 3, "kind": "difference"},
    {"question": "Who wrote it?", "result": "Ada Byron", "kind": "name"},
]
COLUMNS = {"prompt": "question", "answer": "result", "metadata": ["kind"]}


def written(kind, folder, rows=ROWS):
    """The rows as one of the things that ``from_records`` takes."""
    rows = [{**row, "result": str(row["result"])} for row in rows]  # tables have one type a column
    match kind:
        case "list":
            return rows
        case "generator":
            return (row for row in rows)
        case "frame":
            return pandas.DataFrame(rows)
        case "dataset":
            return datasets.Dataset.from_list(rows)
        case "parquet":
            pandas.DataFrame(rows).to_parquet(folder / "rows.parquet")
        case "json":
            (folder / "rows.json").write_text(json.dumps(rows))
        case "jsonl":
            (folder / "rows.jsonl").write_text("\n\n".join(map(json.dumps, rows)) + "\n")
    return folder / f"rows.{kind}"


def shown(tasks):
    return [(t.id, t.prompt, t.answer, dict(t.metadata)) for t in tasks.tasks]


@pytest.mark.parametrize("kind", ["generator", "frame", "dataset", "parquet", "json", "jsonl"])
def test_the_same_rows_are_the_same_tasks_wherever_they_stand(kind, tmp_path):
    tasks = from_records(written(kind, tmp_path), **COLUMNS)
    assert shown(tasks) == shown(from_records(written("list", tmp_path), **COLUMNS))
    assert isinstance(tasks, TaskSource) and [t.metadata["kind"] for t in tasks.tasks] == ["sum", "difference", "name"]
    assert tasks.get(tasks.tasks[1].id) is tasks.tasks[1]
    assert tasks.sample(np.random.default_rng(3)) in tasks.tasks
    with pytest.raises(UnknownTaskError, match="Did you mean"):
        tasks.get(tasks.tasks[0].id[:-1])


def test_ids_are_of_the_content_and_the_same_in_every_process():
    code = (
        "from aworld_gym.tasks import from_records\n"
        "rows = [{'prompt': 'a', 'answer': {'text': '7', 'type': 'int'}, 'files': {'b': 'c', 'a': 'd'}}]\n"
        "rows.append({'prompt': 'b', 'answer': 1.5})\n"
        "print([t.id for t in from_records(rows).tasks])"
    )
    ids = set()
    for seed in "12":
        env = os.environ | {"PYTHONHASHSEED": seed}
        ids.add(subprocess.run([sys.executable, "-c", code], env=env, check=True, capture_output=True).stdout)
    assert len(ids) == 1
    one = from_records(ROWS, **COLUMNS).tasks
    turned = from_records([dict(reversed(row.items())) for row in reversed(ROWS)], **COLUMNS).tasks
    assert {t.id for t in one} == {t.id for t in turned}, "neither the order of rows nor of columns matters"
    assert from_records([{**ROWS[0], "result": 6}], **COLUMNS).tasks[0].id != one[0].id


def test_rows_that_repeat_are_told_apart():
    ids = [t.id for t in from_records([ROWS[0], ROWS[0], ROWS[0]], **COLUMNS).tasks]
    assert ids == [ids[0], f"{ids[0]}-2", f"{ids[0]}-3"]


def test_a_column_of_ids():
    rows = [{"id": 7, "prompt": "a", "answer": "b"}, {"id": "x", "prompt": "a", "answer": "b"}]
    assert [t.id for t in from_records(rows).tasks] == ["7", "x"]
    renamed = [{"key": row["id"], "prompt": "a", "answer": "b"} for row in rows]
    assert [t.id for t in from_records(renamed, id="key").tasks] == ["7", "x"]


def test_functions_of_the_row_directly_and_by_import_path():
    rows = [{"name": "Mo", "question": "how many?", "solution": "3 and 4 are 7\n#### 7"}]
    one = from_records(rows, prompt=lambda row: f"{row['name']}: {row['question']}", answer=lambda row: 7).tasks[0]
    two = from_records(rows, prompt="record_functions:ask", answer="record_functions:after_hashes").tasks[0]
    assert one.prompt == two.prompt == "Mo: how many?" and two.answer == "7"


def test_a_column_that_is_called_like_an_import_path_is_a_column():
    assert from_records([{"a:b": "q", "answer": 1}], prompt="a:b").tasks[0].prompt == "q"


@pytest.mark.parametrize(
    ("answer", "verdicts"),
    [
        (None, {"7": None, None: None}),
        (float("nan"), {"7": None}),
        (np.int64(7), {"7": 1.0, "7.0": 1.0, "8": 0.0, None: 0.0}),
        (7.5, {"7.5": 1.0, "15/2": 1.0}),
        ("1,024", {"1024": 1.0}),
        ("007", {"007": 1.0, "7": 0.0}),
        ("St. Louis", {"st louis": 1.0, "Saint Louis": 0.0}),
        ([1, 2], {"1, 2": 1.0, "2, 1": 0.0}),
        (["a", "b"], {"A and B": 1.0}),
        ({"text": "17", "type": "int", "unit": "km"}, {"17 km": 1.0, "17 mi": 0.0}),
        (True, {"True": 1.0, "false": 0.0}),
    ],
    ids=str,
)
def test_the_scorer_that_is_there_without_a_choice(answer, verdicts):
    tasks = from_records([{"prompt": "?", "answer": answer}])
    assert tasks.scorer == "strict"
    for given_answer, value in verdicts.items():
        score = tasks.score(tasks.tasks[0], given_answer)
        assert (None if score is None else score.value) == value, given_answer


def test_answers_may_be_left_out_altogether():
    task = from_records([{"prompt": "?"}], answer=None).tasks[0]
    assert task.answer is None


def test_a_scorer_by_import_path():
    tasks = from_records([{"prompt": "?", "answer": "four"}], scorer="record_functions:shorter")
    assert [tasks.score(tasks.tasks[0], a).value for a in ("abc", "abcde")] == [1.0, 0.0]
    assert tasks.score(tasks.tasks[0], "abc").reason == "length"


# ---- files --------------------------------------------------------------------------------------------------------


def placed(tasks, folder, number=0):
    folder.mkdir()
    tasks.setup(tasks.tasks[number], folder)
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_files_as_bytes_text_base64_and_paths(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data/big.bin").write_bytes(b"\0big")
    files = {
        "a.bin": b"\0\1",
        "notes/b.txt": "lines\n",
        "c.txt": {"text": "tèxt"},
        "d.bin": {"base64": "AAE="},
        "e.bin": {"path": "data/big.bin"},
        "f.bin": tmp_path / "data/big.bin",
        "g.bin": None,
    }
    row = {"prompt": "?", "answer": 1, "attached": files}
    tasks = from_records([row], files="attached", folder=tmp_path)
    assert placed(tasks, tmp_path / "w") == {
        "a.bin": b"\0\1",
        "notes/b.txt": b"lines\n",
        "c.txt": "tèxt".encode(),
        "d.bin": b"\0\1",
        "e.bin": b"\0big",
        "f.bin": b"\0big",
    }


@pytest.mark.parametrize("value", ["x.csv", ["x.csv", "y.csv"], {"path": "x.csv", "bytes": b"1"}], ids=str)
def test_files_as_paths_and_as_data_sets_hold_them(value, tmp_path):
    for name in "xy":
        (tmp_path / f"{name}.csv").write_bytes(b"1")
    tasks = from_records([{"prompt": "?", "answer": 1, "files": value}], folder=tmp_path)
    assert placed(tasks, tmp_path / "w") == {name: b"1" for name in (value if isinstance(value, list) else ["x.csv"])}


def test_a_parquet_file_with_bytes_and_a_jsonl_file_beside_its_files(tmp_path):
    rows = [{"prompt": "?", "answer": "1", "files": {"path": "pics/a.png", "bytes": b"\x89PNG"}}]
    datasets.Dataset.from_list(rows).to_parquet(tmp_path / "rows.parquet")
    assert placed(from_records(tmp_path / "rows.parquet"), tmp_path / "w") == {"a.png": b"\x89PNG"}
    (tmp_path / "a.txt").write_text("hello")
    (tmp_path / "rows.jsonl").write_text(json.dumps({"prompt": "?", "answer": "1", "files": ["a.txt"]}))
    assert placed(from_records(str(tmp_path / "rows.jsonl")), tmp_path / "v") == {"a.txt": b"hello"}


@pytest.mark.parametrize(
    "name", ["/etc/x", "../x", "a/../../x", "", "a//b", "a\\b", "C:\\x", "a\nb", ".", "./a", "n" * 300]
)
def test_names_that_lead_out_of_the_workspace_are_refused(name):
    with pytest.raises(ConfigError, match="row 1, column 'files'"):
        from_records([{"prompt": "?", "answer": 1, "files": {name: "x"}}])


@pytest.mark.parametrize("how", ["/etc/hostname", "../secret.txt", "link.txt", "inner/secret.txt"])
def test_a_file_of_rows_cannot_ask_for_what_lies_beside_its_folder(how, tmp_path):
    (tmp_path / "secret.txt").write_text("s")
    folder = tmp_path / "set"
    folder.mkdir()
    (folder / "link.txt").symlink_to(tmp_path / "secret.txt")
    (folder / "inner").symlink_to(tmp_path)
    (folder / "rows.jsonl").write_text(json.dumps({"prompt": "?", "answer": 1, "files": [how]}))
    with pytest.raises(ConfigError, match=r"rows.jsonl, line 1, column 'files'.*lies outside"):
        from_records(folder / "rows.jsonl")


# ---- descriptions ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"a.txt": "\ud800"}, "cannot be written as UTF-8"),
        ({"a.txt": {"text": "\ud800"}}, "cannot be written as UTF-8"),
        ("\ud800", "no path of a file"),
        ("a" * 5000, "no path of a file: File name too long"),
        ({"/".join(["a"] * 600): "x"}, "too long"),
        ([["a.txt"]], "holds no lists"),
        ({"a": "x", "a/b/c": "y"}, "'a' is both a file and a folder"),
        ("rows.jsonl", "is the task set itself"),
        ({"table.txt": {"path": "rows.jsonl"}}, "is the task set itself"),
    ],
    ids=lambda value: str(value)[:20].encode("ascii", "replace").decode(),
)
def test_files_that_cannot_be_are_said_with_their_row(files, message, tmp_path):
    (tmp_path / "rows.jsonl").write_text(json.dumps({"prompt": "?", "answer": "1", "files": files}) + "\n")
    with pytest.raises(ConfigError, match=message) as caught:
        from_records(tmp_path / "rows.jsonl")
    assert "rows.jsonl, line 1, column 'files'" in str(caught.value)
    assert len(str(caught.value)) < 400


def test_values_that_are_too_deep_are_said_with_their_row(tmp_path):
    deep = "[" * 900 + "]" * 900
    (tmp_path / "rows.jsonl").write_text('{"prompt": "?", "answer": "1"}\n{"prompt": "?", "answer": ' + deep + "}\n")
    with pytest.raises(ConfigError, match="line 2 .*too deep"):
        from_records(tmp_path / "rows.jsonl")


def test_a_description_is_json_and_rebuilds_the_same_tasks(tmp_path):
    tasks = from_records(written("jsonl", tmp_path), **COLUMNS, scorer="exact")
    config = json.loads(json.dumps(tasks.config))
    again = task_source(config)
    assert shown(again) == shown(tasks) and again.scorer == "exact" and again.config == config
    assert shown(task_source(from_records(ROWS, **COLUMNS).config)) == shown(from_records(ROWS, **COLUMNS))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prompt": lambda row: "x"}, "because of prompt=<function.*'package.module:function'"),
        ({"prompt": "question", "scorer": lambda t, a: 1.0}, "because of scorer="),
        ({"rows": pandas.DataFrame(ROWS[:2]), "prompt": "question"}, r"because of rows=.*jsonl"),
    ],
    ids=["prompt", "scorer", "rows"],
)
def test_what_json_cannot_hold_is_said(options, message):
    tasks = from_records(options.pop("rows", ROWS), answer="result", **options)
    with pytest.raises(ConfigError, match=f"(?s){message}"):
        print(tasks.config)


def test_an_env_over_records_survives_spec_json_and_pickle(tmp_path):
    config = {"mcpServers": {"small": {"python": "small_toolchain:make_server"}}}
    tasks = {"rows": str(written("jsonl", tmp_path)), **COLUMNS}
    gym.register("RecordsTest/Small-v0", entry_point="aworld_gym.env:ToolEnv", kwargs={"toolchain": config})
    try:
        env = gym.make("RecordsTest/Small-v0", tasks=tasks)
        spec = env.spec.to_json()
        rebuilt = gym.make(EnvSpec.from_json(spec))
        copied = pickle.loads(pickle.dumps(env.unwrapped))
        prompts = []
        for each in (env, rebuilt, copied):
            obs, info = each.reset(options={"task_id": env.unwrapped.tasks.tasks[2].id})
            prompts.append(obs[-1]["content"])
            *_, info = each.step({"role": "assistant", "content": "<answer>ada byron</answer>"})
            assert info["score"] == 1.0
            each.close()
        assert prompts == ["Who wrote it?"] * 3
    finally:
        del gym.registry["RecordsTest/Small-v0"]


# ---- errors ---------------------------------------------------------------------------------------------------------

GOOD = {"prompt": "?", "answer": 1}


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        (
            [GOOD, {"promt": "?", "answer": 1}],
            {},
            r"row 2 has no column 'prompt' \(prompt=\); it has promt,",
        ),
        ([{"prompt": 3, "answer": 1}], {}, "row 1, column 'prompt': expected text, got 3"),
        ([{"prompt": " ", "answer": 1}], {}, "row 1, column 'prompt': expected text"),
        ([{"prompt": [{"role": "user", "content": "?"}], "answer": 1}], {}, "of a conversation, give a function"),
        ([{"prompt": "?"}], {}, r"row 1 has no column 'answer' \(answer=\)"),
        ([GOOD, {"prompt": "?", "answer": b"1"}], {}, "row 2, column 'answer': an answer is a text, a number"),
        (
            [{"prompt": "?", "answer": {"text": "x", "type": "int"}}],
            {},
            "column 'answer': .*cannot be read as int",
        ),
        ([{"prompt": "?", "answer": {"txt": "x"}}], {}, "unknown key 'txt'"),
        ([{"prompt": "?", "answer": "x"}], {"scorer": "number"}, "column 'answer': .*holds no number"),
        ([{"prompt": "?", "answer": "x"}], {"scorer": "date"}, "cannot be read as date"),
        ([{"prompt": "?", "answer": ""}], {"scorer": "official"}, "column 'answer': .*non-empty"),
        ([GOOD], {"scorer": "nummber"}, "Did you mean 'number'"),
        ([GOOD], {"scorer": "record_functions:none"}, "has no 'none'"),
        ([GOOD], {"scorer": 3}, "a scorer is a name"),
        ([GOOD], {"prompt": "no.such.module:f"}, "cannot import 'no.such.module'"),
        ([GOOD], {"prompt": lambda row: row["x"]}, "row 1: the function for 'prompt' raised KeyError: 'x'"),
        ([GOOD], {"prompt": lambda row: 3}, "row 1, the function for 'prompt': expected text, got 3"),
        ([GOOD], {"prompt": 3}, "prompt is the name of a column or a function"),
        ([GOOD], {"metadata": "kind"}, r"write \['kind'\]"),
        ([GOOD], {"metadata": ["kind"]}, r"row 1 has no column 'kind' \(metadata=\)"),
        ([{**GOOD, "kind": math.inf}], {"metadata": ["kind"]}, "row 1, column 'kind': metadata is kept as JSON"),
        (pandas.DataFrame([["a", "b", "c"]], columns=["prompt", "answer", "prompt"]), {}, "than one column 'prompt'"),
        (pandas.DataFrame([["a", "b"]], columns=["1", 1]), {}, "more than one column '1'"),
        ([{**GOOD, "kind": b"x"}], {"metadata": ["kind"]}, "row 1, column 'kind': metadata is kept as JSON"),
        ([{**GOOD, "id": 1}, {**GOOD, "id": "1"}], {}, "row 2, column 'id': '1' is the id of row 1 too"),
        ([{**GOOD, "key": None}], {"id": "key"}, "row 1, column 'key': expected a text of 1 to 200 characters"),
        ([{**GOOD, "grade": "hard"}], {"level": "grade"}, "row 1, column 'grade': expected a whole number, got 'hard'"),
        ([{**GOOD, "plan": [{"tol": "x"}]}], {}, "row 1, column 'plan': step 1 (is|must be) .*, got {"),
        ([{**GOOD, "plan": "{"}], {}, "row 1, column 'plan': it is not valid JSON"),
        ([{**GOOD, "plan": "[" * 100_000}], {}, "row 1, column 'plan': it is not valid JSON"),
        ([{**GOOD, "plan": "5"}], {}, "row 1, column 'plan': expected a list of calls, got 5"),
        ([{**GOOD, "plan": {"tool": "x"}}], {}, "row 1, column 'plan': expected a list of calls, got {"),
        ([{**GOOD, "plan": [{"tool": "x", "shows": 5}]}], {}, "step 1 has a list of texts as `shows`"),
        ([{**GOOD, "plan": [{"tool": "x", "shows": "ab"}]}], {}, "step 1 has a list of texts as `shows`"),
        ([{**GOOD, "plan": [{"tool": "x", "content": 5}]}], {}, "text as `content`"),
        ([{**GOOD, "files": 3}], {}, "row 1, column 'files': expected a mapping of file names"),
        ([{**GOOD, "files": {"a": 3}}], {}, "file 'a' is given as bytes, text"),
        ([{**GOOD, "files": {"a": {"base64": "!"}}}], {}, "file 'a' is not base64"),
        ([{**GOOD, "files": {"a": "", "a/b": ""}}], {}, "'a' is both a file and a folder"),
        ([{**GOOD, "files": ["none.csv"]}], {}, "there is no file 'none.csv'"),
        ([{**GOOD, "files": {"bytes": b"1", "path": None}}], {}, 'a file with "bytes" needs a "path"'),
        ([GOOD, "text"], {}, "row 2 must be a mapping of column names to values, got str"),
        ([], {}, "there are no rows"),
        (3, {}, "rows must be a list of mappings"),
        ({"train": [GOOD]}, {}, r"if these are splits, pass one of them, such as rows\['train'\]"),
        ("none.jsonl", {}, "there is no file 'none.jsonl'"),
        ("rows.csv", {}, "a file of rows ends in one of .jsonl.* passed as a DataFrame"),
    ],
)
def test_what_is_wrong_is_said_with_row_and_column(rows, options, message):
    with pytest.raises(ConfigError, match=message):
        from_records(rows, **options)


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.jsonl", b'{"prompt": "?", "answer": 1}\n\n{"prompt"', "a.jsonl, line 3 is not valid JSON"),
        ("a.jsonl", b"\xff\n", "a.jsonl, line 1 is not valid JSON"),
        ("a.jsonl", b"[1]\n", "a.jsonl, line 1 must be a mapping"),
        ("a.json", b'{"prompt": 1}', "must hold a list of objects, got dict"),
        ("a.parquet", b"PAR1 this is not", "cannot read .*a.parquet as Parquet"),
        ("a.jsonl", b"", "there are no rows in .*a.jsonl"),
    ],
)
def test_broken_files_of_rows(name, data, message, tmp_path):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(ConfigError, match=message):
        from_records(tmp_path / name)


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        ({"prompt": "q"}, "a mapping of tasks needs 'rows'"),
        ({"rows": [GOOD], "promt": "q"}, "Did you mean 'prompt'"),
        (3, "tasks must be a TaskSource"),
    ],
)
def test_descriptions_that_cannot_work(tasks, message):
    with pytest.raises(ConfigError, match=message):
        task_source(tasks)


def test_parquet_without_pyarrow_names_what_to_install(tmp_path, monkeypatch):
    path = written("parquet", tmp_path)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingDependencyError, match="pip install pyarrow"):
        from_records(path, **COLUMNS)


def test_nothing_heavy_is_imported_for_a_file_of_json_lines(tmp_path):
    path = written("jsonl", tmp_path)
    code = (
        f"import sys; from aworld_gym.tasks import from_records; from_records({str(path)!r}, prompt='question', "
        "answer='result'); print([m for m in ('pandas', 'pyarrow', 'datasets', 'mcp') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout == "[]\n"


TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30).filter(str.strip)


@given(st.lists(st.tuples(TEXT, st.one_of(TEXT, st.integers(-(10**9), 10**9), st.booleans())), min_size=1, max_size=6))
def test_any_texts_become_tasks_whose_own_answer_is_right(pairs):
    rows = [{"prompt": prompt, "answer": answer} for prompt, answer in pairs]
    tasks = from_records(rows, scorer="exact")
    assert len({t.id for t in tasks.tasks}) == len(rows)
    assert [t.id for t in from_records(json.loads(json.dumps(rows)), scorer="exact").tasks] == [
        t.id for t in tasks.tasks
    ]
    for task, (prompt, answer) in zip(tasks.tasks, pairs, strict=True):
        text = str(answer).lower() if isinstance(answer, bool) else str(answer)
        assert task.prompt == prompt and tasks.score(task, text).value == 1.0


def test_rows_of_pandas_times_and_numpy_arrays_are_plain():
    frame = pandas.DataFrame({"at": [pandas.Timestamp("2024-01-02"), pandas.NaT], "of": [np.array([1, 2]), pandas.NA]})
    frame["price"] = [Decimal("3.50"), None]
    rows = [row for _, row in read_rows(frame)]
    assert rows == [
        {"at": "2024-01-02T00:00:00", "of": [1, 2], "price": "3.50"},
        {"at": None, "of": None, "price": None},
    ]
