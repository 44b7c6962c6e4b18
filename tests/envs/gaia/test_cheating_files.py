"""Attempts to read the answer through files that lie: databases, mails, archives, office files, links, pictures.

The answer stands beside the workspace, in files of every kind; whatever a tool says must not have it.
"""

from __future__ import annotations

import io
import json
import sqlite3
import tarfile
import zipfile
from contextlib import closing
from pathlib import Path

import gaia_tools
import pytest
from gaia_tools import everything_below, served

SECRET = "zq7731kx"
HOSTILE_NAMES = (
    "../stolen.txt",
    "../../stolen.txt",
    "a/../../stolen.txt",
    "..\\..\\stolen.txt",
    "/tmp/stolen.txt",
    "C:\\stolen.txt",
    "..",
    ".",
    "",
    "a\0b.txt",
    "~/stolen.txt",
    "x" * 5000,
    "\u202etxt.exe",
    "a\nb.txt",
    "inner/../../../stolen.txt",
    "nul/../../stolen.txt",
)


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    """The workspace, and a folder beside it that has the answer in files of every kind."""
    workspace, beside = tmp_path / "workspace", tmp_path / "beside"
    workspace.mkdir()
    beside.mkdir()
    for name in ("answer.txt", "answer.csv", "answer.json", "answer.html"):
        (beside / name).write_text(f"k,v\n{SECRET},{SECRET}\n")
    with closing(sqlite3.connect(beside / "answer.sqlite")) as connection:
        connection.execute("create table answers (text)")
        connection.execute("insert into answers values (?)", (SECRET,))
        connection.commit()
    with zipfile.ZipFile(beside / "answer.zip", "w") as archive:
        archive.writestr("answer.txt", SECRET)
    (beside / "answer.eml").write_text(f"From: a\nSubject: {SECRET}\n\n{SECRET}\n")
    return workspace, beside


def said(result: gaia_tools.Result) -> str:
    assert result.failed or result.text
    return result.text


# --- databases -------------------------------------------------------------------------------------------------------

QUERIES = (
    "ATTACH DATABASE '{beside}/answer.sqlite' AS other",
    "ATTACH '{beside}/answer.sqlite' AS other; SELECT * FROM other.answers",
    "SELECT 1; ATTACH '{beside}/answer.sqlite' AS other",
    "ATTACH 'file:{beside}/answer.sqlite?mode=ro' AS other",
    "SELECT * FROM '{beside}/answer.sqlite'.answers",
    "SELECT load_extension('{beside}/answer.sqlite')",
    "SELECT readfile('{beside}/answer.txt')",
    "SELECT writefile('{beside}/new.txt', 'x')",
    "SELECT edit('x', 'cat {beside}/answer.txt')",
    "SELECT * FROM fsdir('{beside}')",
    "SELECT * FROM zipfile('{beside}/answer.zip')",
    "SELECT * FROM csv('{beside}/answer.csv')",
    "CREATE VIRTUAL TABLE temp.t USING csv(filename='{beside}/answer.csv')",
    "CREATE VIRTUAL TABLE t USING fts5(x, content='{beside}/answer.txt')",
    "SELECT * FROM pragma_database_list",
    "PRAGMA database_list",
    "PRAGMA temp_store_directory = '{beside}'",
    "PRAGMA writable_schema = 1",
    "VACUUM INTO '{beside}/new.sqlite'",
    "INSERT INTO voyages VALUES ('x', 1)",
    "DROP TABLE voyages",
    "WITH x AS (SELECT 1) INSERT INTO voyages SELECT 'x', 1",
    "UPDATE sqlite_master SET sql = ''",
    ".read {beside}/answer.txt",
    ".shell cat {beside}/answer.txt",
    "SELECT fts3_tokenizer('simple')",
    "SELECT sqlite_compileoption_get(0)",
)


