"""The recorded values of objectives, as Prometheus computes them, and the errors for invalid objectives."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from pydantic import ValidationError

from alerts.config import AlertRulesConfig
from alerts.objectives import Objective
from alerts.prometheus_rules import rule_groups
from tests.rules.objective_cases import OBJECTIVES, flow
from tests.rules.promtool import rules_needed, run_promtool
from tests.rules.signal_cases import of
from tests.services.prometheus import Binaries

IDENTITY = 'job="queuewatch",system="aws_sqs",scope_id="123456789012/eu-west-1",queue="orders",objective="orders-30s"'


@pytest.mark.parametrize(
    ("series", "values"),
    [
        (
            flow(8, 7.9, lost=2, steps=500),
            {"burn:rate1h": 21, "missed:increase1h": 126, "budget_left:ratio28d": -20},
        ),
        (flow(1_000, 995, steps=500), {"burn:rate6h": 0.5, "burn:rate1d": 0.5, "budget_left:ratio28d": 0.5}),
        (flow(0, 0, lost=1, steps=500), {"burn:rate5m": 100, "ended:rate5m": 1 / 60}),
        (
            {name: values for name, values in flow(10, 10, lost=10, steps=500).items() if "dropped" not in name},
            {"ended:rate1h": 20 / 60, "missed:increase1h": 600, "burn:rate1h": 50},
        ),
        (
            {name: "0+2x500" if "_messages_" in name else values for name, values in flow(4, 4, steps=500).items()},
            {"ended:rate1h": 10 / 60, "missed:increase1h": 360, "burn:rate1h": 60},
        ),
        (
            {
                **flow(6, 6, steps=500),
                of("queuewatch_messages_dead_lettered_total", instance="b:9400"): "0+3x500",
                of("queuewatch_messages_expired_total", instance="c:9400"): "0+1x500",
            },
            {"ended:rate1h": 10 / 60, "missed:increase1h": 240, "burn:rate1h": 40},
        ),
    ],
    ids=[
        "late and lost",
        "half of what is allowed",
        "only lost",
        "lost, but one total has no series",
        "as many lost in each way",
        "lost as several instances counted",
    ],
)
def test_recorded_values(series: dict[str, str], values: dict[str, float], tmp_path: Path, prometheus_binaries: Binaries) -> None:
    """Shares refer to all messages that ended; lost messages count as missed."""
    rules = tmp_path / "queuewatch.rules.yaml"
    recorded = {f"queue:queuewatch_objective_{name}" for name in values}
    groups = rules_needed(rule_groups(AlertRulesConfig(interval_s=60, objectives=OBJECTIVES)), recorded)
    rules.write_text(yaml.safe_dump({"groups": groups}))
    asked = [
        {
            # Rates are sums of fractions, so they are rounded.
            "expr": f"round(queue:queuewatch_objective_{name}, 0.0001)",
            "eval_time": "8h",
            "exp_samples": [{"labels": f"{{{IDENTITY}}}", "value": round(value, 4)}],
        }
        for name, value in values.items()
    ]
    inputs = [{"series": name, "values": text} for name, text in series.items()]
    document = {
        "rule_files": [str(rules)],
        "evaluation_interval": "1m",
        "tests": [{"interval": "1m", "input_series": inputs, "promql_expr_test": asked}],
    }
    file = tmp_path / "test.yaml"
    file.write_text(yaml.safe_dump(document))
    code, said = run_promtool(prometheus_binaries.promtool, file)
    assert code == 0, said


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ({"queues": "orders", "within_s": 20}, "take one of them"),
        ({"queues": "orders", "within_s": 30, "ratio": 1}, "less than 1"),
        ({"queues": "orders(", "within_s": 30}, "not a regular expression"),
        ({"queues": "orders"}, "Field required"),
    ],
    ids=["no bound", "all of them", "pattern", "no time"],
)
def test_an_invalid_objective_is_refused_with_the_reason(section: dict[str, object], said: str) -> None:
    """The error says what to write instead."""
    with pytest.raises(ValidationError, match=said):
        AlertRulesConfig.model_validate({"objectives": {"orders": section}})


def test_a_name_that_is_not_a_label_value_is_refused() -> None:
    """Every rule has the name between quotes."""
    with pytest.raises(ValidationError, match="pattern"):
        AlertRulesConfig(objectives={'a"b': Objective(queues="orders", within_s=30)})
