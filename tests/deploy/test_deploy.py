"""The deployment files: configurations the service accepts, manifests Kubernetes accepts, an image that runs unprivileged."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from alerts.config import AlertRulesConfig
from alerts.objectives import Objective
from alerts.rules import PROMETHEUS_RULE, generate, render
from queuewatch.transports import Transport
from sinks.http.access import Access
from sinks.http.errors import ApiError
from sources.activemq.config import ActiveMQCollectorConfig
from streaming.cli.collecting import destination_of, section_of
from streaming.config.check import summary
from streaming.config.errors import ConfigErrors
from streaming.config.load import load_config
from streaming.spark.runtime import CONNECTOR_POM
from tests.docs.test_client_pages import blocks
from tests.services.prometheus import Binaries

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
CONFIGS = sorted(
    path for path in DEPLOY.rglob("queuewatch.yaml") if "grafana" not in path.parts and path != DEPLOY / "queuewatch.yaml"
)
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]
DOCKERFILE = (DEPLOY / "Dockerfile").read_text()


@pytest.mark.parametrize("file", CONFIGS, ids=lambda f: str(f.relative_to(DEPLOY)))
def test_the_service_accepts_every_configuration(file: Path) -> None:
    """`queuewatch check-config` would accept them too; each summary names its source."""
    passwords = {f"QUEUEWATCH_{section}__KAFKA__SASL_PASSWORD": "secret" for section in ("SOURCE", "SIGNAL_LOG")}
    said = list(summary(load_config(file, env=passwords if "sasl_username" in file.read_text() else {})))
    assert any(line.startswith("reads Kafka topics") for line in said)


def test_there_are_configurations_to_check() -> None:
    """They are those of compose, the Kubernetes base and the example, the Spark operator and the managed services."""
    assert len(CONFIGS) == 6


def test_prometheus_accepts_the_sample(prometheus_binaries: Binaries) -> None:
    """Its job name is the one in the alert rules."""
    done = subprocess.run(
        [prometheus_binaries.promtool, "check", "config", str(DEPLOY / "prometheus.yml")],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    jobs = [job["job_name"] for job in yaml.safe_load((DEPLOY / "prometheus.yml").read_text())["scrape_configs"]]
    assert jobs == [AlertRulesConfig().job]


# --- the image


def test_the_image_runs_as_an_unprivileged_user() -> None:
    """The last user is a number other than root's, so that Kubernetes can check it."""
    users = re.findall(r"^USER (.+)$", DOCKERFILE, re.MULTILINE)
    assert users
    assert re.fullmatch(r"[1-9]\d+:[1-9]\d+", users[-1])
    assert DOCKERFILE.rindex("USER ") > DOCKERFILE.rindex("FROM ")


def test_the_image_copies_existing_files() -> None:
    """Every path copied from the build context exists and is not excluded by the dockerignore file."""
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    allowed = {line[1:] for line in ignored if line.startswith("!")}
    copied = [word for line in re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE, re.MULTILINE) for word in line.split()[:-1]]
    assert copied
    for path in copied:
        assert (ROOT / path).exists(), path
        assert path.split("/")[0] in allowed, path


def test_the_image_installs_by_hash_and_brings_the_connector() -> None:
    """The pom is the one the package uses, and nothing is installed without a hash."""
    assert str(CONNECTOR_POM.relative_to(ROOT)) in DOCKERFILE
    assert "--require-hashes" in DOCKERFILE
    assert "--hash=sha256:" in (ROOT / "requirements.txt").read_text()
    assert not re.search(r"^ADD |curl |wget ", DOCKERFILE, re.MULTILINE)


def test_the_image_brings_java_s_class_archive() -> None:
    """It is made after everything that Java reads is in its place, in the cache that the service uses, while that is writable."""
    made = DOCKERFILE.index("python -m streaming.spark.class_archive")
    assert DOCKERFILE.index("ENV ") < DOCKERFILE.index("QUEUEWATCH_CACHE=") < DOCKERFILE.index("pip install") < made
    assert DOCKERFILE.index("find_java") < made < DOCKERFILE.rindex("USER ")


