"""An explanation as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from sinks.explain.explanation import Explanation, Reason
from sinks.explain.formatting import duration, evidence_words, printable


def to_text(explanation: Explanation) -> str:
    """Format an explanation for a terminal: paragraphs, no colours, control characters in names made visible."""
    if not explanation.subjects:
        return printable(explanation.hint) + "\n"
    lines: list[str] = []
    for subject in explanation.subjects:
        lines += [subject.sentence, f"  {subject.queue.system}, {subject.queue.scope or 'no scope'}", ""]
        for signal, of_signal in groupby(
            sorted(subject.reasons, key=lambda r: r.finding.key.signal), key=lambda r: r.finding.key.signal
        ):
            lines += _signal_lines(signal, tuple(of_signal))
        if not subject.reasons:
            lines += ["  No signal fires for it.", ""]
        lines += [
            f"  not firing: {near.signal} ({100 * near.nearness:.0f}% of its limit): {near.sentence}"
            for near in subject.near_misses
        ]
        lines.append("")
    if explanation.more:
        lines.append(f"{explanation.more} more have this name; use system/scope/queue to select one.")
    return "\n".join(printable(line) for line in lines).rstrip("\n") + "\n"


def _signal_lines(signal: str, reasons: Sequence[Reason]) -> Iterator[str]:
    for reason in reasons:
        finding = reason.finding
        yield f"  FIRING {signal} ({finding.severity}, for {duration(reason.firing_s)})"
        yield f"    {finding.summary}"
        numbers = [f"{name}={evidence_words(name, value)}" for name, value in finding.evidence.items() if name != "summary"]
        if numbers:
            yield f"    Evidence: {', '.join(numbers)}"
    yield f"    It means: {reasons[0].advice.meaning}"
    yield "    What to do:"
    # A hundred stuck groups share the same steps, so each reason is listed once.
    by_reason: dict[object, tuple[str, ...]] = {}
    for reason in reasons:
        by_reason.setdefault(reason.finding.evidence.get("reason"), reason.advice.to_do)
    yield from (f"    - {step}" for step in dict.fromkeys(step for to_do in by_reason.values() for step in to_do))
    if reasons[0].advice.runbook_url:
        yield f"    Runbook: {reasons[0].advice.runbook_url}"
    yield ""
