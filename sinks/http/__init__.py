"""The HTTP service: status page, metrics, API, health and ingest."""

from sinks.http.app import create_app
from sinks.http.server import CannotListenError, PortInUseError, RunningServer, serve
from sinks.http.settings import HttpSettings, IngestSettings, Page
from sinks.http.staging import Spool, Stage, StageFullError, StageUnavailableError

__all__ = [
    "CannotListenError",
    "HttpSettings",
    "IngestSettings",
    "Page",
    "PortInUseError",
    "RunningServer",
    "Spool",
    "Stage",
    "StageFullError",
    "StageUnavailableError",
    "create_app",
    "serve",
]
