"""Kafka connection settings, and their translation for Spark's connector and kafka-python."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from streaming.config.section import NEEDS_SECRET, Names, Secret, Section, secret_of

_LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


class KafkaConnection(Section):
    """Brokers and their credentials."""

    bootstrap_servers: Names
    """`host:port` of some brokers of the cluster."""
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] | None = None
    sasl_username: str | None = None
    sasl_password: Secret = None
    sasl_password_file: Path | None = None
    ssl_ca_file: Path | None = None
    """PEM certificates to trust; default: the trust stores of Java and Python."""
    ssl_certificate_file: Path | None = None
    """PEM file with this client's certificate chain and its key without a password, for brokers that require one."""

    @model_validator(mode="after")
    def _login_is_whole(self) -> Self:
        if self.security_protocol.startswith("SASL"):
            if self.sasl_mechanism is None or self.sasl_username is None:
                raise ValueError("security_protocol requires a login: set sasl_mechanism and sasl_username too")
            if self.sasl_password is None and self.sasl_password_file is None:
                raise PydanticCustomError(NEEDS_SECRET, "a login needs a password", {"secret": "sasl_password"})
        return self

    def password(self) -> str | None:
        """Read the password from the configured place. Raises `OSError` or `ValueError` if its file cannot be read."""
        return secret_of(self.sasl_password, self.sasl_password_file)

    def java_options(self) -> dict[str, str]:
        """Return client properties for Kafka's Java clients, including the password."""
        options = {
            "bootstrap.servers": ",".join(self.bootstrap_servers),
            "security.protocol": self.security_protocol,
        }
        if self.sasl_mechanism is not None:
            options["sasl.mechanism"] = self.sasl_mechanism
            login = _LOGIN_MODULES[self.sasl_mechanism]
            user, password = _quoted(self.sasl_username or ""), _quoted(self.password() or "")
            options["sasl.jaas.config"] = f"{login} required username={user} password={password};"
        if self.ssl_ca_file is not None:
            options |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.ssl_ca_file)}
        if self.ssl_certificate_file is not None:
            options |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(self.ssl_certificate_file)}
        return options

    def python_options(self) -> dict[str, Any]:
        """Return keyword arguments for the clients of kafka-python, including the password."""
        options: dict[str, Any] = {
            "bootstrap_servers": list(self.bootstrap_servers),
            "security_protocol": self.security_protocol,
        }
        if self.sasl_mechanism is not None:
            options |= {
                "sasl_mechanism": self.sasl_mechanism,
                "sasl_plain_username": self.sasl_username,
                "sasl_plain_password": self.password(),
            }
        if self.ssl_ca_file is not None:
            options["ssl_cafile"] = str(self.ssl_ca_file)
        if self.ssl_certificate_file is not None:
            file = str(self.ssl_certificate_file)
            # Given no password at all, OpenSSL asks for that of an encrypted key at the terminal, and waits.
            options |= {"ssl_certfile": file, "ssl_keyfile": file, "ssl_password": ""}
        return options


class KafkaTopic(KafkaConnection):
    """A topic to write to."""

    topic: str = Field(min_length=1)


def _quoted(text: str) -> str:
    """Quote a value for a JAAS line."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
