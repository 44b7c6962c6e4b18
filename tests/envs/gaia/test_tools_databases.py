"""query_sqlite: what it answers, and queries and files made to hurt."""

from __future__ import annotations

import csv
import io
import os
import random
import sqlite3
import subprocess
import time
from contextlib import closing

import pytest
from gaia_tools import everything_below, served
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from envs.gaia.render import Database, Sheet, render
from envs.gaia.tools import ToolContext, Workspace, build
from envs.gaia.tools.base import ToolFault

SHIPS = Sheet(("name", "tons", "port"), (("Heron", 12, "Dover"), ("Tern", 7, "Malm"), ("Gull, old", 30, "Dover")))
PORTS = Sheet(("port", "country"), (("Dover", "A"), ("Malm", "B")))


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "a.sqlite").write_bytes(render("a.sqlite", Database((("ships", SHIPS), ("ports", PORTS)))))
    return tmp_path


def asked(folder, sql="", path="a.sqlite", **options) -> str:
    return build(ToolContext(Workspace(folder)))["query_sqlite"].function(path, sql, **options)


def refused(folder, sql, path="a.sqlite", **options) -> str:
    with pytest.raises(ToolFault) as fault:
        asked(folder, sql, path, **options)
    assert len(str(fault.value)) < 600
    return str(fault.value)


async def test_tables_are_listed_and_queried(folder):
    async with served(folder) as session:
        assert await session.ok("query_sqlite", path="a.sqlite") == (
            'CREATE TABLE "ships" ("name" TEXT, "tons" INTEGER, "port" TEXT) -- 3 rows\n'
            'CREATE TABLE "ports" ("port" TEXT, "country" TEXT) -- 2 rows'
        )
        sql = "SELECT country, sum(tons) AS total FROM ships JOIN ports USING (port) GROUP BY country ORDER BY 1"
        assert await session.ok("query_sqlite", path="a.sqlite", sql=sql) == "country,total\nA,42\nB,7"
        assert "Did you mean 'a.sqlite'" in await session.refused("query_sqlite", path="b.sqlite", sql="SELECT 1")
        assert "use query_sqlite" in await session.refused("read_document", path="a.sqlite")


@pytest.mark.parametrize(
    ("sql", "shown"),
    [
        ("SELECT NULL AS n, 1.5 AS f, 3.0 AS g, 'a,b' AS t, x'00ff' AS b", "n,f,g,t,b\nNULL,1.5,3.0,\"a,b\",x'00ff'"),
        ("  SELECT name FROM ships WHERE tons > 10 ;  ", 'name\nHeron\n"Gull, old"'),
        ("-- a word first\nSELECT 1 AS x", "x\n1"),
        ("WITH t AS (SELECT max(tons) AS m FROM ships) SELECT m FROM t", "m\n30"),
        ("WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c LIMIT 3) SELECT x FROM c", "x\n1\n2\n3"),
        ("SELECT name FROM ships WHERE 0", "name\n[no rows]"),
        ("VALUES (1, 'x')", "column1,column2\n1,x"),
        ("SELECT name FROM sqlite_schema ORDER BY name", "name\nports\nships"),
        ("SELECT 'Zürich' AS s", "s\nZürich"),
        ("SELECT upper(name) AS u, row_number() OVER (ORDER BY tons) AS r FROM ships LIMIT 1", "u,r\nTERN,1"),
    ],
)
def test_queries(folder, sql, shown):
    assert asked(folder, sql) == shown


def test_windows_say_what_is_left(tmp_path):
    rows = Sheet(("n",), tuple((i,) for i in range(120)))
    (tmp_path / "a.sqlite").write_bytes(render("a.sqlite", Database((("t", rows),))))
    first = asked(tmp_path, "SELECT n FROM t").splitlines()
    assert first[:2] == ["n", "0"] and first[-1] == "[rows 0 to 49 of 120; 70 more: start=50]"
    assert asked(tmp_path, "SELECT n FROM t", start=110).endswith("119\n[rows 110 to 119 of 120]")
    assert len(asked(tmp_path, "SELECT n FROM t", rows=200).splitlines()) == 121
    assert "the result has 120 rows" in refused(tmp_path, "SELECT n FROM t", start=120)
    endless = "WITH RECURSIVE c(x) AS (SELECT 0 UNION ALL SELECT x + 1 FROM c) SELECT x FROM c"
    assert asked(tmp_path, endless, rows=2) == "x\n0\n1\n[rows 0 to 1; more: start=2]"
    assert asked(tmp_path, endless, rows=1, start=150_000).splitlines()[1] == "150000"


