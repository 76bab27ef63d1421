"""The signal about groups that crowd out others, in fair queues: standard queues with groups."""

from __future__ import annotations

from collections.abc import Iterator

from streaming.judge.conditions.conditions import once
from streaming.judge.context import Context
from streaming.judge.findings.signals import Finding
from streaming.judge.findings.words import duration_ms, plural


@once
def noisy_groups(c: Context) -> dict[str, int]:
    """Return noisy group -> when it last had something in flight (epoch milliseconds).

    A group becomes noisy by its share of the messages in flight. It remains so until its backlog is gone and it takes no more
    than its share, or it had nothing in flight for 5 min. Where not all sends are seen, whether it has a backlog is not known:
    there it remains so until it has less than half as many in flight.
    """
    known, summary, limits = c.memory.noisy, c.summary, c.thresholds
    if c.ordered or (not summary.groups and not known):
        return known
    in_flight = summary.numbers["in_flight"]
    firing = {finding.key.group for finding in c.firing_here("NoisyGroup")}
    few = limits.noisy_group_in_flight if c.basis == "messages" else limits.noisy_group_in_flight / 2
    noisy = {}
    for group in summary.groups:
        at = known.get(group.name)
        share = group.in_flight / in_flight if in_flight else 0.0
        loud = share > limits.noisy_group_ratio and group.in_flight >= limits.noisy_group_in_flight
        if group.in_flight and (at is not None or loud):
            at = c.now
        gone = group.unsettled == group.in_flight == 0
        # Its backlog is gone, and it no longer takes more than its share.
        eased = group.name in firing and group.unsettled == group.in_flight < few
        if at is not None and not gone and not eased and c.now - at < limits.noisy_group_quiet_s * 1000:
            noisy[group.name] = at
    return noisy


def noisy_group(c: Context) -> Iterator[Finding]:
    """A group has more than 10 % of the messages in flight and at least 30 of them."""
    noisy = noisy_groups(c)
    if c.ordered or not noisy:
        return
    in_flight = c.summary.numbers["in_flight"]
    firing = {f.key.group: f for f in c.firing_here("NoisyGroup")}
    for group in sorted(c.summary.groups, key=lambda group: group.name):
        if group.name not in noisy:
            continue
        since = firing[group.name].since_ms if group.name in firing else c.now
        share = group.in_flight / in_flight if in_flight else 0.0
        if group.in_flight:
            summary = (
                f"Group {group.name} has {group.in_flight} of the {in_flight} messages in flight of {c.name.queue} "
                f"({share:.0%}): {'other groups wait' if len(c.summary.groups) > 1 else 'any other group would wait'} for it."
            )
        else:
            summary = (
                f"Group {group.name} crowded {c.name.queue} until {duration_ms(c.now - noisy[group.name])} ago. "
                f"It has nothing in flight now, and {plural(group.unsettled, 'unsettled message')}."
            )
        evidence = {
            "group_in_flight": group.in_flight,
            "queue_in_flight": in_flight,
            "share_ratio": round(share, 3),
            "group_unsettled": group.unsettled,
            "summary": summary,
        }
        yield c.finding("NoisyGroup", "info", since, evidence, group=group.name)
