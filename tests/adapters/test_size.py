"""An adapter is thin: what others could need too stands in the modules beside the adapters, once."""

import ast
import tokenize
from pathlib import Path

import pytest

HOME = Path(__file__).parents[2] / "adapters"
MOST = 400
"""Lines of code in an adapter."""
LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}


def code_lines(path):
    """How many lines of a file hold code: not blank, no comment, no docstring."""
    documented = {
        line
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or 0) + 1)
    }
    with path.open("rb") as file:
        found = [token for token in tokenize.tokenize(file.readline) if token.type not in LAYOUT]
    return len({line for token in found for line in range(token.start[0], token.end[0] + 1)} - documented)


def test_what_is_counted(tmp_path):
    path = tmp_path / "a.py"
    path.write_text(
        '"""A\nmodule."""\n\n# why\nx = (\n    1,  # one\n)\n\n\ndef f():\n    """Does."""\n    return """a\nb"""\n'
    )
    assert code_lines(path) == 6


@pytest.mark.parametrize("name", ["trl", "verl", "swift"])
def test_an_adapter_is_thin(name):
    sizes = {path.name: code_lines(path) for path in (HOME / name).rglob("*.py") if path.name != "cpu.py"}
    assert 0 < sum(sizes.values()) <= MOST, (
        f"adapters/{name} has {sum(sizes.values())} lines of code, of {MOST}: {sizes}. What another trainer could need "
        "as well belongs in the module beside it whose subject it is (adapters/common.py lists them), what only tests "
        "need in tests/lib"
    )


def test_what_is_shared_is_no_drawer():
    sizes = {path.name: len(path.read_text(encoding="utf-8").splitlines()) for path in HOME.glob("*.py")}
    assert max(sizes.values()) < MOST, f"one subject a module: {sizes}"