def test_results_stay_short(tmp_path):
    wide = Sheet(tuple(f"c{i}" for i in range(150)), (tuple("x" * 3000 for _ in range(150)),) * 30)
    (tmp_path / "a.sqlite").write_bytes(render("a.sqlite", Database((("t", wide),))))
    text = asked(tmp_path, "SELECT * FROM t")
    assert len(text) < 16_000 and "…" in text and "29 more: start=1" in text
    long = "SELECT " + ", ".join(f"'{'y' * 400}'" for _ in range(30))
    assert len(asked(tmp_path, long)) < 16_000


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(
            st.text(st.characters(codec="utf-8", exclude_characters="\0\r", exclude_categories=["Cs"]), max_size=12),
            st.integers(-(2**63), 2**63 - 1),
        ),
        min_size=1,
        max_size=8,
    )
)
def test_any_rows_come_back(tmp_path, rows):
    (tmp_path / "a.sqlite").write_bytes(render("a.sqlite", Database((("t", Sheet(("s", "i"), tuple(rows))),))))
    text = asked(tmp_path, "SELECT s, i FROM t ORDER BY rowid")
    assert list(csv.reader(io.StringIO(text, newline=""))) == [["s", "i"], *([s, str(i)] for s, i in rows)]


WRITES = [
    "INSERT INTO ships VALUES ('x', 1, 'y')",
    "UPDATE ships SET tons = 0",
    "DELETE FROM ships",
    "DROP TABLE ships",
    "CREATE TABLE x (y)",
    "CREATE TEMP TABLE x AS SELECT 1",
    "CREATE VIEW v AS SELECT 1",
    "CREATE VIRTUAL TABLE v USING fts5(x)",
    "ALTER TABLE ships ADD COLUMN x",
    "ANALYZE",
    "VACUUM",
    "VACUUM INTO '/tmp/aworld-copy.sqlite'",
    "BEGIN",
    "SAVEPOINT s",
    "ATTACH DATABASE '/etc/passwd' AS x",
    "ATTACH DATABASE 'other.sqlite' AS x",
    "DETACH DATABASE main",
    "PRAGMA table_info(ships)",
    "PRAGMA writable_schema = 1",
    "PRAGMA temp_store_directory = '/tmp'",
    "SELECT * FROM pragma_table_info('ships')",
    "SELECT * FROM pragma_database_list",
    "SELECT load_extension('libm')",
    "SELECT LOAD_EXTENSION('libm', 'x')",
    "SELECT fts3_tokenizer('simple', x'0011223344556677')",
    "WITH x AS (SELECT 1) INSERT INTO ships SELECT 1, 2, 3",
    "EXPLAIN DELETE FROM ships",
]


@pytest.mark.parametrize("sql", WRITES)
def test_only_reading_is_allowed(folder, sql):
    before = everything_below(folder)
    assert "only reading is allowed" in refused(folder, sql)
    assert everything_below(folder) == before and not os.path.exists("/tmp/aworld-copy.sqlite")


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELEC 1", 'near "SELEC": syntax error'),
        ("SELECT tnos FROM ships", "no such column: tnos. Tables: ships (name, tons, port); ports (port, country)"),
        ("SELECT * FROM ship", "no such table: ship. Tables: ships (name"),
        ("SELECT 1; SELECT 2", "one statement at a time"),
        ("SELECT ?", "bindings"),
        ("-- nothing", "nothing is selected"),
        (";", "nothing is selected"),
        ("SELECT " + "(" * 5000, "failed"),
        ("SELECT 1" + " + 1" * 4000, "failed"),
        ("SELECT 1" + " UNION SELECT 1" * 1000, "too many terms"),
        ("SELECT " + ", ".join("1" for _ in range(300)), "too many columns"),
        ("SELECT '" + "x" * 20_000 + "'", "at most 20,000"),
        ("SELECT '\0'", "NUL"),
        ("SELECT '\ud800'", "failed"),
        ("SELECT zeroblob(1000000000)", "too big"),
        ("SELECT replace(hex(zeroblob(400000)), '0', 'aaaaaaaaaa')", "too big"),
        ("SELECT group_concat(hex(zeroblob(400000))) FROM ships, ports", "too big"),
        ("SELECT abs(-9223372036854775808)", "overflow"),
        ("SELECT json_extract('{', '$')", "malformed JSON"),
    ],
)
def test_what_cannot_be_answered_says_why(folder, sql, message):
    assert message in refused(folder, sql)


