"""The image: linted by hadolint, and held to rules of our own. It is not built here."""

import configparser
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from deploy_files import DOCKER, DOCKERFILE, ROOT, served, stages, values
from docker.utils.build import exclude_paths
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from aworld_gym import __version__

LOCK = DOCKER / "requirements.lock"
SECRETS = re.compile(r"(secret|token|password|api_?key)\w*\s*=", re.IGNORECASE)


def hadolint(path):
    found = shutil.which("hadolint", path=str(Path(sys.executable).parent))
    assert found, "hadolint is not installed: pip install -e '.[dev]'"
    return subprocess.run([found, str(path)], capture_output=True, text=True, timeout=60)


def test_hadolint_has_nothing_to_say():
    done = hadolint(DOCKERFILE)
    assert done.returncode == 0, done.stdout + done.stderr


def test_hadolint_would_have(tmp_path):
    path = tmp_path / "Dockerfile"
    path.write_text(
        DOCKERFILE.read_text().replace(":3.12.13-slim-trixie\n", ":latest\n").replace("WORKDIR /srv", "WORKDIR srv")
    )
    done = hadolint(path)
    assert done.returncode != 0 and "DL3000" in done.stdout


def test_every_stage_starts_from_one_release():
    (base,) = re.findall(r"^ARG PYTHON_IMAGE=(.*)$", DOCKERFILE.read_text(), re.MULTILINE)
    assert re.fullmatch(r"python:\d+\.\d+\.\d+-slim-[a-z]+(@sha256:[0-9a-f]{64})?", base)
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    assert (
        f"Programming Language :: Python :: {'.'.join(base.partition(':')[2].split('.')[:2])}"
        in (config["metadata"]["classifiers"])
    )
    assert len(stages()) == 2
    for stage in stages():
        assert stage[0]["value"].split()[0] == "${PYTHON_IMAGE}"


def test_the_image_runs_as_nobody_in_particular():
    last = stages()[-1]
    (user,) = values(last, "USER")
    assert re.fullmatch(r"[1-9]\d{3,}:[1-9]\d{3,}", user), "a number: Kubernetes cannot see that a name is not root"
    after = [step["instruction"] for step in last[[s["instruction"] for s in last].index("USER") :]]
    assert not {"RUN", "COPY", "ADD"} & set(after)


def test_only_what_was_installed_comes_into_the_image():
    build, last = stages()
    assert values(last, "COPY") == ["--from=build /opt/aworld /opt/aworld"] and not values(last, "RUN")
    assert not values(build, "ADD") and not values(last, "ADD")


def test_no_secret_is_built_in():
    for stage in stages():
        for step in stage:
            if step["instruction"] in ("ENV", "ARG", "LABEL", "RUN"):
                assert not SECRETS.search(step["value"]), step["value"]


def test_what_it_runs_is_a_host_that_logs_no_token():
    last = stages()[-1]
    entry, command = json.loads(values(last, "ENTRYPOINT")[0]), json.loads(values(last, "CMD")[0])
    assert entry[:3] == ["dumb-init", "--single-child", "--"] and entry[-3:] == ["python", "-m", "envs.gaia"]
    options = served(command)
    assert options["host"] == "0.0.0.0" and options["no_token"] and options["require_sandbox"]
    assert values(last, "EXPOSE") == [str(options["port"])]
    assert any(line.startswith("dumb-init==") for line in LOCK.read_text().splitlines())


# ---- what is sent to the builder ----------------------------------------------------------------------------------


def sent():
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    patterns = [line for line in lines if line.strip() and not line.startswith("#")]
    found = {path for path in exclude_paths(str(ROOT), patterns) if not (ROOT / path).is_dir()}
    return {path for path in found if path not in ("Dockerfile", ".dockerignore")}


@pytest.fixture(scope="module")
def context():
    return sent()


def test_the_context_has_sources_and_nothing_else(context):
    assert {path.split("/")[0] for path in context} == {
        *("aworld_gym", "envs", "setup.cfg", "pyproject.toml", "README.md", "LICENSE")
    }
    for path in context:
        parts = Path(path).parts
        assert not {"tests", "__pycache__", ".git", ".venv"} & set(parts), path
        assert not re.match(r"test_|conftest|\.env", parts[-1]), path


def test_the_context_has_all_that_is_copied(context):
    for step in values(stages()[0], "COPY"):
        for source in step.split()[:-1]:
            assert source in context or any(path.startswith(f"{source}/") for path in context), source


def test_every_module_of_the_packages_is_in_the_context():
    modules = {
        path.relative_to(ROOT).as_posix() for name in ("aworld_gym", "envs") for path in (ROOT / name).rglob("*.py")
    }
    assert len(modules) > 100 and modules <= sent()


# ---- the lock -----------------------------------------------------------------------------------------------------


def locked():
    text = LOCK.read_text().replace("\\\n", " ")
    out = {}
    for line in text.splitlines():
        if line and not line.lstrip().startswith("#"):
            named, *hashes = re.split(r"\s+--hash=", line.strip())
            requirement = Requirement(named)
            assert hashes and all(re.fullmatch("sha256:[0-9a-f]{64}", one) for one in hashes), line[:80]
            (pin,) = requirement.specifier
            assert pin.operator == "=="
            out[canonicalize_name(requirement.name)] = pin.version
    return out


def test_the_lock_has_what_the_package_asks_for():
    config, found = configparser.ConfigParser(), locked()
    config.read(ROOT / "setup.cfg")
    extras = config["options.extras_require"]
    asked = [config["options"]["install_requires"], extras["gaia"], extras["host"], "dumb-init", "setuptools>=77"]
    wanted = [Requirement(line) for text in asked for line in text.splitlines() if line.strip()]
    assert len(wanted) > 20
    for requirement in wanted:
        version = found.get(canonicalize_name(requirement.name))
        assert version and requirement.specifier.contains(version), f"make the lock anew: {requirement}, has {version}"


def test_the_lock_names_no_place_to_fetch_from():
    assert "://" not in LOCK.read_text()


def test_the_version_is_the_packages():
    assert f"aworld-gaia:{__version__}" in DOCKERFILE.read_text()
