"""What to do about an alert: steps, some of which apply only to one queue system or reason."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

QueueSystem = Literal["aws_sqs", "activemq", "cloudflare_queues"]
"""The systems for which the runbook has commands, named as in the events' `system`."""

QUOTED = re.compile(r"`([^`]+)`")
"""Code inside a sentence."""
VARIABLE = re.compile(r"\$(?:\{([A-Z_]+)\}|([A-Z_]+))")


@dataclass(frozen=True, slots=True)
class Remedy:
    """A step that does not apply everywhere. `text` may quote a command with the variables of the runbook's first section."""

    text: str
    systems: tuple[QueueSystem, ...] = ()
    """The values of the events' `system` to which it applies; empty: all."""
    reasons: tuple[str, ...] = ()
    """The evidence's `reason` (or a part of it) to which it applies; empty: all."""
    unless_false: str = ""
    """A field of the evidence: where that is false, the step does not apply."""


Step = str | Remedy
"""A plain string applies to every system and reason."""


def steps(
    fix: Sequence[Step], system: str, reason: str, known: Mapping[str, str], denied: Collection[str] = ()
) -> tuple[str, ...]:
    """Return the steps that apply to one signal, with `known` values filled into their commands.

    `denied`: the fields of its evidence that are false.
    `system` is empty for a signal that is not about a queue. If no step names the reason, the steps for all reasons are returned.
    """
    remedies = [step if isinstance(step, Remedy) else Remedy(step) for step in fix]
    here = [
        remedy
        for remedy in remedies
        if (not system or not remedy.systems or system in remedy.systems) and remedy.unless_false not in denied
    ]
    named = {name for remedy in here for name in remedy.reasons if name in reason}
    return tuple(_filled(remedy.text, known) for remedy in here if not named or not remedy.reasons or named & {*remedy.reasons})


def labelled(fix: Sequence[Step], titles: Mapping[QueueSystem, str]) -> Iterator[str]:
    """Return all steps, prefixed with the systems and reasons to which a step applies. `titles`: the systems' names."""
    for step in fix:
        if isinstance(step, str):
            yield step
            continue
        holds_for = [titles[system] for system in step.systems] + [f"`{reason}`" for reason in step.reasons]
        yield f"{', '.join(holds_for)}: {step.text}" if holds_for else step.text


def _filled(text: str, known: Mapping[str, str]) -> str:
    def value(variable: re.Match[str]) -> str:
        return known.get(variable[1] or variable[2], variable[0])

    return QUOTED.sub(lambda code: f"`{VARIABLE.sub(value, code[1])}`", text)
