"""The Prometheus rules as a PrometheusRule, for the Prometheus Operator."""

from __future__ import annotations

from typing import Any

from alerts.config import AlertRulesConfig
from alerts.entry import DASHBOARD_NAMES
from alerts.prometheus_rules import dashboard_uid, rule_groups


def prometheus_rule(config: AlertRulesConfig) -> dict[str, Any]:
    """Return the custom resource as plain values."""
    meta = config.kubernetes
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": meta.name, "namespace": meta.namespace, "labels": dict(meta.labels)},
        "spec": {"groups": rule_groups(config)},
    }


def kustomization(config: AlertRulesConfig) -> dict[str, Any]:
    """Return the kustomize base: the PrometheusRule, and the dashboards in the form that Grafana's sidecar finds."""
    meta = config.kubernetes
    return {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": ["kubernetes/prometheusrule.yaml"],
        "configMapGenerator": [
            {
                "name": f"{meta.name}-dashboards",
                "namespace": meta.namespace,
                "files": [f"dashboards/{dashboard_uid(name)}.json" for name in DASHBOARD_NAMES],
                "options": {
                    "labels": {**meta.labels, "grafana_dashboard": "1"},
                    # The sidecar watches one name; with a hash suffix, each change would leave the old config map behind.
                    "disableNameSuffixHash": True,
                },
            }
        ],
    }
