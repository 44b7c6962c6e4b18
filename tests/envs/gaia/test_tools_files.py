"""The workspace: what is listed, and that no path leads out of it."""

import io
import os
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from gaia_tools import REPOSITORY, served
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from envs.gaia.tools.workspace import MAX_DEPTH, ToolFault, Workspace

SECRET = "the-answer-is-42"


@pytest.fixture
def nest(tmp_path):
    """A workspace with a secret beside it, and every kind of way to it."""
    (tmp_path / "secret.txt").write_text(SECRET)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret.txt").write_text(SECRET)
    root = tmp_path / "ws"
    (root / "sub/deep").mkdir(parents=True)
    (root / "a.txt").write_text("alpha")
    (root / "sub/b.txt").write_text("beta")
    (root / "link.txt").symlink_to(tmp_path / "secret.txt")
    (root / "rel.txt").symlink_to("../secret.txt")
    (root / "linked").symlink_to(tmp_path / "outside")
    (root / "sub/up").symlink_to("..")
    (root / "self").symlink_to("self")
    (root / "inner.txt").symlink_to("a.txt")
    os.mkfifo(root / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(root / "sock"))
    return root


ESCAPES = [
    "../secret.txt",
    "sub/../../secret.txt",
    "..",
    "/etc/passwd",
    "//etc/passwd",
    "/proc/self/environ",
    "/proc/self/root/etc/passwd",
    "/workspace/../secret.txt",
    "/workspacesecret.txt",
    "link.txt",
    "rel.txt",
    "linked/secret.txt",
    "sub/up/a.txt",
    "self",
    "inner.txt",
    "pipe",
    "sock",
    "a.txt/..",
    "a.txt/x",
    "~/x",
    "file:///etc/passwd",
    "C:\\x",
    "a\0.txt",
    "x" * 5000,
    "a/" * 40 + "b",
    "",
    ".",
    "sub",
    "/",
]


@pytest.mark.parametrize("path", ESCAPES)
@pytest.mark.parametrize("tool", ["read_document", "read_table", "view_image", "describe_image", "unpack_archive"])
async def test_no_tool_reads_outside(nest, tool, path):
    async with served(nest) as session:
        text = await session.refused(tool, path=path)
    assert SECRET not in text and "root:" not in text and len(text) < 1000


@pytest.mark.parametrize("path", [p for p in ESCAPES if p.strip()])
async def test_no_program_is_read_from_outside(nest, path):
    async with served(nest, sandbox="none") as session:
        assert SECRET not in await session.refused("run_python", path=path)


@pytest.mark.parametrize("path", ["..", "/", "/etc", "linked", "sub/up", "self", "nope", "a.txt", "/proc", "pipe"])
async def test_no_listing_outside(nest, path):
    async with served(nest) as session:
        text = await session.refused("list_files", path=path)
    assert "secret.txt" not in text


async def test_lists_everything_below_with_sizes(nest):
    async with served(nest) as session:
        assert await session.ok("list_files") == (
            "a.txt (5 bytes)\ninner.txt (link, cannot be read)\nlink.txt (link, cannot be read)\n"
            "linked (link, cannot be read)\npipe (special, cannot be read)\nrel.txt (link, cannot be read)\n"
            "self (link, cannot be read)\nsock (special, cannot be read)\nsub/b.txt (4 bytes)\n"
            "sub/up (link, cannot be read)"
        )
        assert await session.ok("list_files", path="sub/") == "sub/b.txt (4 bytes)\nsub/up (link, cannot be read)"
        assert await session.ok("list_files", path="/workspace") == await session.ok("list_files", path="./")
        assert await session.ok("list_files", path="sub/deep") == "(no files)"


async def test_long_listings_say_what_is_left(tmp_path):
    for i in range(250):
        (tmp_path / f"f{i:03}").touch()
    async with served(tmp_path) as session:
        lines = (await session.ok("list_files")).splitlines()
    assert lines[0] == "f000 (0 bytes)" and lines[-1] == "[50 more files]" and len(lines) == 201


