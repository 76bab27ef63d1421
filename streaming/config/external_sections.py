"""External sections: their models live with the code they configure, and are imported only if the file has them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Final

from pydantic import BaseModel

from sources.collect.registry import KINDS, config_model
from streaming.config.document import KeyPath


def _alert_rules() -> type[BaseModel]:
    from alerts.config import AlertRulesConfig

    return AlertRulesConfig


def _alertmanager() -> type[BaseModel]:
    from sinks.alertmanager.config import AlertmanagerConfig

    return AlertmanagerConfig


EXTERNAL_SECTIONS: Final[dict[KeyPath, Callable[[], type[BaseModel]]]] = {
    **{("collect", kind.section): functools.partial(config_model, name) for name, kind in KINDS.items()},
    ("alerts",): _alert_rules,
    ("alertmanager",): _alertmanager,
}
"""Loaders of the models by key. That of a collector raises `ValueError` where it cannot be loaded."""

COLLECTOR_SECTIONS: Final[tuple[str, ...]] = tuple(str(key[1]) for key in EXTERNAL_SECTIONS if key[0] == "collect")
"""The sections under `collect:`, in order."""
