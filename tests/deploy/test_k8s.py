"""The Kubernetes manifests: valid by Kubernetes' own schemas, and in step with each other, the image and the host."""

import copy
import re
import shutil

import kubernetes_validate
import pytest
import yaml
from deploy_files import K8S, ROOT, manifest, manifests, rendered, served, service, stages, values
from hosts import host_here

from aworld_gym import __version__
from aworld_gym.errors import ConfigError
from aworld_gym.host import credentials
from aworld_gym.host.settings import HostSettings

try:
    import httpx
except ImportError:
    import httpx2 as httpx

VERSIONS = ("1.32", "1.34", "1.37")


def deployment():
    return manifest("deployment.yaml")


def pod():
    return deployment()["spec"]["template"]["spec"]


def container():
    (it,) = pod()["containers"]
    return it


def valid(it, version):
    kubernetes_validate.validate(it, version, strict=True)


def of_kind(kind, documents):
    return [it for it in documents if it["kind"] == kind]


@pytest.fixture(scope="module")
def everything():
    """What kubectl makes of the folder that is applied."""
    return rendered(K8S)


@pytest.fixture(scope="module")
def apart():
    return rendered(K8S / "apart")


@pytest.fixture(scope="module")
def without_run_python(tmp_path_factory):
    """The same folders with the component that their comments name: the one host's, and those apart."""
    copy_ = tmp_path_factory.mktemp("k8s") / "k8s"
    shutil.copytree(K8S, copy_)
    for path, where in ((copy_, "components"), (copy_ / "apart", "../components")):
        with (path / "kustomization.yaml").open("a") as file:
            file.write(f"components:\n  - {where}/without-run-python\n")
    return rendered(copy_), rendered(copy_ / "apart")


# ---- schemas ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_manifests_are_valid(version, everything, apart, without_run_python):
    for documents in (list(manifests().values()), everything, apart, *without_run_python):
        assert len(documents) >= 5
        for it in documents:
            valid(it, version)


@pytest.mark.parametrize(
    ("path", "wrong"),
    [
        (("spec", "template", "spec", "terminationGracePeriod"), 3),
        (("spec", "template", "spec", "containers", 0, "ports", 0, "containerPort"), "http"),
        (("spec", "template", "spec", "securityContext", "seccompProfile", "kind"), "Localhost"),
    ],
)
def test_what_is_not_would_be_found(path, wrong):
    it = deployment()
    inner = it
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = wrong
    with pytest.raises(kubernetes_validate.ValidationError):
        valid(it, VERSIONS[-1])


def test_kustomization_lists_every_manifest_but_the_secret(everything):
    listed = manifest("kustomization.yaml")["resources"]
    assert sorted(listed) == sorted(set(manifests()) - {"secret.yaml"})
    kinds = {"Deployment", "Service", "HorizontalPodAutoscaler", "NetworkPolicy", "PodDisruptionBudget"}
    assert {it["kind"] for it in everything} == kinds and len(everything) == len(kinds)
    assert {it["kind"] for it in manifests().values()} == kinds | {"Secret"}
    assert {it["metadata"]["namespace"] for it in everything} == {manifest("secret.yaml")["metadata"]["namespace"]}


# ---- with each other ----------------------------------------------------------------------------------------------


def test_everything_means_the_same_pods():
    labels = deployment()["spec"]["template"]["metadata"]["labels"]
    selectors = [
        deployment()["spec"]["selector"]["matchLabels"],
        manifest("service.yaml")["spec"]["selector"],
        manifest("networkpolicy.yaml")["spec"]["podSelector"]["matchLabels"],
        manifest("pdb.yaml")["spec"]["selector"]["matchLabels"],
        pod()["topologySpreadConstraints"][0]["labelSelector"]["matchLabels"],
    ]
    assert all(one and one.items() <= labels.items() for one in selectors)
    target = manifest("hpa.yaml")["spec"]["scaleTargetRef"]
    assert (target["kind"], target["name"]) == ("Deployment", deployment()["metadata"]["name"])
    assert "replicas" not in deployment()["spec"], "every apply would undo what the autoscaler did"


def test_ports_agree():
    (port,) = container()["ports"]
    assert [port["containerPort"]] == [served(container()["args"])["port"]] == [int(values(stages()[-1], "EXPOSE")[0])]
    (of_service,) = manifest("service.yaml")["spec"]["ports"]
    (rule,) = manifest("networkpolicy.yaml")["spec"]["ingress"]
    probes = [container()[f"{name}Probe"]["httpGet"]["port"] for name in ("startup", "readiness", "liveness")]
    assert {of_service["targetPort"], rule["ports"][0]["port"], *probes} == {port["name"]}
    scraped = deployment()["spec"]["template"]["metadata"]["annotations"]
    assert scraped["prometheus.io/port"] == str(port["containerPort"])


