"""Run one collector until it is stopped."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from typing import Any, Final

from pydantic import BaseModel

from queuewatch.backoff import Backoff
from queuewatch.transports import Transport
from sources.collect.base import Collector, CollectorRefused
from sources.collect.destination import Destination, DestinationStopped
from sources.collect.registry import collector_class, config_model

_log = logging.getLogger(__name__)

_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 60.0
_STABLE_AFTER_S: Final = 120.0


def run_collector(
    kind: str,
    config: BaseModel | Mapping[str, Any],
    destination: str | Transport,
    stop: threading.Event,
) -> int:
    """Run the collector of `kind` until `stop` is set; returns how many events were delivered.

    `config` is its section, as the model or as plain values; `destination` is a URL or a transport. A collector that
    fails, or returns before `stop` is set, is restarted after a pause. Raises `ValueError` for an unknown kind, a wrong
    configuration or an invalid destination, and `CollectorRefused`.
    """
    model = config if isinstance(config, BaseModel) else config_model(kind).model_validate(config)
    made = collector_class(kind)
    with Destination(destination, stop) as emit:
        backoff = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        while not stop.is_set():
            began_s = time.monotonic()
            try:
                collector: Collector = made.from_config(model)
                collector.run(emit, stop)
                if not stop.is_set():
                    raise RuntimeError("it returned before it was stopped")
            except CollectorRefused:
                raise
            except DestinationStopped as error:
                _log.error("%s: stopped with events undelivered: %s", kind, error)
                break
            except Exception:
                if time.monotonic() - began_s > _STABLE_AFTER_S:
                    backoff.reset()
                pause_s = backoff.pause_s()
                _log.exception("the %s collector failed and is started again in %.0f s", kind, pause_s)
                stop.wait(pause_s)
        return emit.delivered
