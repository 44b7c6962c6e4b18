"""What the doctor finds, in this environment and in ones that something is wrong with."""

import json
import os
import subprocess
import sys

import pytest

from aworld_gym import doctor


def distribution(folder, name, version="1.0", requires=(), packages=()):
    """An installed distribution in ``folder``, as pip leaves one."""
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    lines = [
        "Metadata-Version: 2.1",
        f"Name: {name}",
        f"Version: {version}",
        *(f"Requires-Dist: {r}" for r in requires),
    ]
    (info / "METADATA").write_text("\n".join(lines) + "\n")
    (info / "top_level.txt").write_text("\n".join(packages))
    for package in packages:
        (folder / package).mkdir(exist_ok=True)
        (folder / package / "__init__.py").write_text("")
    (info / "RECORD").write_text("".join(f"{package}/__init__.py,,\n" for package in packages))


def report(path=None, cwd=None, **settings):
    env = {k: v for k, v in os.environ.items() if not k.startswith("LLM_")} | settings
    if path is not None:
        env["PYTHONPATH"] = str(path)
    done = subprocess.run(
        [sys.executable, "-m", "aworld_gym", "doctor", "--fast", "--json"],
        capture_output=True,
        text=True,
        env=env,
        cwd=cwd,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_here():
    found = report(LLM_BASE_URL="http://127.0.0.1:9/v1", LLM_API_KEY="very-secret")
    assert found["packages"]["gymnasium"] and found["packages"]["mcp"] and found["packages"]["aworld-gym"]
    assert set(found["trainers"]) == {"trl", "verl", "swift"}
    assert found["trainers"]["verl"]["can_run"] or found["trainers"]["verl"]["why_not"]
    assert found["isolation"]["mechanism"] in ("bubblewrap", "none") and found["isolation"]["detail"]
    assert found["foreign_packages"] == {"adapters": [], "envs": []}
    assert set(found["extras"]) == {"host", "lean", "ray"} and found["extras"]["host"]["what"] == "aworld-gym serve"
    assert found["vllm"]["can_start"] or found["vllm"]["why_not"]
    assert found["endpoint"] == {
        "LLM_BASE_URL": "http://127.0.0.1:9/v1",
        "LLM_MODEL_NAME": None,
        "LLM_API_KEY": "set",
    }
    assert "very-secret" not in json.dumps(found)
    assert all(problem["what"] and problem["fix"] for problem in found["problems"])


def test_another_distribution_with_our_package_names_is_a_problem(tmp_path):
    distribution(tmp_path, "adapters", "1.2.0", packages=["adapters"])
    (tmp_path / "envs").mkdir()
    (tmp_path / "envs" / "__init__.py").write_text("")
    found = report(tmp_path, cwd=tmp_path.parent)
    assert found["foreign_packages"]["adapters"] == [str(tmp_path / "adapters"), "adapters"]
    assert found["foreign_packages"]["envs"] == [str(tmp_path / "envs")]
    told = " ".join(problem["what"] for problem in found["problems"])
    assert "'adapters' also comes from" in told and "'envs' also comes from" in told


def test_what_an_extra_lacks(tmp_path, monkeypatch):
    distribution(
        tmp_path,
        "our-own",
        requires=[
            "middle>=2; extra == 'x'",
            "absent; extra == 'x'",
            "gone; extra == 'x'",
            "unasked; extra == 'y'",
            "base",
        ],
    )
    distribution(tmp_path, "middle", "1.5", requires=["leaf<3", "only-with-extra; extra == 'z'", "not a requirement!"])
    distribution(tmp_path, "leaf", "4.0")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(doctor, "DISTRIBUTION", "our-own")
    assert doctor.unmet("x") == [
        "absent, gone are not installed (asked for by our-own[x])",
        "middle 1.5 is installed; our-own[x] needs >=2",
        "leaf 4.0 is installed; middle 1.5 needs <3",
    ]
    assert doctor.unmet("nothing") == ["this version of our-own has no extra 'nothing'"]
    monkeypatch.setattr(doctor, "DISTRIBUTION", "never-installed")
    assert "is not installed (a bare source tree)" in doctor.unmet("x")[0]


def test_requirements_that_go_in_a_circle_end(tmp_path, monkeypatch):
    distribution(tmp_path, "our-own", requires=["ping; extra == 'x'"])
    distribution(tmp_path, "ping", requires=["pong"])
    distribution(tmp_path, "pong", requires=["ping"])
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(doctor, "DISTRIBUTION", "our-own")
    assert doctor.unmet("x") == []


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("import json", None),
        ("import no_such_framework", "it is installed and does not import: ModuleNotFoundError"),
        (
            r"import sys; sys.stderr.buffer.write(b'ERREUR: \xe9chou\xe9\n'); sys.exit(1)",  # in Latin-1
            "it is installed and does not import: ERREUR: \ufffdchou\ufffd",
        ),
        ("import os; os._exit(7)", "it is installed and does not import: exit status 7"),
    ],
)
def test_a_trainer_is_believed_only_once_it_imports(monkeypatch, tmp_path, statement, why):
    (tmp_path / "adapters" / "x").mkdir(parents=True)
    monkeypatch.setattr(doctor, "_HOME", tmp_path)
    distribution(tmp_path / "site", "our-own", requires=["ping; extra == 'x'"])
    distribution(tmp_path / "site", "ping")
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.setattr(doctor, "DISTRIBUTION", "our-own")
    found = doctor.check_trainer(doctor.Trainer("x", statement))
    assert found["can_run"] is (why is None)
    if why is not None:
        assert found["why_not"].startswith(why) and "pip install 'our-own[x]'" in found["how"]
    assert "has no adapter" in doctor.check_trainer(doctor.Trainer("z", statement))["why_not"]


