"""Where the secret comes from, and who sees it."""

import subprocess
import sys

import pytest

from aworld_gym.errors import ConfigError
from aworld_gym.host.credentials import SECRET_FILE_VAR, SECRET_VAR, find_secrets

NEW, OLD = "n" * 32, "o" * 32


def test_the_secret_may_stand_in_a_file(tmp_path):
    path = tmp_path / "secret"
    path.write_text(f"{NEW},{OLD}\n")
    assert find_secrets({SECRET_FILE_VAR: str(path)}) == (NEW, OLD)
    assert find_secrets({SECRET_FILE_VAR: str(path), SECRET_VAR: " "}) == (NEW, OLD)
    assert find_secrets({SECRET_FILE_VAR: "", SECRET_VAR: OLD}) == (OLD,)


@pytest.mark.parametrize(
    ("content", "more", "said"),
    [
        ("", {}, "is empty"),
        (None, {}, "No such file"),
        ("short", {}, "at least 32"),
        (NEW, {SECRET_VAR: OLD}, "both set"),
        ("\N{BULLET}" * 40, {}, "cannot read"),
    ],
)
def test_a_file_that_does_not_do_is_refused(tmp_path, content, more, said):
    path = tmp_path / "secret"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    with pytest.raises(ConfigError, match=said) as caught:
        find_secrets({SECRET_FILE_VAR: str(path), **more})
    for secret in (NEW, OLD, "short", "\N{BULLET}"):
        assert secret not in str(caught.value)


@pytest.mark.skipif(sys.platform != "linux", reason="Linux shows processes to each other in /proc")
def test_a_host_shows_its_memory_and_first_environment_to_nobody():
    program = (
        "import ctypes\nfrom aworld_gym.host import credentials\n"
        "dumpable = lambda: ctypes.CDLL(None).prctl(3, 0, 0, 0, 0)\n"
        "print(dumpable(), credentials.keep_to_oneself(), dumpable())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["1", "True", "0"]
