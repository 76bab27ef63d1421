"""The read-only part of the API. Every endpoint uses the latest snapshot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urljoin

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response

from sinks.explain.explanation import explain
from sinks.explain.json_form import to_dict
from sinks.explain.near_misses import NearMisses
from sinks.explain.sentences import queue_sentence
from sinks.explain.text import to_text
from sinks.http.errors import ApiError
from sinks.http.responses import json_response
from sinks.http.search import find
from sinks.http.settings import RUNBOOK_PATH, HttpSettings
from sinks.http.views import (
    advice_view,
    finding_view,
    member_view,
    message_view,
    queue_detail,
    queue_row,
    resolved_view,
    summary_view,
)
from sinks.objectives import objective_results
from sinks.query import MAX_LIMIT, SORTS, QueueQuery, matching, members_of
from sinks.store import SHOWN_STATUSES, Published, SnapshotStore
from streaming.judge.findings.signals import SEVERITY_RANK, SIGNAL_NAMES
from streaming.judge.snapshot import QueueView

LISTED_FOR = ("poison", "held", "head", "dead_letter", "oldest")
"""Why a message is listed: the values of the parameter `why`."""

_SWITCH = {"1": True, "true": True, "0": False, "false": False}


class ReadApi:
    """Endpoints as methods, which run in threads and do not wait for each other."""

    def __init__(self, store: SnapshotStore, settings: HttpSettings) -> None:
        self._store = store
        self._settings = settings

    def queues(self, request: Request) -> Response:
        """`GET /api/v1/queues`: one row per queue, filtered, sorted and paged."""
        published, now_ms = self._latest()
        query = _queue_query(request.query_params)
        found = matching(published, query)
        page = found[query.offset : query.offset + query.limit]
        rows = [queue_row(queue, published, self._store.trend(queue.name), now_ms) for queue in page]
        return _answer(
            request,
            {
                "summary": summary_view(published, now_ms),
                "total": len(found),
                "offset": query.offset,
                "limit": query.limit,
                "queues": rows,
            },
        )

    def queue(self, request: Request) -> Response:
        """`GET /api/v1/queue?queue=NAME&system=&scope=`: everything known about one queue."""
        published, now_ms = self._latest()
        _refuse_others(request.query_params, ("queue", "system", "scope"))
        queue = _one_queue(published, _required(request.query_params, "queue"), request.query_params)
        name = queue.name
        findings = published.findings.get(name, ())
        firing = frozenset(finding.key.signal for finding in findings)
        near_misses = () if queue.members else NearMisses(queue, self._settings.judging, now_ms).of_queue(firing)
        detail = queue_detail(
            queue,
            published,
            self._store.trend(name),
            now_ms,
            sentence=queue_sentence(queue, now_ms, firing=bool(findings)),
            near_misses=near_misses,
            objectives=objective_results(self._settings.objectives, queue),
            members=[member_view(one, published) for one in members_of(published, queue)],
            runbook_base_url=self._runbook(),
            grafana_url=self._settings.grafana_url,
        )
        return _answer(request, {"summary": summary_view(published, now_ms), "queue": detail})

    def messages(self, request: Request) -> Response:
        """`GET /api/v1/queues/{queue}/messages`: suspects, heads, held messages and dead letters, with ids."""
        published, now_ms = self._latest()
        params = request.query_params
        _refuse_others(params, ("system", "scope", "why", "offset", "limit"))
        queue = _one_queue(published, request.path_params["queue"], params)
        why = _choices(params, "why", LISTED_FOR)
        found = [m for m in queue.messages if not why or why.intersection(m.why)]
        offset, limit = _slice(params)
        return _answer(
            request,
            {
                "system": queue.system,
                "scope": queue.scope,
                "queue": queue.queue,
                "unsettled": queue.tracked,
                "total": len(found),
                "offset": offset,
                "limit": limit,
                "messages": [message_view(message, now_ms) for message in found[offset : offset + limit]],
            },
        )

    def signals(self, request: Request) -> Response:
        """`GET /api/v1/signals`: firing signals, the worst first, and recently resolved ones."""
        published, now_ms = self._latest()
        params = request.query_params
        _refuse_others(params, ("signal", "severity", "system", "scope", "queue", "offset", "limit"))
        wanted = {
            "signal": _choices(params, "signal", SIGNAL_NAMES),
            "severity": _choices(params, "severity", tuple(SEVERITY_RANK)),
            "system": frozenset(params.getlist("system")),
            "scope": frozenset(params.getlist("scope")),
            "queue": frozenset(params.getlist("queue")),
        }
        views = (finding_view(finding, now_ms) for finding in published.firing)
        found = [view for view in views if all(not v or view[name] in v for name, v in wanted.items())]
        offset, limit = _slice(params)
        return _answer(
            request,
            {
                "at_ms": published.snapshot.at_ms,
                "now_ms": now_ms,
                "total": len(found),
                "severities": Counter(view["severity"] for view in found),
                "offset": offset,
                "limit": limit,
                "firing": found[offset : offset + limit],
                "resolved": [resolved_view(resolved) for resolved in self._store.resolved()[:20]],
            },
        )

    def advice(self, request: Request) -> Response:
        """`GET /api/v1/signals/{id}`: one firing signal with its meaning and what to do."""
        published, now_ms = self._latest()
        for finding in published.firing:
            view = finding_view(finding, now_ms)
            if view["id"] == request.path_params["id"]:
                return _answer(request, view | advice_view(finding, self._runbook()))
        raise ApiError(404, "unknown_signal", "this signal does not fire (any more)", "list them with /api/v1/signals")

    def search(self, request: Request) -> Response:
        """`GET /api/v1/search?q=TEXT`: queues, messages, groups and consumers with the text in their name."""
        published = self._published()
        _refuse_others(request.query_params, ("q",))
        text = _required(request.query_params, "q")
        found, total = find(published.snapshot, text)
        matches = [
            {
                "kind": match.kind,
                "name": match.name,
                "system": match.queue.system,
                "scope": match.queue.scope,
                "queue": match.queue.queue,
            }
            for match in found
        ]
        return _answer(request, {"q": text, "total": total, "matches": matches})

    def explain(self, request: Request) -> Response:
        """`GET /api/v1/explain/{what}`: why a queue, message, group or consumer fires or not.

        As plain text for `Accept: text/plain`.
        """
        published, now_ms = self._latest()
        runbook = self._runbook()
        explanation = explain(
            published.snapshot,
            request.path_params["what"],
            now_ms,
            settings=self._settings.judging,
            # It is read in a terminal, where a link is an absolute one.
            runbook_base_url=None if runbook is None else urljoin(str(request.base_url), runbook),
        )
        status = 200 if explanation.subjects else 404
        if request.headers.get("accept", "").startswith("text/plain"):
            return Response(to_text(explanation), status, media_type="text/plain; charset=utf-8")
        return _answer(request, to_dict(explanation), status)

    def _runbook(self) -> str | None:
        """Return the runbook's URL; relative to the page, if the service's own."""
        own = RUNBOOK_PATH.lstrip("/") if RUNBOOK_PATH in self._settings.pages else None
        return self._settings.runbook_base_url or own

    def _latest(self) -> tuple[Published, int]:
        """Return the latest snapshot, and the time up to which its ages count."""
        published = self._published()
        return published, published.snapshot.time_at(self._settings.clock_ms())

    def _published(self) -> Published:
        published = self._store.latest
        if published is None:
            raise ApiError(
                503,
                "starting",
                "no batch has been published yet",
                "wait for the first one; /-/ready says when",
                headers={"Retry-After": "2"},
            )
        return published


def _answer(request: Request, value: Mapping[str, Any], status: int = 200) -> Response:
    return json_response(value, status=status, accept_encoding=request.headers.get("accept-encoding", ""))


def _one_queue(published: Published, name: str, params: QueryParams) -> QueueView:
    found = [
        queue
        for queue in published.queues.values()
        if queue.queue == name
        and params.get("system", queue.system) == queue.system
        and params.get("scope", queue.scope) == queue.scope
    ]
    if len(found) == 1:
        return found[0]
    if not found:
        raise ApiError(
            404,
            "unknown_queue",
            f"no queue {name!r} is watched",
            "list them with /api/v1/queues; find one with /api/v1/search?q=",
        )
    raise ApiError(
        409,
        "ambiguous_queue",
        f"{len(found)} queues are called {name!r}",
        "say which with ?system= and ?scope=",
        candidates=[{"system": queue.system, "scope": queue.scope} for queue in found[:20]],
    )


def _queue_query(params: QueryParams) -> QueueQuery:
    _refuse_others(params, ("filter", "status", "firing", "system", "scope", "sort", "order", "offset", "limit"))
    sort = params.get("sort", "attention")
    if sort not in SORTS:
        raise _bad("sort", sort, SORTS)
    order = params.get("order", "asc" if sort == "queue" else "desc")
    if order not in ("asc", "desc"):
        raise _bad("order", order, ("asc", "desc"))
    offset, limit = _slice(params)
    return QueueQuery(
        text=params.get("filter", ""),
        statuses=_choices(params, "status", SHOWN_STATUSES),
        firing=_switch(params, "firing"),
        system=params.get("system"),
        scope=params.get("scope"),
        sort=sort,
        descending=order == "desc",
        offset=offset,
        limit=limit,
    )


def _slice(params: QueryParams) -> tuple[int, int]:
    return _number(params, "offset", 0, 999_999_999), _number(params, "limit", 100, MAX_LIMIT)


def _number(params: QueryParams, name: str, default: int, most: int) -> int:
    text = params.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdecimal()) or len(text) > 9 or int(text) > most:
        raise _bad(name, text, (f"a whole number from 0 to {most}",))
    return int(text)


def _refuse_others(params: QueryParams, known: Sequence[str]) -> None:
    """Refuse a parameter that would be ignored: with a misspelled filter, the answer would look as if everything matched."""
    for name in params:
        if name not in known:
            raise ApiError(400, "unknown_parameter", f"there is no parameter {name}", f"use {', '.join(known)}")


def _choices(params: QueryParams, name: str, known: Sequence[str]) -> frozenset[str]:
    given = [part for text in params.getlist(name) for part in text.split(",") if part]
    for part in given:
        if part not in known:
            raise _bad(name, part, known)
    return frozenset(given)


def _switch(params: QueryParams, name: str) -> bool:
    text = params.get(name, "0")
    if text not in _SWITCH:
        raise _bad(name, text, tuple(_SWITCH))
    return _SWITCH[text]


def _required(params: QueryParams, name: str) -> str:
    text = params.get(name, "")
    if not text.strip():
        raise ApiError(400, "missing_parameter", f"the parameter {name} is missing", f"add ?{name}=…")
    return text


def _bad(name: str, given: str, known: Sequence[str] | Mapping[str, object]) -> ApiError:
    return ApiError(400, "bad_parameter", f"{name}={given} is not possible", f"use {', '.join(known)}")
