"""Sections whose models live with the code they configure; imported only when the file has them."""

from __future__ import annotations

import importlib
from typing import Final, NamedTuple

from pydantic import BaseModel

from streaming.config.document import KeyPath


class Room(NamedTuple):
    """Where the model of a section is."""

    module: str
    model: str

    def load(self) -> type[BaseModel] | None:
        """The model, or None when this installation does not have it."""
        try:
            found: object = getattr(importlib.import_module(self.module), self.model)
        except ModuleNotFoundError as error:
            # Only the room itself may be absent; a missing dependency of it is another matter.
            if error.name and (self.module == error.name or self.module.startswith(f"{error.name}.")):
                return None
            raise
        assert isinstance(found, type)
        assert issubclass(found, BaseModel)
        return found


ROOMS: Final[dict[KeyPath, Room]] = {
    ("collect", "sqs"): Room("sources.sqs.config", "SqsCollectorConfig"),
    ("collect", "activemq"): Room("sources.activemq.config", "ActiveMQCollectorConfig"),
    ("collect", "cloudflare"): Room("sources.cloudflare.config", "CloudflareCollectorConfig"),
    ("alerts",): Room("alerts.config", "AlertRulesConfig"),
    ("alertmanager",): Room("sinks.alertmanager.config", "AlertmanagerConfig"),
}
