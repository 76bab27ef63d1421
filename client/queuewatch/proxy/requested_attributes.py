"""The attributes a ReceiveMessage requests, and those that telemetry needs in addition."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

_ALL: Final = "All"


class RequestedAttributes(NamedTuple):
    """The attributes the application requested, if telemetry needs more."""

    system: frozenset[str] | None
    """Names of system attributes; None if the application requested all."""
    hide_message_attributes: bool
    """Whether it requested no custom attribute although telemetry needs one."""

    @property
    def changes(self) -> bool:
        return self.system is not None or self.hide_message_attributes


NOTHING_CHANGED: Final = RequestedAttributes(None, False)


def request_all(params: Mapping[str, Any], lineage_attribute: str | None) -> RequestedAttributes:
    """Return what the application requested, where telemetry also needs all system attributes and the lineage attribute."""
    names = {*(params.get("MessageSystemAttributeNames") or ()), *(params.get("AttributeNames") or ())}
    # An additional custom attribute would change the digest that SQS computes over the returned ones.
    hide = lineage_attribute is not None and not params.get("MessageAttributeNames")
    return RequestedAttributes(None if _ALL in names else frozenset(names), hide)