async def test_compact_listing_is_names_on_one_line(tmp_path):
    async with served(tmp_path, compact=True) as session:
        assert await session.ok("list_files") == "none"
        for name in ("b.csv", "a.csv"):
            (tmp_path / name).touch()
        assert await session.ok("list_files") == "a.csv b.csv"


@pytest.mark.parametrize(
    ("asked", "hint"),
    [
        ("A.TXT", "Did you mean 'a.txt'"),
        ("b.txt", "Did you mean 'sub/b.txt'"),
        ("sub/c.txt", "Did you mean 'sub/b.txt'"),
        ("zzz", "Files: a.txt, sub/b.txt."),
    ],
)
async def test_a_missing_file_is_helped_with(nest, asked, hint):
    async with served(nest) as session:
        text = await session.refused("read_document", path=asked)
    assert text.startswith(f"there is no '{asked}'") and hint in text


async def test_an_empty_workspace_says_so(tmp_path):
    async with served(tmp_path) as session:
        assert "no files" in await session.refused("read_document", path="a.txt")


async def test_paths_as_programs_see_them_work_everywhere(nest):
    async with served(nest) as session:
        for path in ("a.txt", "./a.txt", "/workspace/a.txt", "/workspace//./a.txt"):
            assert await session.ok("read_document", path=path) == "alpha"


@pytest.mark.parametrize("tool", ["read_document", "read_table", "view_image", "unpack_archive", "list_files"])
async def test_an_error_gives_little_of_the_path_back(nest, tool):
    (nest / ("y" * 250)).write_text("x")
    async with served(nest) as session:
        text = await session.refused(tool, path="x" * 3000 + ".txt")
    assert "x" * 70 in text and "x" * 81 not in text and "y" * 81 not in text and len(text) < 500


LOCALES = {"absent": "xx_XX", "latin-1": "de_DE.ISO-8859-1", "C": "C", "UTF-8": "C.UTF-8"}


def test_files_are_the_same_in_every_locale(tmp_path):
    """Names in other scripts are stored in UTF-8 and read again, whatever Python makes of the locale."""
    code = """
        import sys
        from pathlib import Path
        from envs.gaia.tools import ToolContext, Workspace, build
        from envs.gaia.tools.base import ToolFault
        tools = build(ToolContext(Workspace(Path(sys.argv[1])), sandbox="none"))
        said = []
        for name, arguments in (
            ("list_files", {}), ("read_document", {"path": "é/Łódź.txt"}), ("read_document", {"path": "ü.txt"}),
            ("run_python", {"path": "é/ß.py", "_cancelled": __import__("threading").Event()}),
            ("list_files", {"path": "日本"}), ("list_files", {}),
        ):
            try:
                said.append(str(tools[name].function(**arguments)))
            except ToolFault as fault:
                said.append(f"fault: {fault}")
        sys.stdout.buffer.write("\\n".join(said).encode("utf-8", "surrogateescape"))
    """
    script, said = tmp_path / "script.py", {}
    script.write_text(textwrap.dedent(code), encoding="utf-8")
    for name, locale in LOCALES.items():
        root = tmp_path / name
        (root / "é").mkdir(parents=True)
        (root / "é/Łódź.txt").write_text("inside")
        (root / "é/ß.py").write_text("import os\nopen('ñ.txt', 'w').close()\nprint(__file__)", encoding="utf-8")
        said[name] = subprocess.run(
            [sys.executable, str(script), str(root)],
            cwd=REPOSITORY,
            env={
                **os.environ,
                "LC_ALL": locale,
                "PYTHONUTF8": "0",
                "PYTHONCOERCECLOCALE": "0",
                "PYTHONPATH": str(REPOSITORY),
            },
            stdout=subprocess.PIPE,
            check=True,
        ).stdout.decode()
    assert len(set(said.values())) == 1
    lines = said["UTF-8"].splitlines()
    assert lines[:3] == ["é/ß.py (53 bytes)", "é/Łódź.txt (6 bytes)", "inside"]
    assert lines[3].startswith("fault: there is no 'ü.txt'. Files: é/ß.py, é/Łódź.txt.")
    assert lines[4] == "/workspace/é/ß.py" and lines[5].startswith("fault: there is no '日本'")
    assert lines[-1] == "ñ.txt (0 bytes)"