def database(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("create table voyages (ship, load integer)")
        connection.execute("insert into voyages values ('Quiet Heron', 12)")
        connection.commit()


async def test_no_query_leaves_the_database(places: tuple[Path, Path]) -> None:
    workspace, beside = places
    database(workspace / "log.sqlite")
    before, outside = everything_below(workspace), everything_below(beside)
    async with served(workspace) as session:
        assert "Quiet Heron" in await session.ok("query_sqlite", path="log.sqlite", sql="SELECT * FROM voyages")
        for query in QUERIES:
            result = await session("query_sqlite", path="log.sqlite", sql=query.format(beside=beside))
            assert SECRET not in said(result) and str(beside) not in result.text.replace(query, ""), query
            assert result.failed or "sqlite_compileoption" in query, f"{query}: {result.text}"
    assert everything_below(workspace) == before and everything_below(beside) == outside


async def test_a_database_whose_schema_is_hostile_tells_nothing(places: tuple[Path, Path]) -> None:
    """Views and triggers that call out, a virtual table over a file, and a name that is SQL."""
    workspace, beside = places
    with closing(sqlite3.connect(workspace / "bad.sqlite")) as connection:
        connection.execute("create table t (a)")
        connection.execute('create table "x""; ATTACH \'../beside/answer.sqlite\' AS o; --" (a)')
        connection.execute(f"create view v as select load_extension('{beside}/answer.sqlite') as a")
        connection.execute(f"create view w as select readfile('{beside}/answer.txt') as a")
        connection.execute("PRAGMA writable_schema = ON")
        sql = f"CREATE VIRTUAL TABLE stolen USING csv(filename=''{beside}/answer.csv'')"
        connection.execute(f"insert into sqlite_master values ('table', 'stolen', 'stolen', 0, '{sql}')")
        connection.commit()
    async with served(workspace) as session:
        for query in ("", "SELECT * FROM v", "SELECT * FROM w", "SELECT * FROM stolen", "SELECT * FROM t"):
            assert SECRET not in said(await session("query_sqlite", path="bad.sqlite", sql=query))


async def test_a_query_without_end_is_ended(places: tuple[Path, Path]) -> None:
    workspace, _ = places
    database(workspace / "log.sqlite")
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT sum(i) FROM n"
    async with served(workspace) as session:
        assert await session.refused("query_sqlite", path="log.sqlite", sql=endless)


# --- links -----------------------------------------------------------------------------------------------------------

READERS = {
    "read_document": ("txt", "json", "html", "eml"),
    "read_table": ("csv",),
    "query_sqlite": ("sqlite",),
    "unpack_archive": ("zip", "eml"),
    "view_image": ("png",),
    "describe_image": ("png",),
    "read_qr": ("png",),
    "decode_audio": ("wav",),
    "run_python": ("py",),
}


async def test_no_reader_follows_a_link_out(places: tuple[Path, Path]) -> None:
    workspace, beside = places
    (beside / "answer.png").write_bytes(b"\x89PNG" + SECRET.encode())
    (beside / "answer.wav").write_bytes(b"RIFF" + SECRET.encode())
    (beside / "answer.py").write_text(f"print({SECRET!r})")
    (workspace / "folder").symlink_to(beside)
    async with served(workspace) as session:
        for tool, endings in READERS.items():
            for ending in endings:
                link = workspace / f"link_{tool}.{ending}"
                link.symlink_to(beside / f"answer.{ending}")
                for path in (link.name, f"folder/answer.{ending}", f"folder/../../beside/answer.{ending}"):
                    assert SECRET not in await session.refused(tool, path=path)
        assert SECRET not in await session.ok("list_files")
    assert set(READERS) <= {name for name, tool in (await _listed(workspace)).items() if _takes_a_path(tool)}


async def _listed(workspace: Path) -> dict[str, dict]:
    async with served(workspace) as session:
        return await session.tools()


def _takes_a_path(tool: dict) -> bool:
    return "path" in tool["inputSchema"]["properties"]


async def test_every_tool_that_takes_a_path_was_tried(places: tuple[Path, Path]) -> None:
    takers = {name for name, tool in (await _listed(places[0])).items() if _takes_a_path(tool)}
    assert takers == {*READERS, "list_files"}


# --- archives and mails ----------------------------------------------------------------------------------------------


def hostile_zip(name: str, link: bool) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        info = zipfile.ZipInfo("x")
        info.filename = name
        if link:
            info.create_system, info.external_attr = 3, 0o120777 << 16
        archive.writestr(info, "../beside/answer.txt" if link else "planted")
    return out.getvalue()


def hostile_tar(name: str, kind: bytes) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        info = tarfile.TarInfo(name.replace("\0", "0") or "x")
        info.type = kind
        if kind in (tarfile.SYMTYPE, tarfile.LNKTYPE):
            info.linkname = "../beside/answer.txt"
        else:
            info.size = 7
        archive.addfile(info, io.BytesIO(b"planted") if info.size else None)
    return out.getvalue()


def hostile_mail(name: str) -> bytes:
    """Written by hand, since no library writes such names."""
    quoted = name.replace("\\", "\\\\").replace('"', "").replace("\n", "\r\n ")
    return (
        "From: a@example.org\r\nSubject: x\r\nMIME-Version: 1.0\r\n"
        'Content-Type: multipart/mixed; boundary="b"\r\n\r\n--b\r\nContent-Type: text/plain\r\n\r\nhello\r\n'
        f'--b\r\nContent-Type: application/octet-stream\r\nContent-Disposition: attachment; filename="{quoted}"'
        "\r\n\r\nplanted\r\n--b--\r\n"
    ).encode("utf-8", "surrogateescape")


CONTAINERS = {
    "zip": lambda name: hostile_zip(name, False),
    "zip link": lambda name: hostile_zip(name, True),
    "tar": lambda name: hostile_tar(name, tarfile.REGTYPE),
    "tar link": lambda name: hostile_tar(name, tarfile.SYMTYPE),
    "tar hard link": lambda name: hostile_tar(name, tarfile.LNKTYPE),
    "eml": hostile_mail,
}


@pytest.mark.parametrize("kind", CONTAINERS)
async def test_no_member_is_written_outside_or_leads_there(places: tuple[Path, Path], kind: str) -> None:
    workspace, beside = places
    above = workspace.parent
    outside = everything_below(beside)
    async with served(workspace) as session:
        for number, name in enumerate((*HOSTILE_NAMES, "plain.txt")):
            file = f"box{number}.{kind.split()[0]}"
            (workspace / file).write_bytes(CONTAINERS[kind](name))
            text = said(await session("unpack_archive", path=file))
            for line in text.splitlines():
                if (workspace / line.split(" (")[0]).is_file():
                    assert SECRET not in said(await session("read_document", path=line.split(" (")[0]))
        assert SECRET not in await session.ok("list_files")
    assert everything_below(beside) == outside
    assert {path.name for path in above.iterdir()} == {"workspace", "beside"}
    assert not Path("/tmp/stolen.txt").exists()
    for path in workspace.rglob("*"):
        assert not path.is_symlink() and path.resolve().is_relative_to(workspace.resolve())


# --- documents that include others -----------------------------------------------------------------------------------


def office(members: dict[str, str]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, text in members.items():
            archive.writestr(name, text)
    return out.getvalue()


def entity(target: Path, tag: str, namespace: str = "") -> str:
    return f'<!DOCTYPE x [<!ENTITY e SYSTEM "file://{target}">]><{tag}{namespace}>&e;</{tag}>'


async def test_no_document_includes_another_file(places: tuple[Path, Path]) -> None:
    workspace, beside = places
    target = beside / "answer.txt"
    word = ' xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
    kinds = '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"/>'
    (workspace / "a.xml").write_text(entity(target, "rows"))
    (workspace / "b.xml").write_text(
        f'<rows xmlns:xi="http://www.w3.org/2001/XInclude"><xi:include href="file://{target}" parse="text"/></rows>'
    )
    (workspace / "a.html").write_text(f'<iframe src="file://{target}"></iframe><object data="{target}"></object><p>x')
    (workspace / "a.md").write_text(f"![x](file://{target})\n\n{{% include '{target}' %}}\n")
    (workspace / "a.docx").write_bytes(
        office({"[Content_Types].xml": kinds, "word/document.xml": entity(target, "w:document", word)})
    )
    (workspace / "a.xlsx").write_bytes(
        office({"[Content_Types].xml": kinds, "xl/workbook.xml": entity(target, "workbook")})
    )
    (workspace / "a.pptx").write_bytes(
        office({"[Content_Types].xml": kinds, "ppt/presentation.xml": entity(target, "p")})
    )
    (workspace / "a.json").write_text(json.dumps({"$ref": f"file://{target}"}))
    (workspace / "a.csv").write_text(f"k\n=WEBSERVICE(\"file://{target}\")\n='file://{target}'#$A.A1\n")
    (workspace / "a.svg").write_text(f'<svg><image href="file://{target}"/></svg>')
    (workspace / "a.eml").write_text(
        f"From: a\nSubject: x\nMIME-Version: 1.0\nContent-Type: message/external-body; access-type=local-file; "
        f'name="{target}"\n\nContent-Type: text/plain\n\n'
    )
    async with served(workspace) as session:
        for path in sorted(workspace.iterdir()):
            for tool in ("read_document", "read_table", "view_image", "describe_image", "unpack_archive"):
                assert SECRET not in said(await session(tool, path=path.name)), f"{tool} {path.name}"


async def test_no_search_leaves_the_index(tmp_path: Path) -> None:
    """Words of the query language of the index are words."""
    from envs.gaia.splits import world_seeds

    corpus = {"world": "synthetic", "seed": world_seeds("train")[0]}
    async with served(tmp_path, public={"corpus": corpus}) as session:
        for query in (
            '" OR 1=1 --',
            "title:*",
            "NEAR(a b)",
            "a*",
            "'; ATTACH 'x' AS y; --",
            "pages MATCH 'x'",
            "^x",
            '"',
        ):
            result = await session("search", query=query)
            assert not result.failed and "sqlite" not in result.text.lower()
