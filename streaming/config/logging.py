"""The service's own log: one structured event per line, on standard error."""

from __future__ import annotations

import logging
import sys
from typing import TextIO

import structlog

from streaming.config.service import LogSection

# Libraries that log each request or reconnect attempt; and py4j, which repeats what Spark and the job already log.
# uvicorn's warnings are about requests that clients get wrong, and its advice on WebSockets does not apply.
_QUIET = {"kafka": logging.ERROR, "py4j": logging.CRITICAL, "httpx": logging.WARNING, "uvicorn": logging.ERROR}


def set_up_logging(config: LogSection, stream: TextIO | None = None) -> None:
    """Send structlog's and the standard library's records to `stream` (default: standard error) according to `config`.

    It can be called again; the last call takes effect.
    """
    target = stream if stream is not None else sys.stderr
    level = logging.getLevelNamesMapping()[config.level.upper()]
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    on_terminal = target.isatty()
    as_json = config.format == "json" or (config.format == "auto" and not on_terminal)
    last: list[structlog.typing.Processor]
    if as_json:
        last = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=str)]
    else:
        # The default formatter shows the variables of each frame, and there are secrets among them.
        last = [structlog.dev.ConsoleRenderer(colors=on_terminal, exception_formatter=structlog.dev.plain_traceback)]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.stdlib.add_logger_name,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[structlog.stdlib.add_logger_name, *shared],
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
    )
    handler = logging.StreamHandler(target)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level)
    for name, quiet in _QUIET.items():
        logging.getLogger(name).setLevel(max(level, quiet))
