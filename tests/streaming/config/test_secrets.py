"""Secrets come from the environment or from files of their own, never from the configuration file."""

from __future__ import annotations

from pathlib import Path

import pytest

from sinks.alertmanager.config import AlertmanagerConfig
from streaming.config import load_config
from tests.streaming.config.files import ConfigFile, mistakes

SASL = "security_protocol: SASL_SSL, sasl_mechanism: PLAIN, sasl_username: me"


def test_a_secret_in_the_file_is_refused_beside_a_mapping_in_a_variable(write: ConfigFile) -> None:
    """The mapping keeps what the file has: its secret is still in the file."""
    path = write(f"source:\n  kafka: {{bootstrap_servers: [a:1], topics: [t], {SASL}, sasl_password: hunter2}}\n")
    (mistake,) = mistakes(path, QUEUEWATCH_SOURCE__KAFKA="{topics: [u]}")
    assert "is a secret and must not be in the file" in mistake.problem


def test_a_secret_in_the_file_is_refused(write: ConfigFile) -> None:
    """The error names the two ways to give it and does not repeat the secret."""
    path = write(f"source:\n  kafka: {{bootstrap_servers: [a:1], topics: [t], {SASL}, sasl_password: hunter2}}\n")
    (mistake,) = mistakes(path)
    assert "sasl_password_file" in mistake.fix
    assert "QUEUEWATCH_SOURCE__KAFKA__SASL_PASSWORD" in mistake.fix
    assert "hunter2" not in str(mistake)


def test_a_login_without_a_password_names_the_file_and_the_variable(write: ConfigFile) -> None:
    """The variable is the one of this section: the signal log has a login of its own."""
    kafka = f"{{bootstrap_servers: [a:1], {SASL}"
    path = write(f"source: {{kafka: {kafka}, topics: [t]}}}}\nsignal_log: {{kafka: {kafka}, topic: t}}}}\n")
    assert [mistake.fix for mistake in mistakes(path)] == [
        f"Set {section}.sasl_password_file, or set QUEUEWATCH_{variable}__SASL_PASSWORD"
        for section, variable in (("source.kafka", "SOURCE__KAFKA"), ("signal_log.kafka", "SIGNAL_LOG__KAFKA"))
    ]


def test_a_secret_comes_from_the_environment_or_from_a_file(write: ConfigFile, tmp_path: Path) -> None:
    """Either way, both clients get the password."""
    kafka = f"bootstrap_servers: [a:1], topics: [t], {SASL}"
    by_env = load_config(
        write(f"source: {{kafka: {{{kafka}}}}}\n"), {"QUEUEWATCH_SOURCE__KAFKA__SASL_PASSWORD": 'hun"ter\\2'}
    ).source.kafka
    (tmp_path / "password").write_text('hun"ter\\2\n')
    by_file = load_config(write(f"source: {{kafka: {{{kafka}, sasl_password_file: {tmp_path}/password}}}}\n"), {}).source.kafka
    for source in (by_env, by_file):
        assert source is not None
        assert source.python_options()["sasl_plain_password"] == 'hun"ter\\2'
        assert 'username="me" password="hun\\"ter\\\\2";' in source.java_options()["sasl.jaas.config"]
        assert "hun" not in repr(source)


@pytest.mark.parametrize("secret", ["[s3cret]", "{s3cret", '"[s3cret]"', "[ s3: *cret"])
def test_a_secret_in_a_variable_is_text_however_it_begins(write: ConfigFile, secret: str) -> None:
    """It is not read as a list or mapping, so it needs no quotes, and quotes are part of it."""
    kafka = f"bootstrap_servers: [a:1], topics: [t], {SASL}"
    variables = ("HTTP__INGEST__TOKEN", "SOURCE__KAFKA__SASL_PASSWORD")
    config = load_config(write(f"source: {{kafka: {{{kafka}}}}}\n"), {f"QUEUEWATCH_{name}": secret for name in variables})
    assert config.http.ingest.bearer_token() == secret
    assert config.source.kafka is not None
    assert config.source.kafka.python_options()["sasl_plain_password"] == secret


def test_an_incomplete_login_is_refused(write: ConfigFile) -> None:
    """It is found when the file is read, not when the broker refuses it."""
    path = write("source:\n  kafka: {bootstrap_servers: [a:1], topics: [t], security_protocol: SASL_SSL}\n")
    assert "sasl_mechanism and sasl_username" in str(mistakes(path)[0])


def test_a_secret_of_a_list_s_entry_comes_with_the_whole_list(write: ConfigFile) -> None:
    """The error says so, and doing what it says works."""
    path = write("alertmanager: {destinations: [{url: 'http://a:9093', token: hunter2}]}")
    mistake = str(mistakes(path)[0])
    assert "alertmanager.destinations[0].token_file, or set QUEUEWATCH_ALERTMANAGER__DESTINATIONS to the whole list" in mistake
    assert "hunter2" not in mistake
    path = write("alertmanager: {destinations: [{url: 'http://a:9093'}]}")
    env = {"QUEUEWATCH_ALERTMANAGER__DESTINATIONS": "[{url: 'http://b:9093', token: hunter2}]"}
    section = load_config(path, env).alertmanager
    assert isinstance(section, AlertmanagerConfig)
    (destination,) = section.destinations
    assert destination.token is not None
    assert (destination.url, destination.token.get_secret_value()) == ("http://b:9093", "hunter2")


def test_a_secret_among_extra_options_is_refused(write: ConfigFile) -> None:
    """Extra options offer no way around the rule."""
    path = write("source:\n  kafka: {bootstrap_servers: [a:1], topics: [t], options: {ssl.key.password: x}}\n")
    assert "is a secret" in str(mistakes(path)[0])
