"""What README and docs show is run: Python blocks, shell commands, links, and the names in tables."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
LINKED = [
    *PAGES,
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "benchmarks").rglob("*.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
]
BIN = Path(sys.executable).parent


def blocks(page, language):
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


def run(command, cwd, **kwargs):
    env = os.environ | {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=280, **kwargs)
    assert done.returncode == 0, f"{command} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def python_blocks():
    for page in PAGES:
        for number, code in enumerate(blocks(page, "python")):
            if "adapters" not in code and page.name != "adapters.md":  # whose blocks are one program
                yield pytest.param(page, code, id=f"{page.name}-{number}")


@pytest.fixture
def place(tmp_path):
    """A directory with the files that the README tells its reader to have."""
    for code in blocks(ROOT / "README.md", "json"):
        (tmp_path / "mcp.json").write_text(json.dumps(with_interop(json.loads(code))), encoding="utf-8")
    return tmp_path


def with_interop(config):
    """The same config, its commands taken from where the suite installs foreign servers."""
    for server in config["mcpServers"].values():
        found = shutil.which(server["command"], path=str(ROOT / ".interop/venv/bin"))
        assert found, f"{server['command']} is not installed: run `make .interop/.done`"
        server["command"] = found
    return config


@pytest.mark.parametrize(("page", "code"), list(python_blocks()))
def test_python_blocks_run(page, code, place):
    out = run([sys.executable, "-c", code], place)
    if "mcp.json" in code and "print(reward)" in code:
        assert out.splitlines() == ["['get_current_time', 'convert_time', 'submit_answer']", "1.0"]


def training_blocks():
    for page in PAGES:
        for number, code in enumerate(blocks(page, "python")):
            if "from adapters import trl" in code:  # the others' are run in their environments: tests/adapters
                yield pytest.param(code, id=f"{page.name}-{number}")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    from tiny_model import build

    return build(tmp_path_factory.mktemp("tiny") / "model", steps=20)


@pytest.mark.slow
@pytest.mark.parametrize("code", list(training_blocks()))
def test_training_blocks_run(code, place, tiny):
    """As they stand, but for the model, which is not to be had here, and the length of the run."""
    short = '"max_completion_length": 96, "max_steps": 1, "per_device_train_batch_size": 8'
    assert '"Qwen/Qwen3-0.6B"' in code and '"max_completion_length": 4096' in code
    code = code.replace('"Qwen/Qwen3-0.6B"', repr(str(tiny))).replace('"max_completion_length": 4096', short)
    run([sys.executable, "-c", code], place)
    lines = (place / "runs/x/episodes.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 8 and (place / "runs/x/final/config.json").exists()


@pytest.fixture(scope="module")
def tutorial(tmp_path_factory):
    """What the tutorial's blocks print, run as the one program that they are; with a model that is here."""
    code = "\n".join(blocks(ROOT / "docs/adapters.md", "python"))
    model, long = '"Qwen/Qwen3-0.6B", steps=10', 'check_toolchain_env("AWorld/Gaia-v0")'
    assert code.count(model) == code.count(long) == 1
    code = code.replace(model, f"{str(ROOT / 'tests/data/warm_start')!r}, steps=2, lr=1e-3")
    code = code.replace(long, 'check_toolchain_env("AWorld/Gaia-v0", skip=["seed_decides_elsewhere"])')
    return run([sys.executable, "-c", code], tmp_path_factory.mktemp("tutorial"))


@pytest.mark.slow
def test_the_tutorials_adapter_trains_and_passes_its_check(tutorial):
    from aworld_gym.testing import ADAPTER_RULES, ENV_RULES

    steps, checked = tutorial.splitlines()[:2], [ast.literal_eval(line) for line in tutorial.splitlines()[2:]]
    assert all(re.fullmatch(r"step \d: 16 of 16 valid, mean return 0\.\d+", line) for line in steps)
    assert [set(names) for names in checked[:2]] == [ADAPTER_RULES.keys()] * 2
    assert set(checked[2]) == ENV_RULES.keys() - {"seed_decides_elsewhere"}


def test_the_tutorials_adapter_is_short():
    code = blocks(ROOT / "docs/adapters.md", "python")[0]
    assert len(code.splitlines()) < 100


def test_the_page_of_adapters_has_the_rules_that_are_checked():
    from aworld_gym.testing import ADAPTER_RULES, ENV_RULES

    text = (ROOT / "docs/adapters.md").read_text(encoding="utf-8")
    shown = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", text, re.MULTILINE))
    assert shown == ADAPTER_RULES | ENV_RULES


def shell_lines():
    for code in blocks(ROOT / "README.md", "bash"):
        for line in code.splitlines():
            command = line.partition("#")[0].strip()
            if command.startswith("aworld-gym"):
                yield command


@pytest.mark.parametrize("command", list(shell_lines()))
def test_shell_commands_run(command, place):
    out = run(command.split(), place)
    if "--json" in command:
        assert json.loads(out)["success_rate"] == 1.0


def test_make_knows_the_targets_that_pages_name():
    for page in PAGES:
        for target in re.findall(
            r"(?:^ *|`|&& |\| )make ([a-z][a-z0-9-]*)", page.read_text(encoding="utf-8"), re.MULTILINE
        ):
            run(["make", "--dry-run", "-C", str(ROOT), target], ROOT)


def text(page):
    """A page without its blocks of code."""
    return re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)


def anchors(page):
    """What a link to a heading is called, as GitHub makes it."""
    headings = re.findall(r"^#+ (.*)$", text(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", LINKED, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)]+)\)", text(page)):
        path, _, anchor = link.partition("#")
        if not link.startswith("http"):
            target = page.parent / path if path else page
            assert target.exists(), f"{page.name} links to {link}, which is not there"
            assert not anchor or anchor in anchors(target), f"{page.name} links to {link}: no such heading there"


def spoken(page):
    """The text of a page, a command that is broken into lines on one."""
    joined = page.read_text(encoding="utf-8").replace("\\\n", " ")
    return re.sub(r"`[^`]*`", lambda code: code[0].replace("\n", " "), joined)


@pytest.mark.parametrize("page", LINKED, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_and_their_options_are_there(page):
    import typer

    from aworld_gym.cli import app

    known = {
        name: {option for one in command.params for option in (*one.opts, *one.secondary_opts)}
        for name, command in typer.main.get_command(app).commands.items()
    }
    for name, rest in re.findall(r"(?:`|^ *)aworld-gym (\w+)([^`\n]*)", spoken(page), re.MULTILINE):
        assert name in known, f"{page.name}: aworld-gym has no command {name!r}"
        for option in re.findall(r"(?<= )--?[A-Za-z][\w-]*", rest.partition("#")[0]):
            assert option in known[name], f"{page.name}: aworld-gym {name} has no option {option}"
    for module in re.findall(r"python -m ((?:adapters|benchmarks|envs|examples|tests)[\w.]*\w)", spoken(page)):
        path = ROOT / module.replace(".", "/")
        assert path.with_suffix(".py").exists() or (path / "__main__.py").exists(), f"{page.name}: no module {module}"


def test_the_page_of_the_environment_names_what_the_code_has():
    from aworld_gym.errors import CALL_ERRORS
    from aworld_gym.types import Outcome
    from aworld_gym.wrappers.shapers import SHAPERS

    text = (ROOT / "docs/environment.md").read_text(encoding="utf-8")
    for name in (*CALL_ERRORS, *SHAPERS, *(str(o) for o in Outcome if o is not Outcome.CANCELLED)):
        assert f"`{name}" in text, f"docs/environment.md does not name {name}"
