"""The legs of the way from a fault to a notification, and what of many rounds is shown. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from streaming.judge.signals import SignalName

Way = Literal["push", "prometheus"]


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault, as the application that causes it knows it."""

    what: str
    """The kind of fault and the broker: rounds of one kind are summed up together."""
    signal: SignalName
    system: str
    queue: str
    culprit: str
    """The message's id."""
    at_s: float
    """When it was there to be seen, epoch seconds: the receive that makes a message suspect, the beginning of a hang."""
    receive_count: int
    rule_waits_s: float = 0.0
    """How long the rule itself waits after that before the signal may fire."""


@dataclass(frozen=True, slots=True)
class Round:
    """When each step of one fault was done, epoch seconds; None where a step does not exist or was not seen."""

    fault: Fault
    way: Way
    in_kafka_s: float | None
    """The broker appended the record with the receive. Never for events that a service takes by HTTP."""
    judged_s: float
    """The batch in which the signal fired began."""
    scraped_s: float | None
    evaluated_s: float | None
    notified_s: float
    """The webhook arrived."""
    names_culprit: bool
    """Whether the notification's text, rendered by the shipped template, has the message's id."""

    @property
    def beyond_rule_s(self) -> float:
        """The whole way, without what the rule itself waits."""
        return self.notified_s - self.fault.at_s - self.fault.rule_waits_s

    @property
    def legs(self) -> Mapping[str, float]:
        """Seconds of each leg. The first one after a rule's wait is counted from the end of that wait."""
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
    """The smallest value that at least `share` of all do not exceed: with 30 values, p99 is the largest."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def leg_medians(rounds: Sequence[Round]) -> dict[str, float]:
    """The median of each leg that these rounds have."""
    every = [one.legs for one in rounds]
    return {leg: quantile([legs[leg] for legs in every if leg in legs], 0.5) for leg in LEGS if any(leg in x for x in every)}