def test_base_images_are_pinned() -> None:
    """No tag is `latest`; only the image built here is exempt."""
    images = re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)
    images += [service["image"] for service in SERVICES.values() if "image" in service]
    for image in images:
        name, _, tag = image.partition(":")
        assert name == "queuewatch" or re.search(r"\d", tag), image


# --- compose


def test_compose_mounts_existing_files() -> None:
    """A bind mount of a missing file would become an empty folder."""
    for name, service in SERVICES.items():
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            if source.startswith("."):
                assert (DEPLOY / source).exists(), f"{name}: {source}"
            else:
                assert source in COMPOSE["volumes"], f"{name}: {source}"
    for config in COMPOSE["configs"].values():
        assert (DEPLOY / config["file"]).exists()


def test_compose_lets_java_load_libraries_from_tmp() -> None:
    """Docker mounts a tmpfs noexec by default, and RocksDB unpacks its library into /tmp and loads it."""
    for name, service in SERVICES.items():
        for mount in service.get("tmpfs", ()):
            assert "exec" in mount.partition(":")[2].split(","), f"{name}: {mount}"


def test_compose_publishes_to_this_machine_only() -> None:
    """None of these services has authentication."""
    for name, service in SERVICES.items():
        for port in service.get("ports", ()):
            assert port.startswith("127.0.0.1:"), f"{name}: {port}"


def test_compose_has_everything_from_broker_to_dashboard() -> None:
    """Containers of our own image run without privileges."""
    assert {"kafka", "queuewatch", "prometheus", "alertmanager", "grafana"} <= SERVICES.keys()
    for name in ("queuewatch", "collect-sqs", "collect-activemq", "collect-cloudflare"):
        service = SERVICES[name]
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["init"] is True
    topic = next(arg for arg in SERVICES["topics"]["command"] if arg.startswith("--topic="))
    config = load_config(DEPLOY / "compose" / "queuewatch.yaml", env={})
    assert config.source.kafka is not None
    assert config.source.kafka.topics == (topic.removeprefix("--topic="),)


def test_compose_keeps_data_on_volumes() -> None:
    """Each service is configured to write to the folder of its volume, so that `down` and `up` lose nothing."""
    folder = {name: service["volumes"][-1].split(":")[1] for name, service in SERVICES.items() if "volumes" in service}
    assert SERVICES["kafka"]["environment"]["KAFKA_LOG_DIRS"] == folder["kafka"]
    assert f"--storage.tsdb.path={folder['prometheus']}" in SERVICES["prometheus"]["command"]
    assert f"--storage.path={folder['alertmanager']}" in SERVICES["alertmanager"]["command"]
    config = load_config(DEPLOY / "compose" / "queuewatch.yaml", env={})
    assert config.spark.checkpoint_dir.startswith(f"{folder['queuewatch']}/")


@pytest.mark.parametrize("kind", ["sqs", "activemq", "cloudflare"])
def test_a_collector_starts_with_the_variables_on_the_page(kind: str) -> None:
    """The page exports only variables that the profile passes on, and they say what to collect from."""
    [script] = [block for block in blocks("docs/deploying.md", "sh") if f"--profile {kind}" in block]
    part = next(part for part in script.split("\n\n") if f"--profile {kind}" in part)
    exported = dict(
        word.split("=", 1) for line in part.splitlines() if line.startswith("export ") for word in shlex.split(line)[1:]
    )
    service = SERVICES[f"collect-{kind}"]
    assert exported.keys() <= set(service["environment"])
    config = load_config(DEPLOY / "compose" / "queuewatch.yaml", env={name: v.replace("…", "0") for name, v in exported.items()})
    section = section_of(config, kind)
    if kind == "sqs":
        assert "AWS_REGION" in exported
    if isinstance(section, ActiveMQCollectorConfig):
        assert section.username
        assert not any("localhost" in address for address in section.addresses)


def test_grafana_is_provisioned_with_the_dashboards() -> None:
    """The data source exists, and the provider's folder is the mounted one."""
    folder = DEPLOY / "compose" / "grafana"
    source = yaml.safe_load((folder / "datasources" / "prometheus.yaml").read_text())["datasources"][0]
    assert source["url"] == "http://prometheus:9090"
    provider = yaml.safe_load((folder / "dashboards" / "queuewatch.yaml").read_text())["providers"][0]
    mounted = [v for v in SERVICES["grafana"]["volumes"] if v.startswith("../alerts/generated/dashboards:")]
    assert mounted == [f"../alerts/generated/dashboards:{provider['options']['path']}:ro"]
    home = SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert (ROOT / "alerts" / "generated" / "dashboards" / Path(home).name).exists()


