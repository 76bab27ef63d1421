"""Findings about what a broker does not report, why it matters, and the XML to change it. No network, no clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from sources.activemq.probe import EXPECTED
from sources.activemq.unprepared import FLAGS

MINIMUM_VERSION = (5, 18)
_LISTED_QUEUES = 5

POLICY_XML = """\
<destinationPolicy>
  <policyMap>
    <policyEntries>
      <!-- Entries do not merge: repeat these attributes in every entry that is more specific than this one. -->
      <policyEntry queue=">" advisoryForDelivery="true" advisoryForDispatched="true" advisoryForConsumed="true"/>
      <!-- Without it an entry for topic=">" applies: that of the stock configuration discards advisories beyond a limit. -->
      <policyEntry topic="ActiveMQ.Advisory.>"/>
    </policyEntries>
  </policyMap>
</destinationPolicy>"""

PLUGIN_XML = """\
<plugins>
  <statisticsBrokerPlugin/>
</plugins>"""

PERMISSIONS_XML = """\
<!-- In the authorizationEntries; GROUP is the group of the collector's user. Add it to entries that are there. -->
<authorizationEntry topic="ActiveMQ.Advisory.>" read="GROUP"/>
<authorizationEntry topic="ActiveMQ.Statistics.>" write="GROUP"/>
<authorizationEntry queue="ActiveMQ.Statistics.>" write="GROUP"/>
<!-- Only for the probe; without it set probe_queue to null. -->
<authorizationEntry queue="queuewatch.>" read="GROUP" write="GROUP" admin="GROUP"/>
<!-- Beside the authorizationEntries, for the replies. -->
<tempDestinationAuthorizationEntry>
  <tempDestinationAuthorizationEntry read="GROUP" write="GROUP" admin="GROUP"/>
</tempDestinationAuthorizationEntry>"""

TRANSFORMATION = (
    "another STOMP client subscribes to the same advisories without a header transformation:jms-advisory-json; add it there"
)

_UNREADABLE: Mapping[str, str] = {
    "empty_body": "an empty body",
    "bad_body": "a body of an unknown form",
    "unknown_topic": "an unknown topic",
}
"""`advisory.Unreadable.reason` in words."""

Level = Literal["ok", "info", "warning", "error"]


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check. `error`: messages cannot be followed; `warning`: something remains unseen; `info`: may be meant."""

    check: str
    level: Level
    what: str
    fix: str | None = None
    """The remedy, in words or XML."""