def test_the_image_is_the_one_that_compose_builds():
    assert container()["image"] == service()["image"] == f"aworld-gaia:{__version__}"


# ---- with the host ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def answers():
    """A real host that goes by the names that the manifests give it: path, Host header -> status and text."""
    with host_here(allowed_hosts=tuple(served(container()["args"])["allowed_host"])) as running:

        def get(path, host=None):
            reply = httpx.get(running.address + path, headers={"host": host} if host else None, timeout=10)
            return reply.status_code, reply.text

        yield get


def test_probes_ask_for_what_a_host_answers(answers):
    for probe in ("startup", "readiness", "liveness"):
        assert answers(container()[f"{probe}Probe"]["httpGet"]["path"], "10.1.2.3:8000")[0] == 200, probe
    assert container()["readinessProbe"]["httpGet"]["path"] == "/ready", "a host that drains is to get no new clients"
    assert container()["livenessProbe"]["httpGet"]["path"] == "/health", "a host that drains is not to be killed"


def test_metrics_are_the_hosts(answers):
    path = deployment()["spec"]["template"]["metadata"]["annotations"]["prometheus.io/path"]
    status, text = answers(path)
    assert status == 200
    for metric in manifest("hpa.yaml")["spec"]["metrics"]:
        name = metric["pods"]["metric"]["name"]
        assert f"# TYPE {name} gauge" in text, f"{name} is no gauge of the host's"
        assert f'{name}{{toolchain="basic"}} 0.0' in text, "an autoscaler wants a number from the start"
    for name in re.findall(r"aworld_host_\w+", (ROOT / "docs/deploy.md").read_text()):
        assert f"# TYPE {name}" in text.replace("_total ", " ").replace("_bucket ", " "), name


def test_the_host_answers_to_the_services_names(answers):
    name, namespace = manifest("service.yaml")["metadata"]["name"], manifest("kustomization.yaml")["namespace"]
    suffixes = ("", f".{namespace}", f".{namespace}.svc", f".{namespace}.svc.cluster.local")
    for suffix in suffixes:
        assert answers("/ready", f"{name}{suffix}:8000")[0] == 200, suffix
    assert answers("/ready", "evil.example.org")[0] == 421


def test_requests_of_a_session_reach_its_host_as_long_as_it_lasts():
    spec, options = manifest("service.yaml")["spec"], served(container()["args"])
    assert spec["sessionAffinity"] == "ClientIP"
    assert spec["sessionAffinityConfig"]["clientIP"]["timeoutSeconds"] >= options["max_age"] == HostSettings().max_age_s
    assert spec.get("type", "ClusterIP") == "ClusterIP", "others may hide the client's address"


def test_a_pod_is_killed_only_after_its_host_has_drained():
    options = served(container()["args"])
    assert pod()["terminationGracePeriodSeconds"] >= options["drain"] + 30
    rolling = deployment()["spec"]["strategy"]["rollingUpdate"]
    assert rolling["maxUnavailable"] == 0 and rolling["maxSurge"] >= 1


def test_there_is_room_before_more_hosts_are_asked_for():
    hpa, options = manifest("hpa.yaml")["spec"], served(container()["args"])
    target = int(hpa["metrics"][0]["pods"]["target"]["averageValue"])
    assert 0.5 * options["max_sessions"] <= target < options["max_sessions"]
    assert hpa["minReplicas"] >= 2 and hpa["maxReplicas"] > hpa["minReplicas"]
    assert hpa["behavior"]["scaleDown"]["stabilizationWindowSeconds"] >= options["drain"]
    assert manifest("pdb.yaml")["spec"]["maxUnavailable"] < hpa["minReplicas"]


# ---- safety -------------------------------------------------------------------------------------------------------


def test_the_pod_can_do_little():
    security, own = pod()["securityContext"], container()["securityContext"]
    uid, gid = values(stages()[-1], "USER")[0].split(":")
    assert security["runAsNonRoot"] and (security["runAsUser"], security["runAsGroup"]) == (int(uid), int(gid))
    assert own["allowPrivilegeEscalation"] is False and own["readOnlyRootFilesystem"] is True
    assert own["capabilities"] == {"drop": ["ALL"]} and "privileged" not in own
    assert pod()["automountServiceAccountToken"] is False
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod())
    assert {"cpu", "memory"} <= set(container()["resources"]["limits"])
    assert security["seccompProfile"]["type"] == "Localhost" and served(container()["args"])["require_sandbox"]


