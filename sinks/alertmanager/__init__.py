"""Direct push of firing signals to Alertmanager, with data a metric cannot carry: ids, evidence, what to do."""

from sinks.alertmanager.config import AlertmanagerConfig, Destination
from sinks.alertmanager.push import AlertmanagerPush

__all__ = ["AlertmanagerConfig", "AlertmanagerPush", "Destination"]
