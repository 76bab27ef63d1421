"""What a ReceiveMessage asks for, and what has to be asked for besides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

_ALL: Final = "All"


class Asked(NamedTuple):
    """What an application asked for, where it was less than telemetry needs."""

    system: frozenset[str] | None
    """Names of system attributes; None when the application asked for all itself."""
    hide_message_attributes: bool
    """It asked for no custom attribute, and one is asked for all the same."""

    @property
    def changes(self) -> bool:
        return self.system is not None or self.hide_message_attributes


NOTHING_CHANGED: Final = Asked(None, False)


def ask_for_all(params: Mapping[str, Any], lineage_attribute: str | None) -> Asked:
    """What of the answer to a ReceiveMessage with all system attributes (and the lineage attribute) is to be kept."""
    names = {*(params.get("MessageSystemAttributeNames") or ()), *(params.get("AttributeNames") or ())}
    # One more attribute beside some would change the digest SQS gives over those returned.
    hide = lineage_attribute is not None and not params.get("MessageAttributeNames")
    return Asked(None if _ALL in names else frozenset(names), hide)