COUNT = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) "
ENDLESS = {
    "counting": COUNT + "SELECT max(x) FROM c",
    "sorting": COUNT + "SELECT x, x'00', hex(x) FROM c ORDER BY 2, 1 DESC",
    "sorting much": COUNT + "SELECT x, zeroblob(900000) AS z FROM c ORDER BY z, x",
    "distinct": COUNT + "SELECT count(*) FROM (SELECT DISTINCT x || zeroblob(10000) FROM c)",
    "materialised": COUNT + ", d AS MATERIALIZED (SELECT zeroblob(500000) AS z FROM c) SELECT count(*) FROM d",
    "growing": "WITH RECURSIVE c(x) AS (SELECT 'x' UNION ALL SELECT x || x FROM c) SELECT length(x) FROM c ORDER BY 1",
    "joins": "SELECT count(*) FROM " + ", ".join(f"(SELECT 1 FROM ships, ships, ships, ships) t{i}" for i in range(8)),
    "never a row": COUNT + "SELECT x FROM c WHERE x < 0",
    "searching": "SELECT " + " + ".join(["instr(zeroblob(900000), zeroblob(400000) || x'01')"] * 150),
}


@pytest.mark.parametrize("name", ENDLESS)
def test_endless_queries_are_stopped(folder, name):
    before = time.monotonic()
    children = os.times().children_user + os.times().children_system
    said = refused(folder, ENDLESS[name])
    assert "takes too long" in said or "too much memory" in said or "too big" in said
    assert time.monotonic() - before < 25  # on a busy machine
    assert os.times().children_user + os.times().children_system - children < 5
    assert everything_below(folder).keys() == {"a.sqlite"}


def test_a_query_leaves_no_process_behind(folder):
    import psutil

    here = psutil.Process()
    before = {child.pid for child in here.children()}
    asked(folder, "SELECT 1")
    refused(folder, ENDLESS["counting"])
    assert {child.pid for child in here.children()} <= before


def of_sqlite(build_it) -> bytes:
    with closing(sqlite3.connect(":memory:")) as connection:
        build_it(connection)
        connection.commit()
        return connection.serialize()


def test_a_database_in_write_ahead_mode_is_read(tmp_path):
    with closing(sqlite3.connect(tmp_path / "a.sqlite")) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE t (x)")
        connection.execute("INSERT INTO t VALUES (7)")
        connection.commit()
    assert asked(tmp_path, "SELECT x FROM t") == "x\n7"
    assert set(everything_below(tmp_path)) == {"a.sqlite"}


def test_views_of_what_is_not_there_are_named(tmp_path):
    def build_it(connection):
        connection.execute("CREATE TABLE t (x)")
        connection.execute("CREATE VIEW v AS SELECT x FROM t")
        connection.execute("PRAGMA writable_schema = 1")
        connection.execute("UPDATE sqlite_schema SET sql = 'CREATE VIEW v AS SELECT y FROM gone' WHERE name = 'v'")

    (tmp_path / "a.sqlite").write_bytes(of_sqlite(build_it))
    assert asked(tmp_path).splitlines()[1].startswith("CREATE VIEW v AS SELECT y FROM gone -- cannot be read: no such")
    assert "no such table" in refused(tmp_path, "SELECT * FROM v")


