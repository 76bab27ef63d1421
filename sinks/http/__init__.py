"""The HTTP service: status page, metrics, API, health and ingest."""

from sinks.http.access import Access, Credentials
from sinks.http.app import create_app
from sinks.http.connections import ConnectionLimits
from sinks.http.server import CannotListenError, PortInUseError, RunningServer, Tls, check_address, serve
from sinks.http.settings import RUNBOOK_PATH, HttpSettings, IngestSettings, Page
from sinks.http.staging import Spool, Stage, StageFullError, StageUnavailableError

__all__ = [
    "RUNBOOK_PATH",
    "Access",
    "CannotListenError",
    "ConnectionLimits",
    "Credentials",
    "HttpSettings",
    "IngestSettings",
    "Page",
    "PortInUseError",
    "RunningServer",
    "Spool",
    "Stage",
    "StageFullError",
    "StageUnavailableError",
    "Tls",
    "check_address",
    "create_app",
    "serve",
]
