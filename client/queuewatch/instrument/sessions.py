"""Watches every new botocore session, including those of boto3, aiobotocore and aioboto3, and their clients."""

from __future__ import annotations

import logging
import os
from typing import Any

from queuewatch.transports.sqs import own_session
from queuewatch.watching import is_disabled, watch

_log = logging.getLogger("queuewatch.client")

_failed = False


def watch_every_session() -> None:
    """Watch all new sessions through botocore's registry of initializers. Settings come from the environment."""
    if is_disabled():
        return
    import botocore

    botocore.register_initializer(_watch)


def _watch(session: Any) -> None:
    global _failed  # noqa: PLW0603 -- one per process, like the hook
    if _failed or getattr(own_session, "in_the_making", False):
        return
    try:
        watch(
            session,
            scope=os.environ.get("QUEUEWATCH_SCOPE") or None,
            exit_deadline_s=float(os.environ.get("QUEUEWATCH_EXIT_DEADLINE_S") or 2.0),
        )
    except Exception as error:  # the application must get its session in any case
        _failed = True
        _log.warning("this process is not watched: %s", error)
