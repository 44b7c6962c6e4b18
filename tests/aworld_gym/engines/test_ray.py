"""Rollouts on a real Ray cluster of several nodes, some of which are killed."""

import json
import os
import re
import shutil
import signal
import sys
import threading
import time
from collections import Counter
from contextlib import closing

import gymnasium as gym
import psutil
import pytest
from chat_endpoint import ChatEndpoint, completion
from cli_process import process
from episodes import without_times
from leaks import commands_below
from ray_clusters import clusters_below, gone

from aworld_gym import policies
from aworld_gym.errors import ConfigError, InfraError, MissingDependencyError, PolicyError, UnknownTaskError
from aworld_gym.manifests import Manifest
from aworld_gym.metrics import summarize
from aworld_gym.policies import FunctionPolicy, OpenAIPolicy, OraclePolicy, RandomPolicy
from aworld_gym.rollout import Item, branch, iterate, rollout
from aworld_gym.trajectory import read_jsonl
from aworld_gym.types import Outcome
from benchmarks.scaling_ray import cluster  # before Ray is imported

ray = pytest.importorskip("ray")  # an extra, which some of the environments are without
from aworld_gym.engines.base import MOST_LOSSES  # noqa: E402
from aworld_gym.engines.ray import Ray  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

GAIA = "AWorld/Gaia-v0"
SAY = "Test/Say-v0"


@pytest.fixture(scope="module")
def four():
    """Four nodes; two have something special."""
    import say_env  # noqa: F401  (registers its env)

    with cluster(4, resources=lambda k: {"special": 1.0} if k in (1, 2) else {}) as made:
        yield made


@pytest.fixture(autouse=True)
def nothing_is_left(request):
    """After every test: this process is connected to no cluster."""
    yield
    assert not ray.is_initialized()


def places(episodes):
    """The processes and the nodes that played."""
    pids, nodes = zip(*(e.submitted.split() for e in episodes), strict=True)
    return Counter(map(int, pids)), Counter(nodes)


# ---- the same as here -----------------------------------------------------------------------------------


def test_episodes_metrics_and_journal_are_those_of_the_local_engine_and_either_resumes_the_other(four, tmp_path):
    ours, theirs = tmp_path / "local.jsonl", tmp_path / "ray.jsonl"
    settings, options = Ray(four.address, workers=2), {"group_size": 2, "concurrency": 4, "seed": 5}
    local = rollout(GAIA, RandomPolicy(3), episodes=6, journal=ours, **options)
    seen = []
    far = rollout(GAIA, RandomPolicy(3), episodes=6, journal=theirs, engine=settings, on_episode=seen.append, **options)
    assert [without_times(e) for e in far] == [without_times(e) for e in local]
    assert summarize(far) == summarize(local)
    assert [e.to_json() for e in read_jsonl(theirs)] == [e.to_json() for e in seen]
    assert sorted(e.key for e in read_jsonl(theirs)) == sorted(e.key for e in read_jsonl(ours))
    more = [
        rollout(GAIA, RandomPolicy(3), episodes=8, journal=ours, resume=True, engine=settings, **options),
        rollout(GAIA, RandomPolicy(3), episodes=8, journal=theirs, resume=True, **options),
    ]
    assert [without_times(e) for e in more[0]] == [without_times(e) for e in more[1]]
    for path in (ours, theirs):
        assert Counter(Counter(e.key for e in read_jsonl(path)).values()) == {1: 8}
    with pytest.raises(ConfigError, match="its policy settings is"):
        rollout(GAIA, RandomPolicy(4), episodes=8, journal=theirs, resume=True, engine=settings, **options)


def test_retries_are_counted_and_recorded_as_here(four):
    def play(engine):
        played = rollout(SAY, policies.make("ray_policies:spoiled"), episodes=3, engine=engine)
        return [without_times(e) for e in played]

    far = play(Ray(four.address, workers=1))
    assert far == play("local")
    assert [(e["seed"], e["attempt"], e["error_kind"]) for e in far] == [
        (0, 0, None),
        (1, 0, "host_refused"),
        (1, 1, None),
        (2, 0, None),
    ]