def test_a_view_cannot_make_the_reader_do_what_it_may_not(tmp_path):
    def build_it(connection):
        connection.execute("CREATE VIEW bad AS SELECT load_extension('libm') AS x")
        connection.execute(f"CREATE VIEW endless AS {ENDLESS['counting']}")

    (tmp_path / "a.sqlite").write_bytes(of_sqlite(build_it))
    assert "only reading" in refused(tmp_path, "SELECT * FROM bad") or "unsafe" in refused(
        tmp_path, "SELECT * FROM bad"
    )
    assert "takes too long" in refused(tmp_path, "")


WHOLE = render("a.sqlite", Database((("ships", SHIPS), ("ports", PORTS))))
BROKEN = {
    "empty": b"",
    "text": b"name,tons\n",
    "header only": WHOLE[:16],
    "cut in the first page": WHOLE[:700],
    "cut after it": WHOLE[:4096],
    "junk after the header": WHOLE[:100] + random.Random(0).randbytes(12_188),
    "junk pages": WHOLE[:4096] + random.Random(1).randbytes(8192),
    "a page size of zero": WHOLE[:16] + b"\0\0" + WHOLE[18:],
    "roots beyond the end": WHOLE.replace(b"ships\x05ships\x02", b"ships\x05ships\x7f"),
    "no text in the schema": WHOLE.replace(b"CREATE TABLE", b"CREATE \xff\xff\xff\xff\xff"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_files_are_refused_or_read(tmp_path, name):
    (tmp_path / "a.sqlite").write_bytes(BROKEN[name])
    for sql in ("", "SELECT * FROM ships"):
        try:
            assert len(asked(tmp_path, sql)) < 2000
        except ToolFault as fault:
            assert len(str(fault)) < 400 and str(tmp_path) not in str(fault)
        else:
            assert name in ("cut after it", "junk pages", "roots beyond the end") or "page" in name


def test_what_is_no_database_says_so(tmp_path):
    (tmp_path / "a.sqlite").write_text("name,tons\n")
    assert "is not an SQLite database" in refused(tmp_path, "SELECT 1")


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(16, len(WHOLE) - 1), st.integers(0, 255)), min_size=1, max_size=30))
def test_bytes_changed_anywhere_do_no_harm(tmp_path, changes):
    data = bytearray(WHOLE)
    for at, value in changes:
        data[at] = value
    (tmp_path / "a.sqlite").write_bytes(data)
    try:
        asked(tmp_path, "SELECT * FROM ships, ports")
    except ToolFault as fault:
        assert len(str(fault)) < 600


def test_a_huge_file_is_refused_unread(tmp_path):
    with open(tmp_path / "a.sqlite", "wb") as file:
        file.write(WHOLE)
        file.truncate(200 << 20)
    start = time.process_time()
    assert "209,715,200 bytes" in refused(tmp_path, "SELECT 1")
    assert time.process_time() - start < 1


def test_no_path_leads_outside(folder):
    outside = folder.parent / "outside.sqlite"
    outside.write_bytes(WHOLE)
    (folder / "link.sqlite").symlink_to(outside)
    os.mkfifo(folder / "pipe.sqlite")
    assert "links and special files are not followed" in refused(folder, "SELECT 1", "link.sqlite")
    assert "not a regular file" in refused(folder, "SELECT 1", "pipe.sqlite")
    for path in ("../outside.sqlite", str(outside), "/proc/self/mem"):
        assert "only files of the workspace" in refused(folder, "SELECT 1", path)
    outside.unlink()


def test_the_query_process_sees_nothing_of_the_environment(folder, monkeypatch):
    """Its environment, as it is handed over."""
    seen = {}
    real = subprocess.Popen

    def spy(*arguments, **options):
        seen.update(options["env"])
        return real(*arguments, **options)

    monkeypatch.setenv("AWORLD_SECRET", "s3cret")
    monkeypatch.setattr(subprocess, "Popen", spy)
    asked(folder, "SELECT 1")
    assert seen and "AWORLD_SECRET" not in seen
