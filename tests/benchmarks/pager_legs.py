"""The legs from a fault to a notification, and their summary over many rounds. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from streaming.judge.findings.signals import SignalName

Way = Literal["push", "prometheus"]


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault, as known to the application that causes it."""

    what: str
    """The kind of fault and the broker; rounds of the same kind are summarized together."""
    signal: SignalName
    system: str
    queue: str
    culprit: str
    """The message's id."""
    at_s: float
    """When the fault became observable (the receive that makes a message a suspect, the start of a hang), in epoch seconds."""
    receive_count: int
    rule_waits_s: float = 0.0
    """How long the rule itself then waits before the signal may fire."""


@dataclass(frozen=True, slots=True)
class Round:
    """When each step of one fault was finished, in epoch seconds; None if the step does not exist or was not observed."""

    fault: Fault
    way: Way
    in_kafka_s: float | None
    """When the broker appended the record with the receive. None for events sent by HTTP."""
    judged_s: float
    """The start of the batch in which the signal fired."""
    scraped_s: float | None
    evaluated_s: float | None
    notified_s: float
    """The arrival of the webhook."""
    names_culprit: bool
    """Whether the notification's text, rendered by the shipped template, has the message's id."""

    @property
    def beyond_rule_s(self) -> float:
        """Duration of the whole path without the rule's own wait."""
        return self.notified_s - self.fault.at_s - self.fault.rule_waits_s

    @property
    def legs(self) -> Mapping[str, float]:
        """Seconds of each leg. After a rule's wait, the first leg starts at the end of that wait."""
        due_s = self.fault.at_s + self.fault.rule_waits_s
        steps: list[tuple[str, float | None]] = []
        if not self.fault.rule_waits_s:
            steps.append(("to Kafka", self.in_kafka_s))
        steps.append(("to the batch", self.judged_s))
        if self.way == "prometheus":
            steps += [("to the scrape", self.scraped_s), ("to the rule", self.evaluated_s)]
        steps.append(("to the webhook", self.notified_s))
        found, since_s = {}, due_s
        for name, at_s in steps:
            if at_s is not None:
                found[name], since_s = at_s - since_s, at_s
        return found


LEGS: Final = ("to Kafka", "to the batch", "to the scrape", "to the rule", "to the webhook")


def quantile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least `share` of all do not exceed: with 30 values, p99 is the largest."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def leg_medians(rounds: Sequence[Round]) -> dict[str, float]:
    """Return the median of each leg that these rounds have."""
    every = [one.legs for one in rounds]
    return {leg: quantile([legs[leg] for legs in every if leg in legs], 0.5) for leg in LEGS if any(leg in x for x in every)}
