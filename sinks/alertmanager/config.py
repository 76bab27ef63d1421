"""Section `alertmanager` of the configuration file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, model_validator

from alerts.config import BaseUrl
from streaming.config.section import Count, Seconds, Secret, Section
from streaming.judge.signals import Severity


class Destination(Section):
    """One Alertmanager. Secrets come from a file, or from the environment."""

    url: BaseUrl
    """Its address as a browser would open it, any path prefix included."""
    username: str | None = None
    password: Secret = None
    password_file: Path | None = None
    token: Secret = None
    token_file: Path | None = None
    """Holds a bearer token."""
    ca_file: Path | None = None
    """PEM certificates to trust, where the machine's own do not do."""
    timeout_s: Annotated[float, Field(gt=0)] = 5

    @model_validator(mode="after")
    def _one_login(self) -> Self:
        basic = self.username is not None
        bearer = self.token is not None or self.token_file is not None
        if basic and bearer:
            raise ValueError("username and token: choose one way to log in")
        if basic and self.password is None and self.password_file is None:
            raise ValueError("username needs its password: set password_file")
        if not basic and (self.password is not None or self.password_file is not None):
            raise ValueError("a password needs its username")
        return self

    def authorization(self) -> tuple[str, str] | str | None:
        """(user, password), a bearer token, or nothing. Files are read now; raises `OSError` when one
        cannot be.
        """
        if self.username is not None:
            return self.username, _secret(self.password, self.password_file) or ""
        return _secret(self.token, self.token_file)


class AlertmanagerConfig(Section):
    """Direct push of signals. Names, links and switches of the alerts come from section `alerts`."""

    destinations: tuple[Destination, ...] = Field(min_length=1)
    """Every one gets everything; list all members of an Alertmanager cluster."""
    min_severity: Severity = "warning"
    """Signals below are not pushed."""
    resend_s: Annotated[float, Field(ge=1)] = 60
    """What fires is sent again so often; without a word for four times as long, Alertmanager lets it end."""
    keep_firing_s: Seconds = 15
    """A signal must be gone for so long before it is resolved: one that comes and goes does not flap."""
    max_per_queue: Count = 25
    """Alerts of one signal and queue, each with its message, group or consumer; the rest is one alert more."""
    max_alerts: Count = 2_000
    """Of all; what is beyond is counted and not sent, the mildest and newest first."""


def _secret(value: Secret, file: Path | None) -> str | None:
    if value is not None:
        return value.get_secret_value()
    return file.read_text(encoding="utf-8").strip() if file is not None else None
