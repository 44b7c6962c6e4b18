"""``serve`` without its extra."""

import os

import pytest
from cli_process import process


@pytest.mark.parametrize("package", ["prometheus_client", "httptools"])  # the others come with the SDK
def test_what_is_missing_is_said_with_how_to_get_it(tmp_path, monkeypatch, package):
    (tmp_path / f"{package}.py").write_text(f"raise ImportError('No module named {package}', name={package!r})\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    serving = process("serve", "gaia", "--port", "0")
    _, err = serving.communicate(timeout=60)
    assert serving.returncode == 2 and "Traceback" not in err
    assert f"an environment host needs: pip install 'aworld-gym[host]' (No module named {package})" in err
