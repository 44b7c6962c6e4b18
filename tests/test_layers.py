"""Imports run one way: adapters -> aworld_gym <- envs, and within aworld_gym from the ground up."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HEAVY = ("torch", "transformers", "trl", "mcp", "openai", "typer", "rich", "jsonschema", "datasets", "ray", "jinja2")


def imported(path):
    """(module, at the top level of its file) of every import statement."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [node.module, *(f"{node.module}.{a.name}" for a in node.names)]
        for name in names:
            yield name, node in tree.body


@pytest.mark.parametrize(
    ("package", "forbidden"),
    [("aworld_gym", ("adapters", "envs")), ("envs", ("adapters", "examples")), ("adapters", ("envs", "examples"))],
)
def test_packages_import_one_way(package, forbidden):
    for path in (ROOT / package).rglob("*.py"):
        for name, top in imported(path):
            # doctor and the command line look, when asked, at whatever is installed beside the package
            late = not top and path.name in ("doctor.py", "cli.py", "cli_support.py")
            assert late or name.partition(".")[0] not in forbidden, f"{path.relative_to(ROOT)} imports {name}"


def layers():
    text = " ".join((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split())
    sentence = text.partition("from those above it: ")[2].partition(". Imports run")[0]
    return [name.strip("` \n/") for name in sentence.split(",")]


def test_modules_import_only_from_below():
    order = {f"aworld_gym.{name}": k for k, name in enumerate(layers())}
    assert len(order) > 15
    for module, rank in order.items():
        path = ROOT / module.replace(".", "/")
        for file in path.rglob("*.py") if path.is_dir() else [path.with_suffix(".py")]:
            for name, top in imported(file):
                other = ".".join(name.split(".")[:2])
                if top and other in order:
                    assert order[other] <= rank, f"{file.relative_to(ROOT)} imports {name}, which stands above it"


def test_every_module_has_its_place():
    inside = {
        path.stem for path in (ROOT / "aworld_gym").iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    parts = {name for name in inside if name.startswith(("cli_", "__"))}  # of the command line, and of the package
    assert inside - parts == set(layers())


def test_importing_the_package_is_light():
    code = f"import sys, aworld_gym; print([m for m in {HEAVY} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
