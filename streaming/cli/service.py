"""The implementation of `run`: HTTP service, sinks and streaming job in one process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack

import structlog

from alerts.config import AlertRulesConfig
from alerts.runbook import runbook_html
from sinks.alertmanager.push import AlertmanagerPush
from sinks.http import (
    RUNBOOK_PATH,
    Access,
    ConnectionLimits,
    Credentials,
    HttpSettings,
    IngestSettings,
    Page,
    RunningServer,
    Spool,
    Tls,
    create_app,
    serve,
)
from sinks.store import SnapshotStore
from sources.wire.scan import is_compiled
from streaming.checkpoint.manifest import Checkpoint
from streaming.cli.outlets import OutletMetrics, open_outlets
from streaming.cli.signals import stopped_by_signals
from streaming.config.check import check_files_of, check_http, read_secret, unread_variables, warnings
from streaming.config.errors import ConfigError
from streaming.config.logging import set_up_logging
from streaming.config.model import Config, to_settings
from streaming.config.service import AuthSection
from streaming.core.settings import Settings
from streaming.delivery.outlets import Outlets
from streaming.folder import local_folder
from streaming.health.monitor import Monitor
from streaming.spark.job import FolderOf, open_job, source_kinds

_log = structlog.get_logger(__name__)


def serve_until_stopped(config: Config) -> None:
    """Run the service until SIGTERM or SIGINT; the current batch is finished first, a second signal stops at once.

    Raises errors that name the problem and the fix: a port in use, a broker that does not answer, an incompatible checkpoint.
    """
    set_up_logging(config.log)
    stop = threading.Event()
    with stopped_by_signals(stop):
        run_service(config, stop)
    _log.info("stopped")


def run_service(
    config: Config,
    stop: threading.Event,
    *,
    store: SnapshotStore | None = None,
    on_listening: Callable[[RunningServer], None] = lambda _: None,
) -> None:
    """Run the service in this thread until `stop` is set. `on_listening` gets the server before Spark starts."""
    source_kinds(config)
    settings = to_settings(config)
    store = store if store is not None else SnapshotStore()
    monitor = Monitor()
    with ExitStack() as stack:
        # First everything that can fail at once, because Spark takes seconds to start.
        if config.source.kafka is not None:
            check_files_of(config.source.kafka, "source.kafka")
        check_http(config)
        push = _alertmanager(config)
        if push is not None:
            stack.callback(push.close)
        outlet_metrics = OutletMetrics()
        server = stack.enter_context(_http(config, settings, store, push, outlet_metrics, monitor))
        _log.info("listening", url=server.url)
        for line in warnings(config):
            _log.warning("unsafe_setting", warning=line)
        for line in unread_variables(config):
            _log.warning("unread_variable", warning=line)
        if not is_compiled():
            _log.warning(
                "slow_decoding", warning="a slower JSON parser is in use: install gcc, then reinstall queuewatch-service"
            )
        on_listening(server)

        def outlets_for(checkpoint: Checkpoint, folder_of: FolderOf) -> AbstractContextManager[Outlets]:
            return open_outlets(config, checkpoint, folder_of, store, push, outlet_metrics)

        job = stack.enter_context(open_job(config, outlets_for, monitor))
        job.run(stop)


def _alertmanager(config: Config) -> AlertmanagerPush | None:
    section = config.section("alertmanager")
    if section is None:
        return None
    check_files_of(section, "alertmanager")
    return AlertmanagerPush(section, config.section("alerts"))


def _http(
    config: Config,
    settings: Settings,
    store: SnapshotStore,
    push: AlertmanagerPush | None,
    outlets: OutletMetrics,
    monitor: Monitor,
) -> RunningServer:
    rules = config.section("alerts") or AlertRulesConfig()
    app = create_app(
        store,
        HttpSettings(
            access=Access(
                _credentials("http.auth", config.http.auth),
                _credentials("http.metrics_auth", config.http.metrics_auth),
                config.http.allowed_hosts,
            ),
            connections=ConnectionLimits(config.http.max_connections, config.http.max_connections_per_address),
            ready_within_s=config.http.ready_within_s,
            judging=settings,
            # Their defaults are guesses, good enough for a rule's link but not for the page, which has a runbook of its own.
            runbook_base_url=rules.runbook_base_url if "runbook_base_url" in rules.model_fields_set else None,
            grafana_url=rules.grafana_url if "grafana_url" in rules.model_fields_set else None,
            objectives=rules.objectives,
            ingest=_ingest(config),
            metrics_left_out=frozenset(config.http.metrics_left_out),
            metrics_zero_states=config.http.metrics_zero_states,
            about_sinks=[monitor.families, outlets, *([push.families] if push is not None else [])],
            job_fault=lambda: monitor.liveness.fault(config.http.healthy_within_s),
            job_silent_s=lambda: monitor.liveness.silent_s,
            pages={RUNBOOK_PATH: Page(runbook_html(rules, settings.defaults).encode())},
        ),
    )
    files = config.http.tls
    tls = Tls(files.cert_file, files.key_file) if files.cert_file and files.key_file else None
    return serve(app, config.http.host, config.http.port, tls)


def _credentials(key: str, section: AuthSection) -> Credentials:
    password, token = read_secret(key, section.secrets)
    return Credentials(section.username, password, token)


def _ingest(config: Config) -> IngestSettings | None:
    section = config.http.ingest
    if not section.enabled:
        return None
    spool = config.source.spool
    folder = local_folder(spool.folder) if spool is not None else None
    assert folder is not None, "the model refuses ingest without a local spool folder"
    token = read_secret("http.ingest", section.bearer_token)
    try:
        stage = Spool(folder.path, max_spooled_bytes=section.max_spooled_bytes)
    except OSError as error:
        raise ConfigError("http.ingest", f"{error.filename}: {error.strerror}", "Create it, or configure another file") from error
    return IngestSettings(stage, token=token, max_body_bytes=section.max_body_bytes, max_events=section.max_events)
