"""External sections: their models live with the code they configure, and are imported only if the file has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pydantic import BaseModel

from sources.collect.registry import KINDS
from streaming.config.document import KeyPath


def _alert_rules() -> type[BaseModel]:
    from alerts.config import AlertRulesConfig

    return AlertRulesConfig


def _alertmanager() -> type[BaseModel]:
    from sinks.alertmanager.config import AlertmanagerConfig

    return AlertmanagerConfig


EXTERNAL_SECTIONS: Final[dict[KeyPath, Callable[[], type[BaseModel]]]] = {
    **{("collect", kind.section): kind.config for kind in KINDS.values()},
    ("alerts",): _alert_rules,
    ("alertmanager",): _alertmanager,
}
"""Loaders of the models by key."""