def test_manifests_and_forks_are_played_as_here(four):
    env = gym.make(SAY)
    two = Manifest.of(env.unwrapped.tasks, ["red", "blue"], name="two", env_id=SAY)
    env.close()
    policy = policies.make("ray_policies:answer")

    def play(engine):
        played = rollout(SAY, policy, manifest=two, group_size=2, engine=engine)
        forks = branch(played[0], 0, 2, policy, engine=engine)
        return [without_times(e) for e in [*played, *forks]]

    far = play(Ray(four.address, workers=1))
    assert far == play("local")
    assert [(e["task_id"], e["versions"].get("manifest")) for e in far[:4:2]] == [("red", two.hash), ("blue", two.hash)]
    assert [e["forked_at"] for e in far[4:]] == [0, 0] and far[4]["parent"]


# ---- where ----------------------------------------------------------------------------------------------


def test_workers_play_many_episodes_each_and_are_spread_over_the_nodes(four, tmp_path):
    policy = policies.make("ray_policies:place", meet=str(tmp_path), of=4)
    pids, nodes = places(rollout(SAY, policy, episodes=16, concurrency=16, engine=Ray(four.address)))
    assert len(nodes) == 4 and os.getpid() not in pids  # one worker for each node that idles
    assert list(pids.values()) == [4] * 4
    assert gone(set(pids), within_s=15.0)


def test_workers_go_where_their_resources_are(four):
    special = {node["NodeID"] for node in four_nodes(four) if "special" in node["Resources"]}
    settings = Ray(four.address, num_cpus=0.5, resources={"special": 0.5}, workers=3)
    policy = policies.make("ray_policies:place", seconds=0.3)
    pids, nodes = places(rollout(SAY, policy, episodes=12, concurrency=6, engine=settings))
    assert set(nodes) <= special and len(pids) <= 3


def four_nodes(made):
    ray.init(address=made.address, log_to_driver=False)
    try:
        return [node for node in ray.nodes() if node["Alive"]]
    finally:
        ray.shutdown()


@pytest.mark.parametrize("asked", [{"num_cpus": 64}, {"resources": {"unobtainable": 1}}])
def test_what_no_node_has_is_said(four, asked):
    name = next(iter(asked.get("resources", {"CPU": 0})))
    with pytest.raises(ConfigError, match=rf"no worker of the Ray cluster could be started.*asks for .*{name}.*CPU 4"):
        rollout(SAY, OraclePolicy(), episodes=1, engine=Ray(four.address, start_timeout_s=2.0, **asked))


def test_a_connection_of_ones_own_is_used_and_left_alone(four):
    ray.init(address=four.address, log_to_driver=False)
    try:
        assert len(rollout(SAY, policies.make("ray_policies:place"), episodes=2, engine="ray")) == 2
        assert ray.is_initialized() and len([n for n in ray.nodes() if n["Alive"]]) >= 3
        with pytest.raises(ConfigError, match="is connected to the Ray cluster at"):
            rollout(SAY, OraclePolicy(), episodes=1, engine=Ray("127.0.0.1:1"))
    finally:
        ray.shutdown()


