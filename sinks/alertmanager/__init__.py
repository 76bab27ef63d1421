"""Firing signals pushed straight to Alertmanager, with what a metric cannot carry: ids, evidence, what to
do.
"""

from sinks.alertmanager.config import AlertmanagerConfig, Destination
from sinks.alertmanager.push import AlertmanagerPush

__all__ = ["AlertmanagerConfig", "AlertmanagerPush", "Destination"]