@pytest.mark.skipif(
    subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode != 0
    if shutil.which("docker")
    else True,
    reason="docker compose is not installed",
)
def test_compose_accepts_the_file() -> None:
    """`docker compose config` reports no error."""
    done = subprocess.run(
        ["docker", "compose", "-f", str(DEPLOY / "compose.yaml"), "--profile", "*", "config", "--quiet"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr


# --- Kubernetes


def _kustomize(folder: str) -> list[dict[str, Any]]:
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed")
    done = subprocess.run(
        ["kubectl", "kustomize", str(DEPLOY / "kubernetes" / folder)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


@pytest.fixture(scope="module")
def example() -> list[dict[str, Any]]:
    """All manifests that the example installs."""
    return _kustomize("overlays/example")


def _one(documents: list[dict[str, Any]], kind: str, name: str = "queuewatch") -> dict[str, Any]:
    found = [d for d in documents if d["kind"] == kind and d["metadata"]["name"].startswith(name)]
    assert found, f"no {kind} {name}"
    return found[0]


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["base", "overlays/example", "overlays/proxied-app"])
def test_kubernetes_accepts_the_manifests(folder: str) -> None:
    """They match the schemas of a Kubernetes release; unknown fields are errors."""
    validate = pytest.importorskip("kubernetes_validate", reason="the package kubernetes-validate is not installed")
    documents = _kustomize(folder)
    for document in documents:
        if not document["apiVersion"].startswith("monitoring.coreos.com"):
            validate.validate(document, "1.32", strict=True)
    assert len(documents) >= (2 if "app" in folder else 5)


def test_pods_run_unprivileged(example: list[dict[str, Any]]) -> None:
    """They meet the `restricted` pod security standard, and only their volumes are writable."""
    pods = [d["spec"]["template"]["spec"] for d in example if d["kind"] in ("StatefulSet", "Deployment")]
    assert len(pods) == 4
    for pod in pods:
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["automountServiceAccountToken"] is False
        assert pod["enableServiceLinks"] is False
        for container in pod["containers"]:
            context = container["securityContext"]
            assert context["allowPrivilegeEscalation"] is False
            assert context["readOnlyRootFilesystem"] is True
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert container["resources"]["requests"]
            assert container["resources"]["limits"]["memory"]
            assert container["image"] == "your-registry/queuewatch:0.1.0"


def test_no_disruption_budget_keeps_a_node_from_being_drained(example: list[dict[str, Any]]) -> None:
    """One for a single pod either says nothing, or keeps a job that is not ready, for want of events, on its node for ever."""
    assert [one["kind"] for one in example if one["kind"] == "PodDisruptionBudget"] == []


def test_selectors_match_the_pods_labels(example: list[dict[str, Any]]) -> None:
    """This covers service, network policies and service monitor."""
    job = _one(example, "StatefulSet")["spec"]["template"]
    labels = job["metadata"]["labels"]

    def matches(selector: dict[str, str]) -> bool:
        return all(labels.get(name) == value for name, value in selector.items())

    service = _one(example, "Service")
    assert matches(service["spec"]["selector"])
    assert matches(_one(example, "NetworkPolicy")["spec"]["podSelector"]["matchLabels"])
    monitor = _one(example, "ServiceMonitor")["spec"]
    assert monitor["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert monitor["endpoints"][0]["port"] == service["spec"]["ports"][0]["name"]
    # The alert rules use this job name.
    assert service["metadata"]["labels"][monitor["jobLabel"]] == AlertRulesConfig().job
    for kind in ("sqs", "activemq", "cloudflare"):
        pod = _one(example, "Deployment", f"queuewatch-collector-{kind}")["spec"]["template"]
        policy = _one(example, "NetworkPolicy", f"queuewatch-collector-{kind}")
        assert policy["spec"]["podSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
        assert pod["spec"]["containers"][0]["args"][:2] == ["collect", kind]


KAFKA_SECRET = {"username": "secret-user", "password": "secret-password"}


def _pods(documents: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The only container of each pod, by what it runs."""
    pods = [d["spec"]["template"]["spec"] for d in documents if d["kind"] in ("StatefulSet", "Deployment")]
    containers = [container for pod in pods for container in pod["containers"]]
    return {" ".join(c["args"][: 2 if c["args"][0] == "collect" else 1]): c for c in containers}


def test_a_login_at_kafka_needs_one_secret(example: list[dict[str, Any]], tmp_path: Path) -> None:
    """Every pod accepts the page's configuration once the secret is there. Without a login the secret is optional."""
    [source] = [block for block in blocks("docs/deploying.md", "yaml") if "sasl_username" in block]
    settings = yaml.safe_load((DEPLOY / "kubernetes" / "overlays" / "example" / "queuewatch.yaml").read_text())
    file = tmp_path / "queuewatch.yaml"
    file.write_text(yaml.safe_dump(settings | yaml.safe_load(source)))
    with pytest.raises(ConfigErrors, match="a login needs a password"):
        load_config(file, env={})
    containers = _pods(example)
    assert containers.keys() == {"run", "collect sqs", "collect activemq", "collect cloudflare"}
    for runs, container in containers.items():
        refs = {v["name"]: v["valueFrom"]["secretKeyRef"] for v in container["env"]}
        refs = {name: ref for name, ref in refs.items() if ref["name"] == "queuewatch-kafka"}
        assert all(ref["optional"] is True for ref in refs.values())
        config = load_config(file, env={name: KAFKA_SECRET[ref["key"]] for name, ref in refs.items()})
        assert config.source.kafka is not None
        assert config.source.kafka.password() == KAFKA_SECRET["password"]
        if runs != "run":
            # `collect.to` is not set: the login is that of `source.kafka`. If it is set, these two are used.
            assert isinstance(destination_of(config, None), Transport)
            assert {refs["QUEUEWATCH_KAFKA_USERNAME"]["key"], refs["QUEUEWATCH_KAFKA_PASSWORD"]["key"]} == KAFKA_SECRET.keys()
    [create] = [block for block in blocks("docs/deploying.md", "sh") if "create secret generic queuewatch-kafka" in block]
    assert set(re.findall(r"--from-\w+=(\w+)=", create)) == KAFKA_SECRET.keys()


def test_pods_may_reach_the_brokers_of_the_configurations(example: list[dict[str, Any]]) -> None:
    """Whatever ports the shipped configurations and the page name for Kafka, every network policy lets them through."""
    texts = [file.read_text() for file in CONFIGS] + [(ROOT / "docs" / "deploying.md").read_text()]
    named = {int(port) for text in texts for port in re.findall(r"bootstrap_servers: \[[^\]]*:(\d+)\]", text)}
    assert {9092, 9094, 9096} <= named
    policies = [d for d in example if d["kind"] == "NetworkPolicy" and "Egress" in d["spec"]["policyTypes"]]
    assert len(policies) == 4
    for policy in policies:
        open_ports = {entry["port"] for rule in policy["spec"]["egress"] for entry in rule["ports"]}
        assert named <= open_ports, policy["metadata"]["name"]


def test_the_sqs_collector_may_reach_the_credentials_of_its_role(example: list[dict[str, Any]]) -> None:
    """Those of IRSA come from the AWS API, those of EKS Pod Identity from an agent at botocore's address for it."""
    policy = _one(example, "NetworkPolicy", "queuewatch-collector-sqs")["spec"]["egress"]
    [to_agent] = [rule for rule in policy if {"port": 80, "protocol": "TCP"} in rule["ports"]]
    reached = {address["ipBlock"]["cidr"].partition("/")[0] for address in to_agent["to"]}
    assert reached == {"169.254.170.23", "fd00:ec2::23"}


def test_spark_uses_the_cores_that_the_pod_requests(example: list[dict[str, Any]]) -> None:
    """Without a limit on cores, `local[*]` is all of a node's, and the workers of a large one exceed the pod's memory."""
    [container] = _one(example, "StatefulSet")["spec"]["template"]["spec"]["containers"]
    cores = int(container["resources"]["requests"]["cpu"])
    for folder in ("base", "overlays/example"):
        spark = load_config(DEPLOY / "kubernetes" / folder / "queuewatch.yaml", env={}).spark
        assert (spark.master, spark.shards) == (f"local[{cores}]", cores)


def test_the_service_goes_by_the_names_on_the_page(example: list[dict[str, Any]]) -> None:
    """Those of the cluster, and the public one with `allowed_hosts`; other namespaces are admitted by one more policy."""
    page = (ROOT / "docs" / "deploying.md").read_text()
    table = page.partition("### Who can reach the service")[2].partition("\n\nThe short form")[0]
    names = re.findall(r"https?://([\w.-]+)", table)
    service = _one(example, "Service")["metadata"]
    inside = [service["name"], f"{service['name']}.{service['namespace']}.svc"]
    assert names == [*inside, "queuewatch.example.org"]
    http = load_config(DEPLOY / "kubernetes" / "overlays" / "example" / "queuewatch.yaml", env={}).http
    for name in (*names, f"{inside[1]}.cluster.local:9400"):
        Access(hosts=http.allowed_hosts).check("/api/v1/events", name, "")
    with pytest.raises(ApiError, match=r"queuewatch\.queuewatch"):
        Access(hosts=http.allowed_hosts).check("/api/v1/events", "queuewatch.queuewatch", "")
    callers = _one(example, "NetworkPolicy", "queuewatch-callers")["spec"]
    pod = _one(example, "StatefulSet")["spec"]["template"]["metadata"]["labels"]
    assert callers["podSelector"]["matchLabels"].items() <= pod.items()
    [expression] = callers["ingress"][0]["from"][0]["namespaceSelector"]["matchExpressions"]
    assert all(f"`{namespace}`" in page for namespace in expression["values"])


def test_probes_use_the_right_endpoints(example: list[dict[str, Any]]) -> None:
    """Liveness means that the process works, readiness that data flows. A slow start is not killed."""
    container = _one(example, "StatefulSet")["spec"]["template"]["spec"]["containers"][0]
    assert container["livenessProbe"]["httpGet"]["path"] == "/-/healthy"
    assert container["readinessProbe"]["httpGet"]["path"] == "/-/ready"
    startup = container["startupProbe"]
    assert startup["periodSeconds"] * startup["failureThreshold"] >= 120


def test_a_job_that_is_not_ready_is_reached_and_replaced(example: list[dict[str, Any]]) -> None:
    """It is not ready before the first event, which may have to come through the service; nor with a wrong configuration."""
    operated = yaml.safe_load((DEPLOY / "spark-operator" / "service.yaml").read_text())
    for service in (_one(example, "Service"), operated):
        assert service["spec"]["publishNotReadyAddresses"] is True
    assert _one(example, "StatefulSet")["spec"]["podManagementPolicy"] == "Parallel"


def test_rules_and_dashboards_are_installed(example: list[dict[str, Any]]) -> None:
    """Rules and scrape have the label that the example's Prometheus selects; a config map has the dashboards."""
    rule = _one(example, "PrometheusRule")
    for selected in (rule, _one(example, "ServiceMonitor")):
        assert selected["metadata"]["labels"]["release"] == "kube-prometheus-stack"
    assert sum(len(group["rules"]) for group in rule["spec"]["groups"]) > 25
    boards = next(d for d in example if d["kind"] == "ConfigMap" and "grafana_dashboard" in d["metadata"].get("labels", {}))
    assert len(boards["data"]) == 6
    assert sum(map(len, boards["data"].values())) < 1_000_000, "a config map holds at most a mebibyte"


@pytest.mark.slow
def test_large_objects_are_applied_on_the_server() -> None:
    """`kubectl apply` alone writes each object into an annotation of at most 262,144 bytes; with many objectives that fails."""
    objectives = {f"orders-{n}": Objective(queues=f"orders-{n}", within_s=30) for n in range(20)}
    rule = yaml.safe_load(render(AlertRulesConfig(objectives=objectives))[PROMETHEUS_RULE])
    assert len(json.dumps(rule)) > 262_144
    texts = [
        path.read_text() for folder in (ROOT / "docs", DEPLOY) for path in folder.rglob("*") if path.suffix in (".md", ".yaml")
    ]
    applied = re.findall(r"kubectl apply (.*)-k (\S+)", "\n".join(texts))
    for options, folder in applied:
        assert "--server-side" in options or folder == "deploy/kubernetes/overlays/proxied-app", folder
    assert len(applied) == 5


@pytest.mark.slow
def test_alerts_link_to_the_configured_addresses(tmp_path: Path) -> None:
    """As the page says: generated with the overlay's configuration, and used in place of the default folder."""
    here = DEPLOY / "kubernetes" / "overlays" / "example"
    [page] = [block for block in blocks("docs/deploying.md", "yaml") if block.startswith("alerts:")]
    config = load_config(here / "queuewatch.yaml", env={})
    assert yaml.safe_load((here / "queuewatch.yaml").read_text())["alerts"] == yaml.safe_load(page)["alerts"]
    copy = tmp_path / "deploy" / "kubernetes"
    shutil.copytree(DEPLOY / "kubernetes", copy)
    generate(copy / "overlays" / "example" / "rules", config.section("alerts"))
    file = copy / "overlays" / "example" / "kustomization.yaml"
    default = "../../../../alerts/generated"
    assert default in file.read_text()
    assert f"replace `{default}` by `rules`" in (ROOT / "docs" / "deploying.md").read_text()
    file.write_text(file.read_text().replace(default, "rules"))
    documents = _kustomize(str(copy / "overlays" / "example"))
    links = [
        rule["annotations"][name]
        for group in _one(documents, "PrometheusRule")["spec"]["groups"]
        for rule in group["rules"]
        for name in ("runbook_url", "dashboard_url")
        if name in rule.get("annotations", {})
    ]
    assert len(links) > 50
    assert all(link.startswith(("https://queuewatch.example.org/runbook#", "https://grafana.example.org/")) for link in links)
    assert "localhost" not in json.dumps([d for d in documents if "grafana_dashboard" in d["metadata"].get("labels", {})])


@pytest.mark.slow
def test_with_https_probes_and_scrape_use_it(tmp_path: Path) -> None:
    """A probe without TLS fails at a port that speaks it, and Kubernetes kills the pod."""
    shutil.copytree(DEPLOY, tmp_path / "deploy")
    shutil.copytree(ROOT / "alerts" / "generated", tmp_path / "alerts" / "generated")
    overlay = tmp_path / "deploy" / "kubernetes" / "overlays" / "example"
    file = overlay / "kustomization.yaml"
    monitoring = "  - ../../components/monitoring\n"
    file.write_text(file.read_text().replace(monitoring, f"{monitoring}  - ../../components/tls\n"))
    documents = _kustomize(str(overlay))
    pod = _one(documents, "StatefulSet")["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert {container[f"{kind}Probe"]["httpGet"]["scheme"] for kind in ("startup", "liveness", "readiness")} == {"HTTPS"}
    [folder] = [mount["mountPath"] for mount in container["volumeMounts"] if mount["name"] == "tls"]
    assert f"cert_file: {folder}/tls.crt" in (ROOT / "docs" / "deploying.md").read_text()
    assert any(volume.get("secret", {}).get("secretName") == "queuewatch-tls" for volume in pod["volumes"])
    [endpoint] = _one(documents, "ServiceMonitor")["spec"]["endpoints"]
    assert endpoint["scheme"] == "https"
    validate = pytest.importorskip("kubernetes_validate", reason="the package kubernetes-validate is not installed")
    validate.validate(_one(documents, "StatefulSet"), "1.32", strict=True)


def test_data_survives_the_pod(example: list[dict[str, Any]]) -> None:
    """Checkpoint, signal log and quarantine are on the claimed volume."""
    state = _one(example, "StatefulSet")["spec"]
    mounts = {m["name"]: m["mountPath"] for m in state["template"]["spec"]["containers"][0]["volumeMounts"]}
    claimed = mounts[state["volumeClaimTemplates"][0]["metadata"]["name"]]
    for file in (path for path in CONFIGS if path.parts[len(DEPLOY.parts)] in ("compose", "kubernetes")):
        config = load_config(file, env={})
        kept = [config.spark.checkpoint_dir, str(config.signal_log.path), str(config.quarantine.path)]
        assert all(path.startswith(f"{claimed}/") for path in kept)