def test_ray_address_is_read(four, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", four.address)
    _, nodes = places(rollout(SAY, policies.make("ray_policies:place"), episodes=2, engine="ray"))
    assert set(nodes) <= {node["NodeID"] for node in four_nodes(four)}


# ---- failures -------------------------------------------------------------------------------------------


def test_errors_of_policies_envs_and_items_are_raised_here_as_what_they_are(four, tmp_path):
    settings = Ray(four.address, workers=1)
    with pytest.raises(PolicyError, match="policy 'failing' raised in act.*lost") as error:
        rollout(SAY, policies.make("ray_policies:failing"), episodes=8, journal=tmp_path / "e.jsonl", engine=settings)
    assert "seed 3" in error.value.__notes__[0] and "ray_policies.py" in str(error.value.__cause__)
    assert {e.seed for e in error.value.finished} == {e.seed for e in read_jsonl(tmp_path / "e.jsonl")} != set()
    with pytest.raises(UnknownTaskError, match="unknown task id 'g'"):
        rollout(SAY, OraclePolicy(), items=[Item(0, 1, options={"task_id": "g"})], engine=settings)
    with pytest.raises(ConfigError, match="has no plan for the oracle"):
        rollout(SAY, OraclePolicy(), episodes=1, engine=settings)
    with pytest.raises(ConfigError, match=r"a worker is not what this rollout is: its policy is 'other-\d+'"):
        rollout(SAY, policies.make("ray_policies:other"), episodes=1, engine=settings)


def test_an_episode_that_ends_its_worker_is_given_up_and_the_others_are_not(four, tmp_path):
    """Bounded attempts, each recorded; what shared a worker with it is played again."""
    path = tmp_path / "e.jsonl"
    policy = policies.make("ray_policies:fatal", seeds=[2])
    played = rollout(
        SAY, policy, episodes=6, concurrency=1, retries=0, journal=path, engine=Ray(four.address, workers=1)
    )
    tries = Counter(e.seed for e in played)
    assert tries == {**dict.fromkeys(range(6), 1), 2: MOST_LOSSES + 1}
    lost = [e for e in played if e.seed == 2]
    assert [e.attempt for e in lost] == list(range(MOST_LOSSES + 1))
    assert {(e.outcome, e.error_kind, e.valid, e.score) for e in lost} == {
        (Outcome.INFRA_FAILURE, "worker_lost", False, None)
    }
    assert all(e.valid for e in played if e.seed != 2)
    assert Counter(Counter(e.key for e in read_jsonl(path)).values()) == {1: len(played)}
    found = summarize(played)
    assert (found["valid"], found["invalid"], found["failures"]) == (5, 1, {"worker_lost": MOST_LOSSES + 1})


# ---- the end --------------------------------------------------------------------------------------------


def test_leaving_early_ends_the_workers(four, tmp_path):
    policy = policies.make("ray_policies:hanging", pids=str(tmp_path))
    with closing(iterate(SAY, policy, episodes=20, concurrency=8, engine=Ray(four.address, workers=2))) as episodes:
        assert next(episodes).valid
        pids = {int(file.name) for file in tmp_path.iterdir()}
        assert pids and all(psutil.pid_exists(pid) for pid in pids)
    assert gone({int(file.name) for file in tmp_path.iterdir()}, within_s=15.0)


def test_a_deadline_ends_what_hangs(four, tmp_path):
    policy = policies.make("ray_policies:hanging", pids=str(tmp_path), most=1)
    played = rollout(SAY, policy, episodes=2, deadline_s=2.0, engine=Ray(four.address, workers=1))
    assert [e.outcome for e in played] == [Outcome.ANSWERED, Outcome.TIMEOUT]


def test_secrets_reach_the_workers_and_stand_in_no_log(four, tmp_path, monkeypatch):
    key, token = "sk-not-for-any-log-1", "token-not-for-any-log-2"
    monkeypatch.setenv("TOKEN_OF_A_TOOL", token)

    with ChatEndpoint(lambda body, number: completion({"content": "<answer>red</answer>"})) as endpoint:
        policy = OpenAIPolicy("m", base_url=endpoint.url, api_key=key)
        played = rollout(SAY, policy, episodes=4, engine=Ray(four.address, workers=2, env=("TOKEN_OF_A_TOOL",)))
    assert all(e.submitted == "red" for e in played) and endpoint.keys == [f"Bearer {key}"] * 4
    settings = Ray(four.address, workers=1, env=("TOKEN_OF_A_TOOL",))
    there = rollout(SAY, policies.make("ray_policies:secret", name="TOKEN_OF_A_TOOL"), episodes=1, engine=settings)
    assert there[0].submitted == "there"
    with pytest.raises(ConfigError, match="environment variable TOKEN_OF_A_TOO is to be given to the workers"):
        rollout(SAY, OraclePolicy(), episodes=1, engine=Ray(four.address, env=("TOKEN_OF_A_TOO",)))
    logs = [file for file in four.folder.rglob("*") if file.is_file() and not file.is_symlink()]
    assert len(logs) > 10
    for file in logs:
        text = file.read_bytes()
        assert key.encode() not in text and token.encode() not in text, file


def test_a_node_is_killed_half_way_and_no_episode_is_lost_or_doubled(four, tmp_path):
    path, wanted, meet = tmp_path / "e.jsonl", 96, tmp_path / "pids"
    meet.mkdir()
    policy = policies.make("ray_policies:place", seconds=0.4, meet=str(meet), of=4)
    killed, played = None, []
    options = {"episodes": wanted, "group_size": 4, "concurrency": 24, "retries": 0, "journal": path}
    with closing(iterate(SAY, policy, engine=Ray(four.address), **options)) as episodes:
        for episode in episodes:
            played.append(episode)
            if killed is None and len(played) >= wanted // 3:
                killed = threading.Thread(target=four.remove_node, args=(four.nodes[3], False), daemon=True)
                killed.start()
        killed.join(60.0)
    lost = [e for e in played if not e.valid]
    assert lost and {(e.error_kind, e.attempt) for e in lost} == {("worker_lost", 0)}
    valid = Counter((e.seed, e.sample) for e in played if e.valid)
    assert len(valid) == wanted and set(valid.values()) == {1}
    assert sorted(e.key for e in read_jsonl(path)) == sorted(e.key for e in played)
    assert len({e.key for e in read_jsonl(path) if e.valid}) == wanted
    groups = Counter(e.group_id for e in played if e.valid)
    assert set(groups.values()) == {4} and len(groups) == wanted // 4
    found = summarize(played)
    assert (found["valid"], found["invalid"], found["retried"]) == (wanted, 0, len(lost))
    again = rollout(SAY, policy, episodes=wanted, group_size=4, journal=path, resume=True)  # nothing is left to play
    assert len(again) == len(played)


def test_where_no_worker_can_be_had_any_more_the_rollout_ends_with_that(four, tmp_path):
    """The last test of this cluster: its special nodes are killed."""
    pids, path = tmp_path / "pids", tmp_path / "e.jsonl"
    pids.mkdir()
    settings = Ray(four.address, workers=1, resources={"special": 1.0}, start_timeout_s=12.0)
    policy = policies.make("ray_policies:hanging", pids=str(pids))
    began, done = time.monotonic(), 0
    with closing(iterate(SAY, policy, episodes=9, concurrency=9, engine=settings, journal=path)) as played:
        with pytest.raises(InfraError, match=r"worker_lost: no worker of the Ray cluster.*asks for CPU 1, special 1"):
            for episode in played:
                done += episode.valid
                if done == 3 and episode.valid:
                    for node in (four.nodes[1], four.nodes[2]):
                        four.remove_node(node, False)
    assert done == 3 and time.monotonic() - began < 120.0
    records = list(read_jsonl(path))
    assert sorted(e.seed for e in records if e.valid) == [0, 1, 2]
    assert sorted(e.seed for e in records if e.error_kind == "worker_lost") == [3, 4, 5, 6, 7, 8]


def test_the_command_line_starts_a_cluster_prints_the_same_and_leaves_nothing(tmp_path):
    args = ("eval", "quiet_envs:QuietTest/Small-v0", "--episodes", "4", "--seed", "0", "--json")
    far = ("--engine", "ray", "--ray-workers", "2", "--ray-cpus", "0.5", "--output", str(tmp_path / "far"))
    results = []
    for more in (far, ("--output", str(tmp_path / "near"))):
        child = process(*args, *more)
        out, err = child.communicate(timeout=120)
        assert child.returncode == 0, err
        results.append(json.loads(out))
    for result in results:
        for name in ("wall_s", "episodes_path"):
            result.pop(name)
    assert (results[0].pop("engine"), results[1].pop("engine")) == ("ray", "local")
    assert results[0] == results[1] and results[0]["success_rate"] == 1.0
    kept = [sorted(e.key for e in read_jsonl(tmp_path / name / "episodes.jsonl")) for name in ("far", "near")]
    assert kept[0] == kept[1]


@pytest.mark.parametrize("how", ["Ctrl-C", "kill", "kill -9"])
def test_whatever_ends_the_command_ends_its_cluster(how, tmp_path):
    pids = tmp_path / "pids"
    pids.mkdir()
    child = process(
        *("eval", "say_env:Test/Say-v0", "--policy", "ray_policies:hanging", "-p", f"pids={pids}"),
        *("--episodes", "9", "--engine", "ray", "--ray-workers", "2", "--ray-cpus", "0.5"),
        *("--output", str(tmp_path / "run")),
        start_new_session=True,
    )
    path, deadline = tmp_path / "run" / "episodes.jsonl", time.monotonic() + 90
    while not (path.exists() and path.read_bytes().count(b"\n") >= 3):
        assert child.poll() is None and time.monotonic() < deadline, child.communicate(timeout=30)
        time.sleep(0.1)
    theirs = clusters_below(psutil.Process(child.pid)) | {int(file.name) for file in pids.iterdir()}
    assert len(theirs) >= 3
    if how == "kill -9":
        folders = set(re.findall(r"/tmp/aworld-ray-\w+", "\n".join(commands_below(child.pid))))
        child.kill()
        child.communicate(timeout=30)
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)  # nobody is left to do it
    else:
        if how == "Ctrl-C":
            os.killpg(child.pid, signal.SIGINT)  # as a terminal does: to all of the group
        else:
            child.terminate()
        out, err = child.communicate(timeout=60)
        status, word = (130, "interrupted") if how == "Ctrl-C" else (143, "terminated")
        assert child.returncode == status and f"{word}; finished episodes are kept" in err, err
    assert gone(theirs, within_s=30.0)
    assert sorted(e.seed for e in read_jsonl(path)) == [0, 1, 2]