def test_versions_of_a_trainer(monkeypatch, tmp_path):
    distribution(tmp_path, "a-framework", "3.1")
    distribution(tmp_path, "beside-it", "0.7")
    monkeypatch.syspath_prepend(tmp_path)
    for tested in ((), ("3.0",), ("3.0", "3.1")):
        trainer = doctor.Trainer("x", "pass", "a-framework", tested, ("beside-it", "absent"))
        found = doctor.check_trainer(trainer, probe=False)
        assert found["versions"] == {"a-framework": "3.1", "beside-it": "0.7", "absent": None}
        assert found["tested"] is ("3.1" in tested) and not found["can_run"]


def test_problems_name_their_fix(monkeypatch):
    monkeypatch.setattr(doctor, "_run", lambda command: "H200, 141 GB, 580\n" if command[0] == "nvidia-smi" else None)
    monkeypatch.setattr(doctor, "_version", lambda name: None if name == "mcp" else "2.0+cpu")
    monkeypatch.setattr(doctor, "unmet", lambda extra: [f"{extra}-thing is not installed"])
    monkeypatch.setattr(
        doctor, "isolation", lambda: {"mechanism": "none", "confined": False, "detail": "install bubblewrap"}
    )
    found = doctor.report(probe=False)
    told = {problem["what"]: problem["fix"] for problem in found["problems"]}
    assert told["mcp is not installed"] == "pip install aworld-gym"
    assert told["run_python cannot be confined here and will refuse to run"] == "install bubblewrap"
    assert any("CPU build" in what for what in told) and any("npx" in what for what in told)
    assert told["AWorld/Gaia-v0 lacks gaia-thing is not installed"] == "pip install 'aworld-gym[gaia]'"
    assert found["gpu"]["devices"] == ["H200, 141 GB, 580"]


def test_other_envs_tell_of_their_servers(tmp_path):
    distribution(tmp_path, "third-party")
    code = "def rows():\n    return [{'what': 'their server', 'ready': True, 'detail': 'x'}]\n"
    (tmp_path / "third_party.py").write_text(code)
    points = "[aworld_gym.doctor]\na-broken-one = no_such_module:rows\nb-fine-one = third_party:rows\n"
    (tmp_path / "third_party-1.0.dist-info" / "entry_points.txt").write_text(points)
    rows = {row["what"]: row for row in report(tmp_path, cwd=tmp_path.parent)["services"]}
    assert rows["their server"]["ready"]
    assert not rows["a-broken-one"]["ready"] and "no_such_module" in rows["a-broken-one"]["detail"]


def test_a_vllm_on_the_path_is_found(tmp_path):
    bare = report(PATH=str(tmp_path))["vllm"]
    if bare["program"] is None:  # there may be one in this very environment, which comes first
        assert not bare["can_start"] and "pip install 'aworld-gym[vllm]'" in bare["why_not"]
        (tmp_path / "bin").mkdir()
        program = tmp_path / "bin" / "vllm"
        program.write_text("")
        program.chmod(0o755)
        (tmp_path / "lib/python3.12/site-packages/vllm-0.32.0+cpu.dist-info").mkdir(parents=True)
        found = report(PATH=str(program.parent))["vllm"]
        assert (found["can_start"], found["program"], found["version"]) == (True, str(program), "0.32.0+cpu")


def test_what_programs_print_may_be_in_any_encoding(tmp_path):
    (tmp_path / "node").write_text("#!/bin/sh\nprintf '\\351v20\\n'\n")
    (tmp_path / "node").chmod(0o755)
    assert report(PATH=f"{tmp_path}{os.pathsep}{os.environ['PATH']}")["node"]["node"] == "\ufffdv20"
