"""`queuewatch doctor cloudflare`: which queue settings of an account will cause trouble, with the fix."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sources.cloudflare.answers import ListedQueue
from sources.cloudflare.api import CloudflareApi
from sources.cloudflare.budget import Budget
from sources.cloudflare.config import CloudflareCollectorConfig
from sources.cloudflare.declared import Declared, read_declared
from sources.cloudflare.discovery import Discovery
from sources.cloudflare.errors import ApiError, NotFound, RateLimited, Unauthorized
from sources.cloudflare.event_builder import SYSTEM, settings_attributes
from sources.cloudflare.settings import Finding
from sources.cloudflare.wrangler import WranglerError
from sources.doctor.finding import Examination
from sources.doctor.finding import Finding as Reported


def examine(config: CloudflareCollectorConfig) -> Examination:
    """Examine every queue of the account, and the declarations of the Wrangler files.

    If the API does not answer, that is a finding, and only the declarations are examined.
    """
    try:
        declared = read_declared(config.wrangler_files, config.wrangler_env)
    except WranglerError as error:
        return Examination(system=SYSTEM, passed=(), findings=[_not_examined(str(error), None)])
    found: list[Reported] = []
    try:
        attributes = _deployed(config, declared, found)
    except ApiError as error:
        found.append(_unread(error, config))
        attributes = _declared_only(config, declared)
    if not attributes and not found:
        found.append(_no_queue(config))
    passed: list[str] = []
    for name in sorted(attributes):
        own = [*_from_attributes(attributes[name]), *_dead_letters(name, attributes)]
        if not own:
            passed.append(name)
        found += [
            Reported(rule=one.rule, severity="warning", queue=name, scope=config.account_id, summary=one.summary) for one in own
        ]
    return Examination(system=SYSTEM, passed=passed, findings=found)


def _not_examined(summary: str, fix: str | None) -> Reported:
    return Reported(rule="not_examined", severity="critical", summary=summary, fix=fix)


def _no_queue(config: CloudflareCollectorConfig) -> Reported:
    """Return a finding: a mistyped pattern must not pass for queues that are all well."""
    filtered = (config.queues, config.exclude) != (("*",), ())
    return Reported(
        rule="no_queue",
        severity="warning",
        scope=config.account_id,
        summary=f"The account has no queue{' that collect.cloudflare.queues and exclude select' if filtered else ''}.",
        fix=f"Check {'the patterns, and ' if filtered else ''}collect.cloudflare.account_id.",
    )


def _unread(error: ApiError, config: CloudflareCollectorConfig) -> Reported:
    return _not_examined(str(error), config.token_remedy if isinstance(error, Unauthorized) else None)


def _deployed(config: CloudflareCollectorConfig, declared: Declared, found: list[Reported]) -> dict[str, dict[str, Any]]:
    """Return the attributes of deployed queues by queue name; a queue that cannot be read is added to `found`.

    Raises `ApiError` when the queues cannot be listed.
    """
    budget = Budget(config.requests_per_5min)
    attributes: dict[str, dict[str, Any]] = {}
    with CloudflareApi(config.api_url, config.account_id, config.token, timeout_s=config.timeout_s, budget=budget) as api:
        discovery = Discovery()
        while not discovery.done:
            _wait(budget)
            discovery.take(api.page(discovery.next_page))
        for queue in discovery.queues:
            if not config.is_watched(queue.name):
                continue
            try:
                attributes[queue.name] = _attributes(api, budget, queue, declared, config)
            except NotFound:
                continue  # It was deleted since it was listed.
            except ApiError as error:
                if isinstance(error, RateLimited):
                    budget.pause(error.retry_after_s)
                found.append(replace(_unread(error, config), queue=queue.name, scope=config.account_id))
    return attributes


def _attributes(
    api: CloudflareApi, budget: Budget, queue: ListedQueue, declared: Declared, config: CloudflareCollectorConfig
) -> dict[str, Any]:
    consumers = queue.consumers
    if consumers is None:
        _wait(budget)
        consumers = api.consumers(queue.id)
    return settings_attributes(
        queue,
        consumers,
        declared.consumers.get(queue.name),
        declared.delivery_delays_s.get(queue.name),
        config.backoff_of(queue.name),
    )


def _declared_only(config: CloudflareCollectorConfig, declared: Declared) -> dict[str, dict[str, Any]]:
    return {
        name: settings_attributes(ListedQueue("", name), None, consumer, None, config.backoff_of(name))
        for name, consumer in declared.consumers.items()
        if config.is_watched(name)
    }


def _from_attributes(attributes: Mapping[str, Any]) -> Iterator[Finding]:
    for entry in attributes["findings"]:
        yield Finding(entry["rule"], entry["summary"])
    differing: Sequence[str] = attributes.get("wrangler_differs", ())
    if differing:
        words = (
            f"What is deployed is not what the Wrangler file declares: {', '.join(differing)}. Deploy it, or correct the file."
        )
        yield Finding("wrangler_differs", words)


def _dead_letters(name: str, attributes: Mapping[str, Mapping[str, Any]]) -> Iterator[Finding]:
    """Yield findings that need the settings of the dead-letter queue itself."""
    there = attributes.get(attributes[name].get("dead_letter_queue") or "")
    own_s = attributes[name].get("retention_s")
    theirs_s = there.get("retention_s") if there else None
    if own_s and theirs_s and theirs_s <= own_s:
        words = (
            f"Its dead-letter queue keeps messages {theirs_s:.0f} s, no longer than the queue itself: a message keeps the "
            "time it was sent, so one that has waited long expires soon after it arrives. Raise its retention, ideally to 14 "
            "days."
        )
        yield Finding("dead_letter_retention", words)


def _wait(budget: Budget) -> None:
    while not budget.take():
        time.sleep(min(budget.wait_s(), 1.0))
