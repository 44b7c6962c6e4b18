"""The files that put a host into a container or a cluster, as tests read them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import typer
import yaml
from dockerfile_parse import DockerfileParser

from aworld_gym import cli
from envs.gaia import __main__ as serving

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "envs/gaia/docker"
DOCKERFILE = DOCKER / "Dockerfile"
COMPOSE = DOCKER / "compose.yaml"
SECCOMP = DOCKER / "seccomp.json"
K8S = ROOT / "deploy/k8s"
BASE = K8S / "base"
_VARIABLE = re.compile(r"\$\{(\w+)(?:(:?[-?])([^}]*))?\}")


def manifest(name: str) -> dict[str, Any]:
    """One Kubernetes manifest of the base."""
    return yaml.safe_load((BASE / name).read_text(encoding="utf-8"))


def manifests() -> dict[str, dict[str, Any]]:
    """All of them, by file name; none of kustomize's own."""
    return {path.name: manifest(path.name) for path in sorted(BASE.glob("*.yaml")) if path.stem != "kustomization"}


def rendered(folder: Path) -> list[dict[str, Any]]:
    """What ``kubectl apply -k`` would apply, made by kubectl itself; it asks no cluster."""
    kubectl = shutil.which("kubectl", path=str(Path(sys.executable).parent))
    assert kubectl, "kubectl is not installed: pip install -e '.[dev]'"
    done = subprocess.run([kubectl, "kustomize", str(folder)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def variables() -> dict[str, str | None]:
    """What the compose file takes from its environment: name -> default; None where it must be set."""
    found = _VARIABLE.findall(COMPOSE.read_text(encoding="utf-8"))
    return {name: rest if kind.endswith("-") else None for name, kind, rest in found}


def compose(**given: str) -> dict[str, Any]:
    """The compose file, its variables filled in as Compose fills them: in what the YAML says, not in its text."""

    def value(match: re.Match[str]) -> str:
        name, kind, rest = match.groups()
        if name not in given and not kind.endswith("-"):
            raise KeyError(f"{name} must be set: {rest}")
        return (given.get(name) or rest) if kind.startswith(":") else given.get(name, rest)

    def filled(node: Any) -> Any:
        if isinstance(node, dict):
            return {key: filled(inner) for key, inner in node.items()}
        if isinstance(node, list):
            return [filled(inner) for inner in node]
        return _VARIABLE.sub(value, node) if isinstance(node, str) else node

    return filled(yaml.safe_load(COMPOSE.read_text(encoding="utf-8")))


def service() -> dict[str, Any]:
    """The one service of the compose file, with its defaults."""
    (found,) = compose(AWORLD_HOST_SECRET_FILE="/secret")["services"].values()
    return found


def stages() -> list[list[dict[str, Any]]]:
    """The Dockerfile's instructions from the first FROM on, by stage, without comments."""
    out: list[list[dict[str, Any]]] = []
    for step in DockerfileParser(str(DOCKERFILE)).structure:
        if step["instruction"] == "FROM":
            out.append([])
        if out and step["instruction"] != "COMMENT":
            out[-1].append(step)
    return out


def values(stage: list[dict[str, Any]], instruction: str) -> list[str]:
    """What stands after an instruction, each time it stands in a stage."""
    return [step["value"] for step in stage if step["instruction"] == instruction]


def served(arguments: list[str]) -> dict[str, Any]:
    """The options of a host that is started with these arguments; one that it does not know raises."""
    own = typer.main.get_command(serving.app).make_context("host", list(arguments))
    command: Any = typer.main.get_command(cli.app)
    parsed = command.commands["serve"].make_context("host", ["gaia", *own.args])
    return {**parsed.params, "require_sandbox": own.params["require_sandbox"], "docker_dir": own.params["docker_dir"]}
