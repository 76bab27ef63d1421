"""The configuration accepts valid values and refuses others with a reason."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from sources.activemq.config import ActiveMQCollectorConfig, Address, matches, parse_address


@pytest.mark.parametrize(
    ("pattern", "queue", "fits"),
    [
        (">", "a.b.c", True),
        ("a.>", "a.b.c", True),
        ("a.>", "a", True),  # the broker matches it too
        ("a.>", "ab", False),
        ("a.*", "a.b", True),
        ("a.*", "a.b.c", False),
        ("*.dlq", "a.dlq", True),
        ("a", "a", True),
        ("a", "A", False),
    ],
)
def test_patterns_match_as_in_the_broker(pattern: str, queue: str, fits: bool) -> None:
    assert matches(pattern, queue) is fits


def test_an_address_has_the_default_port_of_its_scheme() -> None:
    assert parse_address("stomp://a") == Address("a", 61613, False)
    assert parse_address("stomp+ssl://a") == Address("a", 61614, True)
    assert parse_address("stomp://[::1]:7") == Address("::1", 7, False)


@pytest.mark.parametrize("address", ["stomp://a:61613", "stomp+ssl://[::1]:7"])
def test_an_address_is_named_as_it_is_written(address: str) -> None:
    assert str(parse_address(address)) == address


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("tcp://a:61616", "write stomp://host:port"),
        ("a:61613", "write stomp://host:port"),
        ("stomp://", "write stomp://host:port"),
        ("stomp://a:99999", "not a number from 1 to 65535"),
        ("stomp://a:0", "not a number from 1 to 65535"),
        ("stomp://a:61613#x", "scheme, host and port only"),
        ("stomp://u:p@a", "give username and password_file"),
        ("stomp://a/x", "scheme, host and port only"),
    ],
)
def test_an_invalid_address_is_refused_with_the_right_form(address: str, said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        ActiveMQCollectorConfig(addresses=(address,))


@pytest.mark.parametrize(
    "address", ["stomp://user:hunter2@host", "ssl://user:hunter2@host:61617", "user:hunter2@host", "tcp://user:hunter2/x@host"]
)
def test_the_error_does_not_repeat_a_password_in_an_address(address: str) -> None:
    with pytest.raises(ValueError, match="give username") as caught:
        parse_address(address)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("pattern", ["", "a,b", "queue://a", ">.a", "a.>.b"])
def test_a_wrong_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(ValidationError):
        ActiveMQCollectorConfig(queues=(pattern,))


def test_no_key_takes_a_password() -> None:
    with pytest.raises(ValidationError, match="extra"):
        ActiveMQCollectorConfig(password="x")  # type: ignore[call-arg]  # what a user might write


def test_a_password_comes_from_a_file_or_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "password"
    file.write_text("sesame open\n")
    monkeypatch.setenv("QUEUEWATCH_ACTIVEMQ_PASSWORD", "from the environment")
    assert ActiveMQCollectorConfig(username="u", password_file=file).password() == "sesame open"
    assert ActiveMQCollectorConfig(username="u").password() == "from the environment"
    assert ActiveMQCollectorConfig().password() is None


def test_a_missing_password_file_is_named(tmp_path: Path) -> None:
    config = ActiveMQCollectorConfig(username="u", password_file=tmp_path / "nowhere")
    with pytest.raises(ValueError, match="nowhere: No such file"):
        config.password()


def test_which_queues_are_watched() -> None:
    config = ActiveMQCollectorConfig(queues=("shop.>",), exclude=("shop.debug.>",))
    assert config.is_watched("shop.orders")
    assert not config.is_watched("shop.debug.trace")
    assert not config.is_watched("crm.leads")
    assert not ActiveMQCollectorConfig().is_watched("queuewatch.probe")
    assert not ActiveMQCollectorConfig().is_watched("ID:host-1-2:3:1")


def test_a_key_file_needs_its_certificate() -> None:
    with pytest.raises(ValidationError, match="key_file needs certificate_file"):
        ActiveMQCollectorConfig.model_validate({"tls": {"key_file": "k.pem"}})


def test_a_password_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    """The error of the decoder alone names no file."""
    file = tmp_path / "password"
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match=r"password_file .*password: it is not UTF-8 text"):
        ActiveMQCollectorConfig(username="u", password_file=file).password()
