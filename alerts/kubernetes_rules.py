"""The same rules as a PrometheusRule, for the Prometheus Operator."""

from __future__ import annotations

from typing import Any

from alerts.config import AlertRulesConfig
from alerts.prometheus_rules import rule_groups


def prometheus_rule(config: AlertRulesConfig) -> dict[str, Any]:
    """The custom resource as plain values."""
    meta = config.kubernetes
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": meta.name, "namespace": meta.namespace, "labels": dict(meta.labels)},
        "spec": {"groups": rule_groups(config)},
    }
