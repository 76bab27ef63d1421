"""The manifests for platforms that start Spark themselves, against the schemas of those platforms; nothing is run on them."""

from __future__ import annotations

import json
import re
import subprocess
import zipfile
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import botocore.session
import pyspark
import pytest
import yaml
from botocore.model import Shape
from botocore.validate import ParamValidator

from streaming.config.load import load_config
from streaming.config.model import Config

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
SCHEMA = Path(__file__).parent / "schemas" / "sparkapplication-v1beta2.json"
JOB = DEPLOY / "spark" / "queuewatch_job.py"
CONNECTOR = [line.split()[1] for line in (ROOT / "streaming" / "spark" / "spark-kafka.sha256").read_text().splitlines()]
SPARK = re.search(r"^pyspark==(\S+)", (ROOT / "requirements.txt").read_text(), re.MULTILINE)
MANAGED = ("emr-serverless/queuewatch.yaml", "databricks/queuewatch.yaml")
PASSWORDS = {"source": "QUEUEWATCH_SOURCE__KAFKA__SASL_PASSWORD", "signal_log": "QUEUEWATCH_SIGNAL_LOG__KAFKA__SASL_PASSWORD"}


def _read(file: str) -> Any:
    return yaml.safe_load((DEPLOY / file).read_text())


def _config(file: str) -> Config:
    return load_config(DEPLOY / file, env=dict.fromkeys(PASSWORDS.values(), "secret") if "emr" in file else {})


@pytest.mark.parametrize("file", ["spark-operator/queuewatch.yaml", *MANAGED])
def test_the_checkpoint_outlives_the_driver_and_spark_keeps_the_state(file: str) -> None:
    """The driver's own disk is gone when it is restarted elsewhere; nothing else is written to it."""
    config = _config(file)
    assert urlsplit(config.spark.checkpoint_dir).scheme in {"hdfs", "s3", "s3a"}
    assert config.signal_log.path is None
    assert config.signal_log.kafka is not None
    assert config.quarantine.path is None


# --- the Kubernetes Spark operator

APPLICATION = _read("spark-operator/sparkapplication.yaml")


def _strict(schema: Any) -> Any:
    """Return the schema with unknown fields as errors: the API server drops them silently."""
    if isinstance(schema, list):
        return [_strict(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    strict = {name: _strict(part) for name, part in schema.items()}
    if isinstance(schema.get("properties"), dict) and not schema.get("x-kubernetes-preserve-unknown-fields"):
        strict.setdefault("additionalProperties", False)
    return strict


def _complaints(application: Any) -> list[str]:
    validation = pytest.importorskip("jsonschema", reason="the package jsonschema is not installed")
    schema = _strict(json.loads(SCHEMA.read_text()))
    schema["properties"]["metadata"] = {"type": "object"}
    return [error.message for error in validation.Draft202012Validator(schema).iter_errors(application)]


def test_the_operator_accepts_the_application() -> None:
    assert _complaints(APPLICATION) == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("spec", "restartPolicy", "type"), "Sometimes"),
        (("spec", "driver", "port"), 9400),
        (("spec", "executor", "cores"), "two"),
        (("spec", "mode"), "local"),
    ],
)
def test_the_operator_s_schema_refuses_mistakes(path: tuple[str, ...], value: object) -> None:
    """A value that is not in its list, a field that does not exist, a wrong type."""
    wrong = json.loads(json.dumps(APPLICATION))
    part = wrong
    for name in path[:-1]:
        part = part[name]
    part[path[-1]] = value
    assert len(_complaints(wrong)) == 1


