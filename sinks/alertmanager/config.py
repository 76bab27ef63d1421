"""Section `alertmanager` of the configuration file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, model_validator

from alerts.config import BaseUrl
from streaming.config.section import NOT_A_TOKEN, Count, Seconds, Secret, Section, is_token, secret_of
from streaming.judge.findings.signals import Severity


class Destination(Section):
    """One Alertmanager. Secrets come from a file, or from the environment."""

    url: BaseUrl
    """Its URL as opened in a browser, including a path prefix if there is one."""
    username: str | None = None
    password: Secret = None
    password_file: Path | None = None
    token: Secret = None
    token_file: Path | None = None
    """File with a bearer token."""
    ca_file: Path | None = None
    """PEM certificates to trust instead of the system's."""
    timeout_s: Annotated[float, Field(gt=0)] = 5

    @model_validator(mode="after")
    def _one_login(self) -> Self:
        basic = self.username is not None
        bearer = self.token is not None or self.token_file is not None
        if basic and bearer:
            raise ValueError("username and token: choose one way to log in")
        if basic and self.password is None and self.password_file is None:
            raise ValueError("username needs a password: set password_file")
        if not basic and (self.password is not None or self.password_file is not None):
            raise ValueError("a password needs a username")
        if self.token is not None and not is_token(self.token.get_secret_value()):
            raise ValueError(f"the token {NOT_A_TOKEN}")
        return self

    def authorization(self) -> tuple[str, str] | str | None:
        """Return (user, password), a bearer token, or None.

        Raises `OSError` if a file cannot be read, `ValueError` if its content cannot be sent.
        """
        if self.username is not None:
            return self.username, secret_of(self.password, self.password_file) or ""
        token = secret_of(self.token, self.token_file)
        if token is not None and not is_token(token):
            raise ValueError(f"{self.token_file} {NOT_A_TOKEN}")
        return token


class AlertmanagerConfig(Section):
    """Direct push of signals. Names, links and switches of the alerts come from section `alerts`."""

    destinations: tuple[Destination, ...] = Field(min_length=1)
    """Each destination gets all alerts; list all members of an Alertmanager cluster."""
    min_severity: Severity = "warning"
    """Signals of a lower severity are not pushed."""
    resend_s: Annotated[float, Field(ge=1)] = 60
    """How often firing alerts are sent again; if nothing arrives for four times as long, Alertmanager resolves them."""
    keep_firing_s: Seconds = 15
    """How long a signal must be gone before it is resolved, to avoid flapping."""
    max_per_queue: Count = 25
    """Maximum alerts per signal and queue, each with its message, group or consumer; the rest become one more alert."""
    max_alerts: Count = 2_000
    """Maximum alerts in total; those beyond are counted but not sent, starting with the lowest severity and the newest."""
