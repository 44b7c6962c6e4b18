"""The compose file: valid by Compose's own schema, and in step with the image, the host and what starts it."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import yaml
from deploy_files import COMPOSE, DOCKER, DOCKERFILE, compose, served, service, stages, values, variables
from hosts import host_here

from aworld_gym import __version__
from aworld_gym.cli_host import seconds
from aworld_gym.host import credentials
from envs.gaia import containers

MIB = 2**20


def check(path):
    tool = shutil.which("check-jsonschema", path=str(Path(sys.executable).parent))
    assert tool, "check-jsonschema is not installed: pip install -e '.[dev]'"
    command = [tool, "--builtin-schema", "vendor.compose-spec", str(path)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_the_file_is_valid(tmp_path):
    for number, given in enumerate(({}, {"AWORLD_PORT": "", "AWORLD_BIND": "[::1]", "AWORLD_STOP_GRACE": "45s"})):
        path = tmp_path / f"{number}.yaml"
        path.write_text(yaml.safe_dump(compose(AWORLD_HOST_SECRET_FILE="/secret", **given)))
        done = check(path)
        assert done.returncode == 0, done.stdout + done.stderr
    assert check(COMPOSE).returncode == 0


def test_an_invalid_file_would_be_found(tmp_path):
    path = tmp_path / "compose.yaml"
    path.write_text(COMPOSE.read_text().replace("read_only: true", "readonly: true"))
    done = check(path)
    assert done.returncode != 0 and "readonly" in done.stdout


def test_the_container_can_do_little():
    it = service()
    assert it["read_only"] is True and it["cap_drop"] == ["ALL"] and "cap_add" not in it and "privileged" not in it
    assert "no-new-privileges:true" in it["security_opt"]
    assert {"network_mode", "pid", "ipc", "volumes", "devices", "user"} & set(it) == set(), "the image's user stands"
    (tmpfs,) = it["tmpfs"]
    assert tmpfs.startswith("/tmp:") and {"nosuid", "nodev", "noexec", "size=1g"} <= set(tmpfs[5:].split(","))
    assert {"mem_limit", "cpus", "pids_limit", "ulimits"} <= set(it) and it["logging"]["options"]["max-size"]


def test_the_profile_is_where_it_is_looked_for():
    (profile,) = [one.partition("=")[2] for one in service()["security_opt"] if one.startswith("seccomp=")]
    assert (DOCKER / profile).is_file() and "apparmor=unconfined" in service()["security_opt"]


def test_the_image_is_built_from_here():
    build = service()["build"]
    assert (DOCKER / build["context"] / build["dockerfile"]).resolve() == DOCKERFILE
    assert service()["image"] == f"aworld-gaia:{__version__}"


def test_ports_agree():
    options = served(service()["command"])
    (published,) = service()["ports"]
    assert published.rsplit(":", 1)[1] == str(options["port"]) == values(stages()[-1], "EXPOSE")[0]
    assert options["port"] == containers.INNER_PORT
    assert published.startswith("127.0.0.1:"), "only this machine reaches what is published, unless told"
    assert f":{options['port']}/ready" in service()["healthcheck"]["test"][-1]


def test_its_health_is_the_hosts():
    """The check as it stands, against a real host: good while it is ready, bad when it drains or is gone."""
    test = service()["healthcheck"]["test"]
    assert test[0] == "CMD" and test[1] == "python"
    with host_here() as running:
        code = test[-1].replace("http://127.0.0.1:8000", running.address)
        command = [sys.executable, test[2], code]
        assert subprocess.run(command, timeout=60).returncode == 0
        running.host._ready = False
        assert subprocess.run(command, timeout=60, stderr=subprocess.DEVNULL).returncode != 0
    assert subprocess.run(command, timeout=60, stderr=subprocess.DEVNULL).returncode != 0


def test_the_host_in_it_logs_no_token_and_confines_what_it_runs():
    options = served(service()["command"])
    assert options["no_token"] and options["require_sandbox"] and options["host"] == "0.0.0.0"


def test_the_secret_is_a_file_that_must_be_named():
    assert variables()[credentials.SECRET_FILE_VAR] is None
    (name,) = service()["secrets"]
    assert service()["environment"] == {credentials.SECRET_FILE_VAR: f"/run/secrets/{name}"}
    assert compose(AWORLD_HOST_SECRET_FILE="/x")["secrets"] == {name: {"file": "/x"}}
    assert not re.search(credentials.SECRET_VAR + r"\b", yaml.safe_dump(service()))


def test_it_is_killed_only_after_it_has_drained():
    options = served(service()["command"])
    assert seconds(service()["stop_grace_period"]) >= options["drain"] + containers.STOP_MARGIN_S


def test_defaults_are_the_hosts_own():
    options, own = served(service()["command"]), served([])
    for name in ("max_sessions", "drain", "max_age", "queue"):
        assert options[name] == own[name], name


def test_what_starts_it_sets_what_it_takes():
    code = Path(containers.__file__).read_text()
    for name in variables():
        assert f'"{name}"' in code or name == credentials.SECRET_FILE_VAR, f"{name} is taken and never set"
    assert containers.SERVICE in compose(AWORLD_HOST_SECRET_FILE="/x")["services"]
    assert COMPOSE.name == containers.COMPOSE_FILE
