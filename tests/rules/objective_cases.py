"""Cases for the error-budget alerts; the objective is that 99 % of the messages of `orders` are settled within 30 s."""

from __future__ import annotations

from alerts.objectives import Objective
from tests.rules.promtool import Alert, Check
from tests.rules.signal_cases import WHERE, labels, of

OBJECTIVES = {"orders-30s": Objective(queues="orders|paid-.*", within_s=30)}


def flow(settled: float, in_time: float, *, lost: float = 0, steps: int = 240, queue: str = "orders") -> dict[str, str]:
    """Return series that grow at every step: messages settled, those of them in time, those dead-lettered."""
    timed = {
        of("queuewatch_sojourn_seconds_bucket", queue, le="30.0"): f"0+{in_time:g}x{steps}",
        of("queuewatch_sojourn_seconds_bucket", queue, le="60.0"): f"0+{settled:g}x{steps}",
        of("queuewatch_sojourn_seconds_count", queue): f"0+{settled:g}x{steps}",
    }
    totals = {"dead_lettered": lost, "expired": 0, "dropped": 0}
    return (timed if settled else {}) | {
        of(f"queuewatch_messages_{name}_total", queue): f"0+{n:g}x{steps}" for name, n in totals.items()
    }


def burning(severity: str, rate: str) -> Alert:
    """Return the expected alert; `rate` is how many times faster than allowed the budget is used."""
    return Alert(
        labels(severity, objective="orders-30s"),
        f"{WHERE} uses up the error budget of objective orders-30s at {rate} times the allowed rate. "
        "Visible messages: unknown. Oldest visible: unknown.",
    )


OBJECTIVE_CASES: dict[str, tuple[Check, ...]] = {
    "ErrorBudgetBurning": (
        Check("fires", "a fifth of the messages is late", flow(10, 8), "10m", (burning("critical", "20.0"),)),
        Check("fires", "none is late, a fifth is dead-lettered", flow(8, 8, lost=2), "10m", (burning("critical", "20.0"),)),
        Check("fires", "not one was ever settled", flow(0, 0, lost=2), "10m", (burning("critical", "100.0"),)),
        Check("quiet", "all in time", flow(10, 10), "20m"),
        Check("quiet", "as many late as is allowed", flow(100, 99), "20m"),
        Check("quiet", "of another queue nothing is promised", flow(10, 8, queue="invoices"), "20m"),
        Check("quiet", "four messages late are few, whatever share of all they are", flow(0.02, 0, steps=200), "50m"),
        Check("boundary", "14 % in the hour", flow(100, 86), "10m", (burning("critical", "14.0"),)),
        Check("boundary", "13 % in the hour, and not yet for long", flow(100, 87), "2m"),
        Check("boundary", "it lasts two minutes", flow(10, 8), "2m45s", (burning("critical", "20.0"),)),
        Check("boundary", "a moment before", flow(10, 8), "2m"),
    ),
    "ErrorBudgetBurningSlowly": (
        Check("fires", "three times the allowed share", flow(100, 97), "50m", (burning("warning", "3.0"),)),
        Check("quiet", "all in time", flow(10, 10), "40m"),
        Check("boundary", "as many late as is allowed, over three days", flow(100, 99), "50m", (burning("warning", "1.0"),)),
        Check("boundary", "a tenth fewer", flow(1_000, 991), "50m"),
    ),
}