# ---- what cannot work -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"workers": 0}, "workers must be"),
        ({"workers": 1.5}, "workers must be"),
        ({"workers": "2"}, "workers must be"),
        ({"num_cpus": -1}, "num_cpus must not be negative"),
        ({"start_timeout_s": 0}, "start_timeout_s must be positive"),
        ({"resources": {"CPU": 1}}, "CPU is none of them"),
        ({"resources": {"x": 0}}, "resource 'x' must be a positive number"),
        ({"address": "nowhere"}, "address of a Ray cluster is host:port"),
        ({"address": "127.0.0.1:1"}, "no Ray cluster answers at 127.0.0.1:1"),
    ],
)
def test_settings_that_cannot_be(settings, message):
    import say_env  # noqa: F401

    began = time.monotonic()
    with pytest.raises(ConfigError, match=message):
        rollout(SAY, policies.make("ray_policies:answer"), episodes=1, engine=Ray(**settings))
    assert time.monotonic() - began < 30.0


def test_engines_that_are_none_and_what_cannot_travel():
    import say_env  # noqa: F401

    with pytest.raises(ConfigError, match=r"engine must be one of local, ray.*Did you mean 'ray'\?"):
        rollout(SAY, OraclePolicy(), episodes=1, engine="rya")
    with pytest.raises(ConfigError, match="cannot be sent to another process"):
        rollout(SAY, FunctionPolicy(lambda messages, tools: None), episodes=1, engine="ray")
    with pytest.raises(ConfigError, match="plays without a tape"):
        rollout(SAY, OraclePolicy(), episodes=1, engine="ray", tape=object())
    with pytest.raises(ConfigError, match="engine must be one of local, ray"):
        rollout(SAY, OraclePolicy(), episodes=1, engine=3)


def test_options_of_ray_are_for_ray():
    child = process("eval", "quiet_envs:QuietTest/Small-v0", "--ray-workers", "2")
    out, err = child.communicate(timeout=60)
    assert child.returncode == 2 and "the --ray-... options are for --engine ray, and this is --engine local" in err


def test_without_ray_it_is_said_what_to_install(monkeypatch):
    import say_env  # noqa: F401

    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'aworld-gym\[ray\]'"):
        rollout(SAY, policies.make("ray_policies:answer"), episodes=1, engine="ray")
    assert len(rollout(SAY, policies.make("ray_policies:answer"), episodes=1)) == 1


def test_the_local_engine_does_not_import_ray():
    code = (
        "import sys, say_env, aworld_gym, ray_policies; from aworld_gym.rollout import rollout;"
        "from aworld_gym.policies import FunctionPolicy;"
        "rollout('Test/Say-v0', FunctionPolicy(ray_policies.answer), episodes=1); print('ray' in sys.modules)"
    )
    child = process("-c", code, program=(sys.executable,))
    assert child.communicate(timeout=60)[0].strip() == "False"