@dataclass(frozen=True, slots=True)
class Observed:
    """What is known about a broker so far; None: not known."""

    server: str
    version: tuple[int, ...] | None
    plugin: bool | None = None
    subscriptions: bool | None = None
    probed: frozenset[str] | None = None
    """The advisories that reported the probe (`probe.EXPECTED`); None: no probe went through."""
    probe_queue: str | None = None
    probe_refused: str | None = None
    bodiless: int = 0
    """Advisories with an empty body."""
    unreadable: Mapping[str, int] = field(default_factory=dict)
    """Advisories of which nothing could be used, by `advisory.Unreadable.reason`."""
    silent_flags: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Queue -> policy attributes that seem to be off (`unprepared.FlagWatch`)."""
    discarded: int = 0
    """Advisories that the broker discarded (`discarded.DiscardWatch`)."""


def diagnose(seen: Observed) -> list[Finding]:
    """Return all findings in the order in which to fix them."""
    found = [_version(seen), _statistics(seen), _subscriptions(seen), *_advisories(seen)]
    found += [_bodies(seen), _unreadable(seen), _silent_queues(seen), _discarded(seen)]
    return [finding for finding in found if finding is not None]


def _version(seen: Observed) -> Finding:
    if seen.version is None:
        what = f"the broker identifies itself as {seen.server or 'nothing'}, which is not known to be ActiveMQ Classic"
        return Finding("version", "warning", what, "this collector is for ActiveMQ Classic, not Artemis")
    if seen.version < MINIMUM_VERSION:
        what = f"{seen.server} has no MessageDispatched advisory: which consumer holds a message stays unknown"
        return Finding("version", "error", what, "upgrade to 5.18 or later")
    return Finding("version", "ok", seen.server)


def _statistics(seen: Observed) -> Finding | None:
    if seen.plugin is None:
        return None
    if seen.plugin:
        return Finding("statistics", "ok", "StatisticsBrokerPlugin answers")
    what = "StatisticsBrokerPlugin does not answer: no queue has a depth, and tracked messages cannot be checked against counts"
    return Finding("statistics", "error", what, PLUGIN_XML)


def _subscriptions(seen: Observed) -> Finding | None:
    if seen.subscriptions is None:
        return None
    if seen.subscriptions:
        return Finding("subscriptions", "ok", "the broker reports what each consumer holds")
    what = (
        "the broker does not report what each consumer holds (the plugin reads it over JMX): an acknowledgement in a "
        "transaction that is left open, and a message settled while the collector was away, are noticed late or never"
    )
    return Finding("subscriptions", "warning", what, '<broker useJmx="true" …>')


def _advisories(seen: Observed) -> list[Finding]:
    if seen.probe_refused is not None:
        what = f"no probe went through {seen.probe_queue}: {seen.probe_refused}"
        fix = f"allow it, or set probe_queue to null:\n{PERMISSIONS_XML}"
        return [Finding("advisories", "warning", what, fix)]
    if seen.probed is None:
        return []
    if not seen.probed:
        what = f"a message through {seen.probe_queue} caused no advisory at all"
        fix = (
            'is advisorySupport="false" set on the broker, or are xstream and jettison missing from its classpath? '
            "Without them advisories asked for as JSON never arrive"
        )
        return [Finding("advisories", "error", what, fix)]
    missing = sorted(EXPECTED - seen.probed)
    if not missing:
        return [Finding("advisories", "ok", f"a message through {seen.probe_queue} was reported in full")]
    flags = ", ".join(f'{FLAGS[kind]}="true"' for kind in missing if kind in FLAGS)
    what = f"of a message through {seen.probe_queue} the broker did not report: {', '.join(missing)}"
    return [Finding("advisories", "error", what, f"switch on {flags}:\n{POLICY_XML}" if flags else None)]


def _bodies(seen: Observed) -> Finding | None:
    if not seen.bodiless:
        return None
    what = f"{seen.bodiless} advisories came with an empty body: times, groups and redelivery counts in them are unknown"
    return Finding("bodies", "warning", what, TRANSFORMATION)


def _unreadable(seen: Observed) -> Finding | None:
    if not seen.unreadable:
        return None
    reasons = ", ".join(f"{count} with {_UNREADABLE[reason]}" for reason, count in sorted(seen.unreadable.items()))
    what = f"{sum(seen.unreadable.values())} advisories could not be read ({reasons}): what they reported is lost"
    return Finding("unreadable", "warning", what, TRANSFORMATION)


def _silent_queues(seen: Observed) -> Finding | None:
    if not seen.silent_flags:
        return None
    by_flags: dict[frozenset[str], list[str]] = {}
    for queue, flags in sorted(seen.silent_flags.items()):
        by_flags.setdefault(flags, []).append(queue)
    parts = []
    for flags, queues in by_flags.items():
        named = ", ".join(queues[:_LISTED_QUEUES])
        more = f" and {len(queues) - _LISTED_QUEUES} more" if len(queues) > _LISTED_QUEUES else ""
        parts.append(f"{named}{more} ({', '.join(sorted(flags))})")
    what = "messages move through these queues without the advisories in brackets: " + "; ".join(parts)
    fix = f"they have a policy entry of their own instead of that for >: repeat the attributes there:\n{POLICY_XML}"
    return Finding("queues", "error", what, fix)


def _discarded(seen: Observed) -> Finding | None:
    if not seen.discarded:
        return None
    what = f"the broker discarded {seen.discarded} advisories while the collector was behind: what they reported is lost"
    fix = f"give advisories a policy entry of their own, without a pendingMessageLimitStrategy:\n{POLICY_XML}"
    return Finding("discarded", "error", what, fix)
