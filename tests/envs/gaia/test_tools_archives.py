"""unpack_archive: what it unpacks, and that nothing gets out, fills the disk or takes long."""

import bz2
import gzip
import io
import lzma
import os
import stat
import struct
import tarfile
import time
import zipfile

import pytest
from gaia_tools import everything_below, served
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from envs.gaia.tools import ToolContext, archives
from envs.gaia.tools.base import ToolFault
from envs.gaia.tools.workspace import Workspace


def unpack(folder, name: str) -> str:
    (tool,) = archives.tools(ToolContext(Workspace(folder)))
    return tool.function(name)


def zipped(members: dict[str, bytes], *, attributes: int = 0o100644 << 16) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, body in members.items():
            info = zipfile.ZipInfo(name)
            info.external_attr, info.compress_type = attributes, zipfile.ZIP_DEFLATED
            archive.writestr(info, body)
    return out.getvalue()


def tarred(members, mode="w") -> bytes:
    """Members are (name, body) for files, or TarInfo."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as archive:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                archive.addfile(member)
            else:
                info = tarfile.TarInfo(member[0])
                info.size = len(member[1])
                archive.addfile(info, io.BytesIO(member[1]))
    return out.getvalue()


MEMBERS = {"b.txt": b"beta", "sub/a.csv": b"k,v\n", "sub/inner.zip": zipped({"deep.txt": b"deep"})}


@pytest.mark.parametrize("ending", ["zip", "tar", "tar.gz", "tgz", "tar.bz2", "tar.xz"])
async def test_unpacks_into_a_directory_of_its_name(tmp_path, ending):
    modes = {"tar": "w", "tar.gz": "w:gz", "tgz": "w:gz", "tar.bz2": "w:bz2", "tar.xz": "w:xz"}
    data = zipped(MEMBERS) if ending == "zip" else tarred(MEMBERS.items(), modes[ending])
    (tmp_path / f"box.{ending}").write_bytes(data)
    async with served(tmp_path) as session:
        listed = await session.ok("unpack_archive", path=f"box.{ending}")
        assert listed.splitlines() == ["box/b.txt", "box/sub/a.csv", "box/sub/inner.zip"]
        assert await session.ok("unpack_archive", path="box/sub/inner.zip") == "box/sub/inner/deep.txt"
        assert await session.ok("read_document", path="box/sub/inner/deep.txt") == "deep"
        assert "exists already" in await session.refused("unpack_archive", path=f"box.{ending}")
    assert (tmp_path / "box/b.txt").read_bytes() == b"beta"


def test_a_lone_gzip_is_one_file(tmp_path):
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"k,v\n"))
    assert unpack(tmp_path, "a.csv.gz") == "a.csv"
    assert (tmp_path / "a.csv").read_bytes() == b"k,v\n"


def test_directories_in_archives_are_no_members(tmp_path):
    (tmp_path / "a.zip").write_bytes(zipped({"d/": b"", "d/x": b"1"}))
    assert unpack(tmp_path, "a.zip") == "a/d/x"
    (tmp_path / "e.zip").write_bytes(zipped({}))
    assert unpack(tmp_path, "e.zip") == "'e.zip' is empty"


SLIPS = ["../evil", "/evil", "a/../../evil", "..\\evil", "\\evil", "C:\\evil", "C:evil", "./../evil", "a/..", ".."]


@pytest.mark.parametrize("name", SLIPS)
@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_no_member_leads_outside(tmp_path, name, kind):
    root = tmp_path / "ws"
    root.mkdir()
    members = {"first.txt": b"1", name: b"evil"}
    (root / f"a.{kind}").write_bytes(zipped(members) if kind == "zip" else tarred(members.items()))
    with pytest.raises(ToolFault, match="leads outside"):
        unpack(root, f"a.{kind}")
    assert set(everything_below(tmp_path)) == {f"ws/a.{kind}"}, "nothing is left of a refused archive"


@pytest.mark.parametrize("mode", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR, stat.S_IFBLK, stat.S_IFSOCK])
def test_links_and_devices_in_zips_are_refused(tmp_path, mode):
    (tmp_path / "a.zip").write_bytes(zipped({"x": b"/etc/passwd"}, attributes=(mode | 0o777) << 16))
    with pytest.raises(ToolFault, match="link or special file"):
        unpack(tmp_path, "a.zip")
    assert os.listdir(tmp_path) == ["a.zip"]


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE])
def test_links_and_devices_in_tars_are_refused(tmp_path, kind):
    info = tarfile.TarInfo("x")
    info.type, info.linkname = kind, "/etc/passwd"
    (tmp_path / "a.tar").write_bytes(tarred([("first", b"1"), info]))
    with pytest.raises(ToolFault, match="link or special file"):
        unpack(tmp_path, "a.tar")
    assert os.listdir(tmp_path) == ["a.tar"]


def test_a_link_that_is_already_there_is_not_followed(tmp_path):
    root, outside = tmp_path / "ws", tmp_path / "out"
    root.mkdir(), outside.mkdir()
    (root / "a.zip").write_bytes(zipped({"x": b"evil"}))
    (root / "a").symlink_to(outside)
    with pytest.raises(ToolFault, match="exists already"):
        unpack(root, "a.zip")
    assert not list(outside.iterdir())


def forty_two(layers: int) -> bytes:
    data = zipped({f"{i}.bin": b"\0" * (4 << 20) for i in range(4)})
    for _ in range(layers):
        data = zipped({f"{i}.zip": data for i in range(8)})
    return data


def test_bombs_are_refused_before_they_go_off(tmp_path):
    (tmp_path / "flat.zip").write_bytes(zipped({"x": b"\0" * (33 << 20)}))
    (tmp_path / "many.zip").write_bytes(zipped({str(i): b"" for i in range(600)}))
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"\0" * (33 << 20)))
    (tmp_path / "t.tar.gz").write_bytes(tarred([("x", b"\0" * (33 << 20))], "w:gz"))
    start = time.process_time()
    for name, message in (
        ("flat.zip", "would unpack"),
        ("many.zip", "over 500 members"),
        ("a.gz", "more than"),
        ("t.tar.gz", "more than"),
    ):
        with pytest.raises(ToolFault, match=message):
            unpack(tmp_path, name)
    assert time.process_time() - start < 6
    assert sorted(os.listdir(tmp_path)) == ["a.gz", "flat.zip", "many.zip", "t.tar.gz"]


def test_a_directory_that_lies_about_sizes_gets_no_more_than_it_says(tmp_path):
    """The central directory says 10 bytes; the stream holds megabytes."""
    data = bytearray(zipped({"x": b"\0" * 4_000_000}))
    at = data.rindex(b"PK\x01\x02")
    data[at + 24 : at + 28] = (10).to_bytes(4, "little")
    (tmp_path / "a.zip").write_bytes(bytes(data))
    with pytest.raises(ToolFault, match="damaged"):
        unpack(tmp_path, "a.zip")
    assert os.listdir(tmp_path) == ["a.zip"]


def header(kind: bytes, size: int) -> bytes:
    info = tarfile.TarInfo("x")
    info.type, info.size = kind, size
    return info.tobuf()


def overlapping(count: int) -> bytes:
    """A zip file of ``count`` members that are all the same megabyte."""
    whole = zipped({"a": b"\0" * (1 << 20)})
    start = whole.rindex(b"PK\x01\x02")
    entry = whole[start : whole.rindex(b"PK\x05\x06")]
    directory = b"".join(entry[:-1] + bytes([97 + i % 26]) for i in range(count))
    end = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, count & 0xFFFF, count & 0xFFFF, len(directory), start, 0)
    return whole[:start] + directory + end


BOMBS = {
    "a pax header of gigabytes": ("a.tar.gz", lambda: gzip.compress(header(b"x", 4 << 30) + b"9" * (50 << 20), 1)),
    "a name of gigabytes": ("a.tar.gz", lambda: gzip.compress(header(b"L", 4 << 30) + b"9" * (50 << 20), 1)),
    "a member of gigabytes": ("a.tar.bz2", lambda: bz2.compress(header(b"0", 4 << 30) + b"9" * (50 << 20))),
    "directories without end": ("a.tar.xz", lambda: lzma.compress(header(b"5", 0) * 6000, preset=0)),
    "members that lie over one another": ("a.zip", lambda: overlapping(400)),
    "a huge directory": ("a.zip", lambda: overlapping(100_000)),
}


@pytest.mark.parametrize(("name", "make"), BOMBS.values(), ids=BOMBS)
def test_what_is_only_skipped_or_listed_is_bounded_too(tmp_path, name, make):
    (tmp_path / name).write_bytes(make())
    start = time.process_time()
    with pytest.raises(ToolFault, match="would unpack to|would have more than|over 5,000 entries|too many members"):
        unpack(tmp_path, name)
    assert time.process_time() - start < 2
    assert os.listdir(tmp_path) == [name]


def test_nested_bombs_stop_at_the_workspace_s_size(tmp_path, monkeypatch):
    from envs.gaia.tools import workspace

    monkeypatch.setattr(workspace, "MAX_TOTAL_BYTES", 40 << 20)
    (tmp_path / "a.zip").write_bytes(forty_two(1))
    names = unpack(tmp_path, "a.zip").splitlines()
    done = 0
    with pytest.raises(ToolFault, match="more than"):
        for name in names:
            unpack(tmp_path, name)
            done += 1
    assert 1 <= done < 3
    assert sum(map(len, everything_below(tmp_path).values())) <= 40 << 20


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.zip", b"", "damaged"),
        ("a.zip", b"PK\x03\x04", "damaged"),
        ("a.tar", b"x" * 2000, "damaged"),
        ("a.tar.gz", b"x" * 2000, "damaged"),
        ("a.gz", b"\x1f\x8bxx", "damaged"),
        ("a.tar.xz", b"x" * 100, "damaged"),
        ("a.rar", b"Rar!", "not an archive that can be unpacked"),
        ("a.txt", b"x", "not an archive that can be unpacked"),
        (".zip", b"x", "not an archive that can be unpacked"),
    ],
)
def test_what_cannot_be_unpacked_says_so(tmp_path, name, data, message):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(ToolFault, match=message):
        unpack(tmp_path, name)
    assert os.listdir(tmp_path) == [name]


def test_an_encrypted_zip_is_refused(tmp_path):
    data = bytearray(zipped({"x": b"1"}))
    data[data.rindex(b"PK\x01\x02") + 8] |= 1
    (tmp_path / "a.zip").write_bytes(bytes(data))
    with pytest.raises(ToolFault, match="encrypted"):
        unpack(tmp_path, "a.zip")


def test_a_member_twice_is_refused_whole(tmp_path):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("x", b"1")
        archive.writestr("x", b"2")
    (tmp_path / "a.zip").write_bytes(out.getvalue())
    with pytest.raises(ToolFault, match="exists already"):
        unpack(tmp_path, "a.zip")
    assert os.listdir(tmp_path) == ["a.zip"]


NAMES = st.text(st.sampled_from("ab./\\:~\0é"), max_size=12)


@pytest.mark.filterwarnings("ignore:Duplicate name")
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(NAMES, st.binary(max_size=4)), max_size=4), st.booleans())
def test_whatever_the_names_nothing_is_written_outside(tmp_path_factory, members, as_zip):
    top = tmp_path_factory.mktemp("t")
    root = top / "ws"
    root.mkdir()
    kind = "zip" if as_zip else "tar"
    try:
        data = zipped(dict(members)) if as_zip else tarred(members)
    except ValueError:  # names that cannot be written
        return
    (root / f"x.{kind}").write_bytes(data)
    try:
        unpack(root, f"x.{kind}")
    except ToolFault:
        pass
    for path in top.rglob("*"):
        assert path == root or path == root / f"x.{kind}" or (root / "x") in (path, *path.parents), path
        assert not path.is_symlink()
