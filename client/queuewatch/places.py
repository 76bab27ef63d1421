"""Parses queue URLs and ARNs into queue name, account and region."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final, NamedTuple
from urllib.parse import urlsplit

# https://sqs.eu-west-1.amazonaws.com/… , vpce-….sqs.eu-west-1.vpce.amazonaws.com, eu-west-1.queue.amazonaws.com
_REGION_IN_HOST: Final = re.compile(
    r"(?:^|\.)sqs(?:-fips)?\.([a-z]{2,4}(?:-[a-z0-9]+)+-\d+)\.|^([a-z]{2,4}(?:-[a-z0-9]+)+-\d+)\.queue\."
)


class Place(NamedTuple):
    """A queue; `scope` is `account/region`, or None if the account is unknown."""

    scope: str | None
    queue: str


@lru_cache(maxsize=4096)
def place_of_url(url: str, client_region: str | None) -> Place:
    """Return the queue of a queue URL; the region comes from the host if it contains one, otherwise from the client."""
    parts = urlsplit(url)
    segments = [segment for segment in parts.path.split("/") if segment]
    queue = segments[-1] if segments else url
    region = _region_in(parts.hostname) or client_region
    if len(segments) < 2 or not region:
        return Place(None, queue)
    return Place(f"{segments[-2]}/{region}", queue)


def region_of_url(url: str) -> str | None:
    """Return the region that a queue URL's host contains, or None."""
    return _region_in(urlsplit(url).hostname)


def _region_in(host: str | None) -> str | None:
    found = _REGION_IN_HOST.search(host or "")
    return (found[1] or found[2]) if found else None


def place_of_arn(arn: str) -> Place:
    """Return the queue of `arn:aws:sqs:region:account:name`; anything else is treated as a plain name."""
    parts = arn.split(":")
    if len(parts) != 6:
        return Place(None, arn)
    return Place(f"{parts[4]}/{parts[3]}", parts[5])


def origin_of(attributes: Mapping[str, str], queue: str) -> str | None:
    """Return the queue from which SQS says a message came to `queue`. Back there after a redrive, it may still name it: None."""
    arn = attributes.get("DeadLetterQueueSourceArn")
    origin = place_of_arn(arn).queue if arn else None
    return None if origin == queue else origin
