"""Runs in a process of its own: answers one query over one database. Never imported by the tools; no package needed.

Standard input holds the request as JSON, and the descriptor that the first argument names holds the database; the
answer goes to standard output as JSON. The process takes limits on its memory and time, then reads the file into
memory: the file is never opened by name, written to, or locked, and no other file is.
"""

import json
import os
import resource
import sqlite3
import sys

_OPS_A_LOOK = 1000
_REFUSED_FUNCTIONS = {"load_extension", "fts3_tokenizer", "readfile", "writefile", "edit"}
_READING = {
    sqlite3.SQLITE_SELECT,
    sqlite3.SQLITE_READ,
    sqlite3.SQLITE_FUNCTION,
    sqlite3.SQLITE_RECURSIVE,
}


def _main():
    request = json.load(sys.stdin)
    for name, value in request["limits"].items():
        kind = getattr(resource, name)
        hard = resource.getrlimit(kind)[1]
        # At the soft limit of time the process ends by SIGXCPU, at the hard one by SIGKILL, as if killed by others.
        most = value + 1 if name == "RLIMIT_CPU" else value
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (max(1, most - 1) if name == "RLIMIT_CPU" else most, most))
    with os.fdopen(int(sys.argv[1]), "rb") as file:
        file.seek(0)
        data = bytearray(file.read(request["bytes"]))
    data[18:20] = b"\1\1"  # a log beside the file, which is not there, is not looked for
    try:
        answer = _answer(data, request)
    except MemoryError:
        answer = {"error": "it takes too much memory"}
    except (sqlite3.Error, sqlite3.Warning, UnicodeError) as error:
        answer = {"error": str(error)}
    json.dump(answer, sys.stdout)


def _answer(data, request):
    connection = sqlite3.connect(":memory:")
    connection.text_factory = lambda text: text.decode("utf-8", "replace")
    connection.deserialize(data)
    del data
    # No file for what does not fit into the cache, and no functions in the file's own views and defaults.
    connection.execute("PRAGMA temp_store = MEMORY")
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA cell_size_check = ON")
    for kind, value in (
        (sqlite3.SQLITE_LIMIT_LENGTH, request["cell_bytes"]),
        (sqlite3.SQLITE_LIMIT_ATTACHED, 0),
        (sqlite3.SQLITE_LIMIT_COLUMN, request["columns"]),
        (sqlite3.SQLITE_LIMIT_EXPR_DEPTH, 200),
        (sqlite3.SQLITE_LIMIT_COMPOUND_SELECT, 100),
        (sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 1000),
        (sqlite3.SQLITE_LIMIT_WORKER_THREADS, 0),
    ):
        connection.setlimit(kind, value)
    left = request["ops"] // _OPS_A_LOOK

    def spend():
        nonlocal left
        left -= 1
        return left < 0

    connection.set_progress_handler(spend, _OPS_A_LOOK)
    connection.set_authorizer(_allowed)
    try:
        return _rows(connection, request) if request["sql"] else _schema(connection, request)
    except sqlite3.OperationalError as error:
        if str(error).startswith(("no such table", "no such column")):
            return {"error": str(error), "tables": _schema(connection, request)["tables"]}
        raise


def _allowed(action, first, second, database, source):
    if action not in _READING or action == sqlite3.SQLITE_FUNCTION and second.lower() in _REFUSED_FUNCTIONS:
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK


def _rows(connection, request):
    cursor = connection.execute(request["sql"])
    if cursor.description is None:
        return {"error": "it is no query: nothing is selected"}
    start, most = request["start"], request["count"]
    rows: list[list[str]] = []
    width = max(20, min(request["shown"], request["result"] // len(cursor.description)))
    seen = size = 0
    full = False
    for row in cursor:
        if seen >= start and not full:
            cells = [_cell(value, width) for value in row]
            size += sum(map(len, cells)) + len(cells)
            full = bool(rows) and (size > request["result"] or len(rows) >= request["rows"])
            if not full:
                rows.append(cells)
        seen += 1
        if seen >= most and full:
            break
    return {
        "columns": [_cell(str(column[0]), min(width, 100)) for column in cursor.description],
        "rows": rows,
        "seen": seen,
        "all": seen < most or not full,
    }


def _schema(connection, request):
    found = connection.execute(
        "SELECT name, sql FROM sqlite_schema WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite~_%' ESCAPE '~' "
        "ORDER BY rowid LIMIT ?",
        (request["tables"] + 1,),
    ).fetchall()
    tables = []
    for name, sql in found[: request["tables"]]:
        quoted = '"' + str(name).replace('"', '""') + '"'
        table: dict[str, object] = {"name": str(name), "sql": str(sql), "columns": [], "rows": None}
        tables.append(table)
        try:
            table["columns"] = [str(column[0]) for column in connection.execute(f"SELECT * FROM {quoted}").description]
            (table["rows"],) = connection.execute(f"SELECT count(*) FROM {quoted}").fetchone()
        except sqlite3.DatabaseError as error:  # a view of what is not there, a kind of table that is not built in
            if str(error) == "interrupted":
                raise
            table["error"] = str(error)
    return {"tables": tables, "more": len(found) > request["tables"]}


def _cell(value, limit):
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        text = f"x'{value[:limit].hex()}'"
        return text if len(text) <= limit else text[: limit - 1] + "…"
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"


if __name__ == "__main__":
    _main()
