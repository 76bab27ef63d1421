"""Format an examination as text for a terminal and as JSON for a program."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from itertools import groupby
from typing import Final

from sources.doctor.finding import SEVERITIES, Examination, Finding

_NAMED: Final = 20
_INDENT: Final = " " * 12


def as_text(examination: Examination) -> str:
    """Format findings grouped by queue, worst queue first, each with its fix; then what passed, then the totals."""
    return "\n".join(_lines(examination))


def as_json(examination: Examination) -> str:
    """Format one JSON object. A field of a finding that does not apply is null."""
    document = {
        "system": examination.system,
        "counts": _counts(examination),
        "passed": list(examination.passed),
        "findings": [
            {
                "rule": finding.rule,
                "severity": finding.severity,
                "scope": finding.scope,
                "queue": finding.queue,
                "summary": finding.summary,
                "fix": finding.fix,
            }
            for finding in _sorted(examination)
        ],
    }
    return json.dumps(document, ensure_ascii=False, indent=2)


def _lines(examination: Examination) -> Iterator[str]:
    for place, findings in groupby(_sorted(examination), key=_place):
        yield place or examination.system
        for finding in findings:
            yield f"  {finding.severity:8}  {finding.rule}: {finding.summary}"
            if finding.fix:
                yield textwrap.indent(f"Fix: {finding.fix}", _INDENT)
    passed = list(examination.passed)
    yield from (f"ok          {name}" for name in passed[:_NAMED])
    if len(passed) > _NAMED:
        yield f"ok          and {len(passed) - _NAMED:,} more"
    counts = ", ".join(f"{number:,} {severity}" for severity, number in _counts(examination).items() if number)
    number = len(examination.findings)
    if number:
        yield f"{number:,} finding{'s' if number > 1 else ''}: {counts}"
    else:
        yield "Nothing to fix." if passed else "Nothing was found to examine."


def _sorted(examination: Examination) -> list[Finding]:
    """Sort general findings first, then queues by their worst finding; within a queue worst first."""
    worst: dict[str, int] = {}
    for finding in examination.findings:
        place = _place(finding)
        worst[place] = max(worst.get(place, 0), SEVERITIES.index(finding.severity))

    def key(finding: Finding) -> tuple[bool, int, str, int, str]:
        place = _place(finding)
        return finding.queue is not None, -worst[place], place, -SEVERITIES.index(finding.severity), finding.rule

    return sorted(examination.findings, key=key)


def _place(finding: Finding) -> str:
    scope = f"  ({finding.scope})" if finding.scope else ""
    return f"{finding.queue}{scope}" if finding.queue is not None else (finding.scope or "")


def _counts(examination: Examination) -> dict[str, int]:
    found = [finding.severity for finding in examination.findings]
    return {severity: found.count(severity) for severity in reversed(SEVERITIES)}