def test_without_run_python_it_needs_no_profile_and_starts_all_the_same(without_run_python):
    deployments = [it for documents in without_run_python for it in of_kind("Deployment", documents)]
    assert len(deployments) == 3
    for it in deployments:
        changed = it["spec"]["template"]["spec"]
        assert changed["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert "appArmorProfile" not in changed["securityContext"]
        before, after = served(container()["args"]), served(changed["containers"][0]["args"])
        assert before.pop("require_sandbox") and not after.pop("require_sandbox")
        assert set(before.pop("allowed_host")) <= set(after.pop("allowed_host")) and before == after


def test_what_is_written_is_mounted():
    mounts = {one["mountPath"]: one for one in container()["volumeMounts"]}
    volumes = {one["name"]: one for one in pod()["volumes"]}
    assert "sizeLimit" in volumes[mounts["/tmp"]["name"]]["emptyDir"]
    assert "/tmp" in dict(part.split("=") for part in values(stages()[-1], "ENV")[0].split()).values()


def test_the_secret_is_a_file_of_the_secret():
    (variable,) = container()["env"]
    (mount,) = [one for one in container()["volumeMounts"] if variable["value"].startswith(one["mountPath"] + "/")]
    (volume,) = [one["secret"] for one in pod()["volumes"] if one["name"] == mount["name"]]
    secret = manifest("secret.yaml")
    assert variable["name"] == credentials.SECRET_FILE_VAR and mount["readOnly"]
    assert volume["secretName"] == secret["metadata"]["name"]
    assert variable["value"].removeprefix(mount["mountPath"] + "/") in secret["stringData"]
    assert (
        volume["defaultMode"] == 0o440 and pod()["securityContext"]["fsGroup"] == pod()["securityContext"]["runAsGroup"]
    )


def test_the_placeholder_cannot_be_used(tmp_path):
    (placeholder,) = manifest("secret.yaml")["stringData"].values()
    (tmp_path / "secret").write_text(placeholder)
    with pytest.raises(ConfigError, match="at least 32 characters"):
        credentials.find_secrets({credentials.SECRET_FILE_VAR: str(tmp_path / "secret")})
    with pytest.raises(ConfigError):
        credentials.mint(placeholder, [credentials.ALL], 60)


def test_nothing_goes_out_and_only_the_named_come_in():
    spec = manifest("networkpolicy.yaml")["spec"]
    assert set(spec["policyTypes"]) == {"Ingress", "Egress"} and spec["egress"] == []
    (rule,) = spec["ingress"]
    assert rule["from"] and all(peer for peer in rule["from"])


def test_manifests_hold_no_secret_but_the_placeholder():
    for name, it in manifests().items():
        it = copy.deepcopy(it)
        if name == "secret.yaml":
            it["stringData"] = {}
        assert not re.search(r"\b[0-9a-f]{32,}\b|eyJ[A-Za-z0-9_-]{10,}", yaml.safe_dump(it)), name


# ---- hosts apart --------------------------------------------------------------------------------------------------


def test_hosts_apart_have_an_address_each(apart):
    services, deployments = of_kind("Service", apart), of_kind("Deployment", apart)
    assert len(services) == len(deployments) == 2 and not of_kind("HorizontalPodAutoscaler", apart)
    for service_, deployment_ in zip(services, deployments, strict=True):
        labels = deployment_["spec"]["template"]["metadata"]["labels"]
        others = [it["spec"]["template"]["metadata"]["labels"] for it in deployments if it is not deployment_]
        selector = service_["spec"]["selector"]
        assert selector.items() <= labels.items() and not any(selector.items() <= one.items() for one in others)
        assert service_["spec"]["publishNotReadyAddresses"] is True, "or nobody reaches a host that drains"
        assert deployment_["spec"]["replicas"] == 1 and deployment_["spec"]["strategy"] == {"type": "Recreate"}
        name, namespace = service_["metadata"]["name"], service_["metadata"]["namespace"]
        allowed = served(deployment_["spec"]["template"]["spec"]["containers"][0]["args"])["allowed_host"]
        assert {name, f"{name}.{namespace}", f"{name}.{namespace}.svc.cluster.local"} <= set(allowed)
        assert f"http://{name}.{namespace}:8000/mcp" in (ROOT / "docs/deploy.md").read_text()


def test_hosts_apart_let_in_whom_the_others_let_in(everything, apart):
    (rules,) = [it["spec"]["ingress"] for it in of_kind("NetworkPolicy", everything)]
    assert [it["spec"]["ingress"] for it in of_kind("NetworkPolicy", apart)] == [rules, rules]
    assert all(it["spec"]["egress"] == [] for it in of_kind("NetworkPolicy", [*everything, *apart]))