def test_a_file_over_the_limit_is_refused(tmp_path):
    (tmp_path / "big").write_bytes(b"x" * 101)
    with pytest.raises(ToolFault, match="at most 100"):
        Workspace(tmp_path).read("big", limit=100)


def test_a_sparse_giant_is_refused_at_once(tmp_path):
    with open(tmp_path / "giant.csv", "wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(ToolFault, match=r"1,099,511,627,776 bytes"):
        Workspace(tmp_path).read("giant.csv")


def test_a_link_swapped_in_during_the_call_leads_nowhere(tmp_path):
    """The race that checks before opening lose: a component becomes a link between look and use."""
    outside, root = tmp_path / "outside", tmp_path / "ws"
    outside.mkdir()
    (outside / "f").write_text(SECRET)
    (root / "d").mkdir(parents=True)
    (root / "d/f").write_text("mine")
    workspace, real = Workspace(root), os.open

    def swapping(path, flags, *args, **kwargs):
        if path == "d":
            (root / "d").rename(root / "gone")
            (root / "d").symlink_to(outside)
        return real(path, flags, *args, **kwargs)

    os.open = swapping
    try:
        with pytest.raises(ToolFault, match="plain path"):
            workspace.read("d/f")
    finally:
        os.open = real


NAMES = st.one_of(
    st.sampled_from(["..", ".", "", "linked", "link.txt", "sub", "up", "a.txt", "self", "secret.txt", "outside", "ws"]),
    st.text(max_size=8),
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(parts=st.lists(NAMES, max_size=7), lead=st.sampled_from(["", "/", "./", "/workspace/", "//", "../"]))
def test_whatever_the_path_only_own_files_are_read(nest, parts, lead):
    path = lead + "/".join(parts)
    try:
        data = Workspace(nest).read(path)
    except ToolFault:
        return
    assert data in (b"alpha", b"beta")


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(parts=st.lists(NAMES, max_size=6), lead=st.sampled_from(["", "/", "./", "/workspace/", "../"]))
def test_whatever_the_path_only_own_files_are_written(nest, parts, lead):
    outside = {p for p in nest.parent.rglob("*") if nest not in p.parents}
    try:
        Workspace(nest).write(lead + "/".join(parts), io.BytesIO(b"new"), limit=10)
    except ToolFault:
        pass
    assert {p for p in nest.parent.rglob("*") if nest not in p.parents} == outside
    assert (nest.parent / "secret.txt").read_text() == SECRET
    assert (nest.parent / "outside/secret.txt").read_text() == SECRET


def test_writing_stays_within_its_limit_and_replaces_nothing(tmp_path):
    workspace = Workspace(tmp_path)
    assert workspace.write("x/y/z.bin", io.BytesIO(b"12345"), limit=5) == 5
    with pytest.raises(ToolFault, match="exists already"):
        workspace.write("x/y/z.bin", io.BytesIO(b"1"), limit=5)
    with pytest.raises(ToolFault, match="more than 5 bytes"):
        workspace.write("x/y/w.bin", io.BytesIO(b"123456"), limit=5)
    workspace.remove("x")
    workspace.remove("nothing")
    assert not list(tmp_path.iterdir())


def test_deep_trees_are_listed_down_to_a_bound(tmp_path):
    deep = Path(*["d"] * (MAX_DEPTH + 5))
    (tmp_path / deep).mkdir(parents=True)
    assert len(Workspace(tmp_path).entries()) == MAX_DEPTH + 1
