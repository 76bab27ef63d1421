"""Find the queues to watch."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from queuewatch.places import place_of_url
from sources.collect.base import CollectorRefused
from sources.sqs.config import DiscoveryConfig
from sources.sqs.values import queue_name

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

_PAGE: Final = 1000


def urls_in(region: str, discovery: DiscoveryConfig, regions: Collection[str]) -> list[str]:
    """Return the queues named by URL that the client of one of `regions` reads.

    A queue of another of these regions is left to the client there: in this one SQS would answer that it does not exist.
    """
    others = set(regions) - {region}
    return [url for url in discovery.urls if _region_of(url) not in others]


def refuse_foreign(discovery: DiscoveryConfig, regions: Collection[str]) -> None:
    """Raise `CollectorRefused` if a queue named by URL is in none of `regions`: no client could ever read it.

    The URLs of a stand-in for SQS name no region.
    """
    for url in discovery.urls:
        region = _region_of(url)
        if region is not None and region not in regions:
            raise CollectorRefused(
                f"collect.sqs.discovery.urls: {url} is in {region}, which is not among the regions that are read "
                f"({', '.join(regions)}): add {region} to collect.sqs.regions, or remove the URL"
            )


def _region_of(url: str) -> str | None:
    scope = place_of_url(url, None).scope
    return None if scope is None else scope.rpartition("/")[2]


def listed_urls(client: SQSClient, discovery: DiscoveryConfig) -> list[str]:
    """Return URLs of the queues SQS lists that pass the name filters, without duplicates; tags are not checked.

    Raises botocore's errors: an incomplete list would look like vanished queues.
    """
    if not discovery.lists:
        return []
    found: dict[str, None] = {}
    for prefix in discovery.prefixes or ("",):
        for url in _pages(client, prefix):
            if discovery.fits_name(queue_name(url)):
                found[url] = None
    return list(found)


def _pages(client: SQSClient, prefix: str) -> Iterator[str]:
    """Yield all queue URLs: SQS pages only when a page size is requested, and otherwise stops at 1,000."""
    filters: dict[str, Any] = {"QueueNamePrefix": prefix} if prefix else {}
    for page in _each(lambda token: client.list_queues(MaxResults=_PAGE, **filters, **token)):
        yield from page.get("QueueUrls", ())


def dead_letter_sources(client: SQSClient, url: str) -> list[str]:
    """Return the names of the queues whose dead letters go to this one."""
    pages = _each(lambda token: client.list_dead_letter_source_queues(QueueUrl=url, MaxResults=_PAGE, **token))
    return sorted({queue_name(source) for page in pages for source in page.get("queueUrls", ())})


def _each(request: Callable[[dict[str, Any]], Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the pages of an answer.

    A stand-in for SQS or a proxy that ignores the token gives the same one again, and would never come to an end.
    """
    seen: set[str] = set()
    token = ""
    while token not in seen:
        seen.add(token)
        page = request({"NextToken": token} if token else {})
        yield page
        token = page.get("NextToken") or ""
