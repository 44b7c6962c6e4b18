"""``query_sqlite``: reading SQL over an SQLite file of the workspace.

Each query runs in a process of its own (:mod:`envs.gaia.tools.sqlite_child`), which works on a copy in its memory:
SQLite bounds neither the memory nor, inside one function, the time of a query, and both must be.
"""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Annotated, Any, BinaryIO

from pydantic import Field

from envs.gaia import bubblewrap
from envs.gaia.machine import MachineFault
from envs.gaia.tools.base import ToolContext, ToolDef, ToolFault, clip, quoted
from envs.gaia.tools.tables import MAX_CELL, MAX_RESULT, MAX_ROWS
from envs.gaia.tools.workspace import MAX_FILE_BYTES

MAX_SQL = 20_000
"""Characters of a query."""
MAX_TABLES = 50
MAX_COLUMNS = 200
MAX_VALUE = 1_000_000
"""Bytes of one value."""
MAX_COUNT = 100_000
"""Rows of a result that are counted; of more it is only said that there are."""
MAX_OPS = 20_000_000
"""Steps of SQLite's machine that one query may take: some half a second. A number, so that no clock decides."""
_WALL_S = 30.0
_LIMITS = {"RLIMIT_CPU": 3, "RLIMIT_AS": 512 << 20, "RLIMIT_FSIZE": 0, "RLIMIT_NOFILE": 32, "RLIMIT_CORE": 0}
_MAGIC = b"SQLite format 3\0"
_CHILD = Path(__file__).with_name("sqlite_child.py")


def tools(context: ToolContext) -> list[ToolDef]:
    """The query tool."""

    def query_sqlite(
        path: str,
        sql: Annotated[str, Field(description="One SELECT; empty lists the tables.")] = "",
        start: Annotated[int, Field(ge=0, description="First row of the result, from 0.")] = 0,
        rows: Annotated[int, Field(ge=1, le=MAX_ROWS)] = 50,
    ) -> str:
        if len(sql) > MAX_SQL:
            raise ToolFault(f"the query has {len(sql):,} characters; at most {MAX_SQL:,} are taken")
        if "\0" in sql:
            raise ToolFault("the query holds a NUL character")
        with context.workspace.open(path) as file:
            answer = _asked(file, path, sql.strip(), min(start, 1 << 60), rows)
        return _shown(answer, start) if sql.strip() else _tables(answer, path)

    return [
        ToolDef(
            query_sqlite,
            "Query an SQLite database, reading only; gives rows as CSV text, the header first.",
            terse="Query a database.",
        )
    ]


def _asked(file: BinaryIO, path: str, sql: str, start: int, rows: int) -> dict[str, Any]:
    """The answer of the process that runs the query.

    Raises:
        ToolFault: no database, or a query that fails, is refused or takes too much.
    """
    if file.read(len(_MAGIC)) != _MAGIC:
        raise ToolFault(f"{quoted(path)} is not an SQLite database")
    file.seek(0)
    request = {
        "sql": sql,
        "start": start,
        "rows": rows,
        "bytes": MAX_FILE_BYTES,
        "cell_bytes": MAX_VALUE,
        "columns": MAX_COLUMNS,
        "shown": MAX_CELL,
        "result": MAX_RESULT,
        "count": max(MAX_COUNT, min(start, MAX_OPS) + rows + 1),
        "tables": MAX_TABLES,
        "ops": MAX_OPS,
        "limits": _LIMITS,
    }
    answer = _run(file.fileno(), json.dumps(request).encode("utf-8", "replace"))
    if "error" in answer:
        raise ToolFault(_refusal(answer, path))
    return answer


def _run(descriptor: int, request: bytes) -> dict[str, Any]:
    kept = {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}
    with subprocess.Popen(
        [bubblewrap.python(), "-I", "-S", "-B", "-X", "utf8", str(_CHILD), str(descriptor)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        pass_fds=[descriptor],
        env={"MALLOC_ARENA_MAX": "2", **kept},
        start_new_session=True,
    ) as process:
        try:
            out, complaint = process.communicate(request, timeout=_WALL_S)
        except subprocess.TimeoutExpired:
            return {"error": "interrupted"}
        finally:
            process.kill()
    if process.returncode == 0:
        answer: dict[str, Any] = json.loads(out)
        return answer
    if process.returncode == -signal.SIGXCPU:
        return {"error": "interrupted"}
    if process.returncode == -signal.SIGKILL:  # which its own limits never send it
        raise MachineFault("the query's process was killed from outside")
    if process.returncode < 0:  # SQLite stumbled over a broken file, in its own process
        return {"error": "the file is damaged"}
    raise RuntimeError(f"the query process ended with {process.returncode}: {complaint.decode('utf-8', 'replace')}")


def _refusal(answer: dict[str, Any], path: str) -> str:
    error = str(answer["error"])
    if error == "interrupted":
        return "the query takes too long and was stopped; select less, or narrow it with WHERE or LIMIT"
    if error.startswith(("not authorized", "authorization denied")) or "prohibited" in error:
        return (
            "only reading is allowed: one SELECT over the tables of the file (no PRAGMA, ATTACH, writing or extension)"
        )
    text = f"the query of {quoted(path)} failed: {clip(error, 80)}"
    if answer.get("tables"):
        listed = "; ".join(f"{one['name']} ({', '.join(one['columns'])})" for one in answer["tables"])
        text += f". Tables: {clip(listed, 300)}"
    return text


def _tables(answer: dict[str, Any], path: str) -> str:
    out = []
    for one in answer["tables"]:
        rows = f"{one['rows']:,} rows" if "error" not in one else f"cannot be read: {clip(one['error'], 80)}"
        out.append(f"{clip(one['sql'], 1000)} -- {rows}")
    if answer["more"]:
        out.append("[more tables: select from sqlite_schema]")
    return clip("\n".join(out), MAX_RESULT) or f"{quoted(path)} has no tables"


def _shown(answer: dict[str, Any], start: int) -> str:
    shown, seen = len(answer["rows"]), answer["seen"]
    if start and start >= seen:
        raise ToolFault(f"there is no row {clip(str(start), 20)}: the result has {seen} rows")
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([answer["columns"], *answer["rows"]])
    text = out.getvalue()[:-1]
    left = seen - start - shown
    if not shown:
        return f"{text}\n[no rows]"
    if start or left:
        total = f" of {seen}" if answer["all"] else ""
        more = f"; {f'{left} ' if answer['all'] else ''}more: start={start + shown}" if left else ""
        text += f"\n[rows {start} to {start + shown - 1}{total}{more}]"
    return text