@pytest.mark.parametrize("role", ["driver", "executor"])
def test_kubernetes_accepts_the_pod_templates(role: str) -> None:
    """The operator's schema leaves them to Kubernetes. The container has the name that the operator passes to Spark."""
    validate = pytest.importorskip("kubernetes_validate", reason="the package kubernetes-validate is not installed")
    template = APPLICATION["spec"][role]["template"]
    validate.validate({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, **template}, "1.32", strict=True)
    (container,) = template["spec"]["containers"]
    assert container["name"] == f"spark-kubernetes-{role}"
    assert template["spec"]["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_the_operator_s_application_is_one_that_never_ends_and_runs_the_tested_release() -> None:
    spec = APPLICATION["spec"]
    assert SPARK is not None
    assert spec["sparkVersion"] == SPARK[1]
    assert spec["restartPolicy"]["type"] == "Always"
    assert sorted(Path(jar).name for jar in spec["deps"]["jars"]) == sorted(CONNECTOR)
    assert spec["sparkConf"]["spark.authenticate"] == "true"
    assert spec["sparkConf"]["spark.network.crypto.enabled"] == "true"
    config = _config("spark-operator/queuewatch.yaml")
    assert config.spark.shards >= spec["executor"]["instances"] * spec["executor"]["cores"]


def test_spark_knows_the_operator_s_settings() -> None:
    """Each name is in Spark's own classes: Spark ignores a setting that it does not know."""
    jars = Path(pyspark.__file__).parent / "jars"
    known = b""
    for module in ("spark-core", "spark-network-common", "spark-kubernetes"):
        (jar,) = jars.glob(f"{module}_*.jar")
        with zipfile.ZipFile(jar) as classes:
            known += b"".join(
                classes.read(name) for name in classes.namelist() if re.search(r"(config|Config|Conf)[$\w/]*\.class", name)
            )
    for name in APPLICATION["spec"]["sparkConf"]:
        assert name.encode() in known, name


def test_prometheus_reaches_the_operator_s_driver() -> None:
    """The service selects the driver by labels that the operator sets, and has those which the ServiceMonitor selects."""
    service = _read("spark-operator/service.yaml")
    assert service["spec"]["selector"] == {
        "sparkoperator.k8s.io/app-name": APPLICATION["metadata"]["name"],
        "spark-role": "driver",
    }
    monitor = _read("kubernetes/components/monitoring/servicemonitor.yaml")["spec"]
    assert monitor["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    (port,) = APPLICATION["spec"]["driver"]["template"]["spec"]["containers"][0]["ports"]
    assert service["spec"]["ports"][0]["targetPort"] == port["name"] == monitor["endpoints"][0]["port"]
    http = _config("spark-operator/queuewatch.yaml").http
    assert (http.host, http.port) == ("0.0.0.0", port["containerPort"])


def test_the_operator_s_image_has_the_job_and_a_pinned_entry_point() -> None:
    dockerfile = (DEPLOY / "spark-operator" / "Dockerfile").read_text()
    assert SPARK is not None
    assert f"FROM spark:{SPARK[1]}-" in dockerfile
    assert f"COPY {JOB.name} /opt/queuewatch/" in dockerfile
    assert APPLICATION["spec"]["mainApplicationFile"] == f"local:///opt/queuewatch/{JOB.name}"
    assert re.findall(r"^USER (.+)$", dockerfile, re.MULTILINE)[-1] == "10001:10001"


# --- EMR Serverless


@pytest.mark.parametrize(("file", "operation"), [("application.yaml", "CreateApplication"), ("job-run.yaml", "StartJobRun")])
def test_emr_serverless_accepts_the_requests(file: str, operation: str) -> None:
    """They match the service's model in botocore: names, types, required fields, lists of values, patterns."""
    shape = _request_of(operation)
    request = _read(f"emr-serverless/{file}")
    report = ParamValidator().validate({"clientToken": "made-by-the-client", **request}, shape)
    assert report.generate_report() == ""
    assert _misfits(request, shape) == []


def _request_of(operation: str) -> Shape:
    shape = botocore.session.get_session().get_service_model("emr-serverless").operation_model(operation).input_shape
    assert shape is not None
    return shape


def _misfits(value: Any, shape: Any, where: str = "") -> list[str]:
    """Return what botocore leaves to the service: strings that are not in their list or do not match their pattern."""
    if shape.type_name == "structure":
        return [fault for name, part in value.items() for fault in _misfits(part, shape.members[name], f"{where}.{name}")]
    if shape.type_name == "list":
        return [fault for part in value for fault in _misfits(part, shape.member, f"{where}[]")]
    if shape.type_name == "map":
        return [fault for part in value.values() for fault in _misfits(part, shape.value, f"{where}{{}}")]
    if shape.type_name != "string":
        return []
    wrong = shape.enum and value not in shape.enum
    pattern = shape.metadata.get("pattern")
    return [f"{where}: {value}"] if wrong or (pattern and not re.fullmatch(pattern, value)) else []


def test_emr_serverless_checks_notice_mistakes() -> None:
    """A mode that does not exist and an id with capital letters pass botocore's own check."""
    shape = _request_of("StartJobRun")
    request = {**_read("emr-serverless/job-run.yaml"), "mode": "FOREVER", "applicationId": "ABC"}
    assert sorted(_misfits(request, shape)) == [".applicationId: ABC", ".mode: FOREVER"]


def test_emr_serverless_runs_a_stream_without_end() -> None:
    run = _read("emr-serverless/job-run.yaml")
    assert run["mode"] == "STREAMING"
    assert run["retryPolicy"]["maxFailedAttemptsPerHour"] > 1
    assert "executionTimeoutMinutes" not in run
    submit = run["jobDriver"]["sparkSubmit"]
    assert submit["entryPoint"].endswith(f"/{JOB.name}")
    properties = run["configurationOverrides"]["applicationConfiguration"][0]["properties"]
    jars = {Path(jar).stem for jar in properties["spark.jars"].split(",")}
    assert jars == {re.sub(r"(-0-10_2\.13)?-\d[\d.]*\.jar$", "", jar) for jar in CONNECTOR}
    assert _config("emr-serverless/queuewatch.yaml").spark.shards >= int(properties["spark.executor.cores"])
    for variable in PASSWORDS.values():
        assert properties[f"spark.emr-serverless.driverEnv.{variable}"].startswith("EMR.secret@")


@pytest.mark.parametrize("file", MANAGED)
def test_signals_are_pushed_where_prometheus_cannot_reach_the_driver(file: str) -> None:
    assert _config(file).section("alertmanager") is not None


# --- Databricks

JOB_SETTINGS = _read("databricks/databricks.yml")["resources"]["jobs"]["queuewatch"]


@pytest.mark.slow
def test_databricks_accepts_the_job() -> None:
    """Its SDK reads the job and gives it back unchanged: it drops unknown names, and values that are not in their lists."""
    jobs = pytest.importorskip("databricks.sdk.service.jobs", reason="the package databricks-sdk is not installed")
    assert jobs.JobSettings.from_dict(JOB_SETTINGS).as_dict() == JOB_SETTINGS
    wrong = {**JOB_SETTINGS, "continuous": {"pause_status": "SOMETIMES"}, "restart": True}
    assert jobs.JobSettings.from_dict(wrong).as_dict() == {**JOB_SETTINGS, "continuous": {}}


def test_databricks_keeps_one_run_going_on_a_cluster_of_its_own() -> None:
    assert JOB_SETTINGS["continuous"]["pause_status"] == "UNPAUSED"
    assert JOB_SETTINGS["max_concurrent_runs"] == 1
    (task,) = JOB_SETTINGS["tasks"]
    assert (DEPLOY / "databricks" / task["spark_python_task"]["python_file"]).resolve() == JOB
    cluster = JOB_SETTINGS["job_clusters"][0]["new_cluster"]
    assert cluster["data_security_mode"] == "DATA_SECURITY_MODE_DEDICATED"
    volume = Path(cluster["init_scripts"][0]["volumes"]["destination"]).parent
    assert task["spark_python_task"]["parameters"] == ["run", "--config", str(volume / "queuewatch.yaml")]


def test_databricks_needs_no_login_that_its_connector_does_not_know() -> None:
    """A certificate is given by files and settings, other logins by the name of a class."""
    kafka = _config("databricks/queuewatch.yaml").source.kafka
    assert kafka is not None
    assert (kafka.security_protocol, kafka.sasl_mechanism) == ("SSL", None)
    assert "sasl.jaas.config" not in kafka.java_options()


def test_databricks_keeps_its_own_spark(tmp_path: Path) -> None:
    """The script installs what is pinned except pyspark, by hash, and both wheels without their dependencies."""
    (tmp_path / "requirements.txt").write_text((ROOT / "requirements.txt").read_text())
    for wheel in ("queuewatch-0.1.0-py3-none-any.whl", "queuewatch_service-0.1.0-py3-none-any.whl"):
        (tmp_path / wheel).touch()
    script = tmp_path / "install.sh"
    script.write_text((DEPLOY / "databricks" / "install.sh").read_text())
    pip = tmp_path / "pip"
    pip.write_text('#!/bin/sh\necho "$@"\nwhile [ $# -gt 1 ]; do shift; done\n[ "${1##*.}" = whl ] || cat "$1"\n')
    pip.chmod(0o755)
    done = subprocess.run(
        ["sh", script], env={"PATH": "/usr/bin:/bin", "PIP": str(pip)}, capture_output=True, text=True, check=True
    )
    pinned = re.findall(r"^(\S+)==", (ROOT / "requirements.txt").read_text(), re.MULTILINE)
    assert re.findall(r"^(\S+)==", done.stdout, re.MULTILINE) == [name for name in pinned if name != "pyspark"]
    commands = [line for line in done.stdout.splitlines() if line.startswith("install")]
    assert [command.split()[:2] for command in commands] == [["install", "--no-deps"]] * 2
    assert "--require-hashes" in commands[0]
    assert commands[1].count(".whl") == 2
