"""What to do about an alert: steps, some of which hold for one queue system or one reason only."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

QueueSystem = Literal["aws_sqs", "activemq", "cloudflare_queues"]
"""The systems whose commands the runbook knows; the words are the events' `system`."""

QUOTED = re.compile(r"`([^`]+)`")
"""Code inside a sentence."""
VARIABLE = re.compile(r"\$(?:\{([A-Z_]+)\}|([A-Z_]+))")


@dataclass(frozen=True, slots=True)
class Remedy:
    """A step that does not hold everywhere. `text` may quote a command that uses the variables of the runbook's first section."""

    text: str
    systems: tuple[QueueSystem, ...] = ()
    """The events' `system` it holds for; empty: all."""
    reasons: tuple[str, ...] = ()
    """The evidence's `reason` (or a part of it) it holds for; empty: all."""


Step = str | Remedy
"""A plain text holds for every system and reason."""


def steps(fix: Sequence[Step], system: str, reason: str, known: Mapping[str, str]) -> tuple[str, ...]:
    """The steps that hold for one signal, with what is `known` filled into their commands.

    `system` is empty for a signal that is not about a queue. A reason that no step names leaves the steps of every reason.
    """
    remedies = [step if isinstance(step, Remedy) else Remedy(step) for step in fix]
    here = [remedy for remedy in remedies if not system or not remedy.systems or system in remedy.systems]
    named = {name for remedy in here for name in remedy.reasons if name in reason}
    return tuple(_filled(remedy.text, known) for remedy in here if not named or not remedy.reasons or named & {*remedy.reasons})


def labelled(fix: Sequence[Step], titles: Mapping[QueueSystem, str]) -> Iterator[str]:
    """All steps, each with the systems and reasons it holds for in front. `titles`: the systems' names."""
    for step in fix:
        if isinstance(step, str):
            yield step
            continue
        holds_for = [titles[system] for system in step.systems] + [f"`{reason}`" for reason in step.reasons]
        yield f"{', '.join(holds_for)}: {step.text}"


def _filled(text: str, known: Mapping[str, str]) -> str:
    def value(variable: re.Match[str]) -> str:
        return known.get(variable[1] or variable[2], variable[0])

    return QUOTED.sub(lambda code: f"`{VARIABLE.sub(value, code[1])}`", text)
