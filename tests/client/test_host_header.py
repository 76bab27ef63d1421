"""The Host header as the proxy and the service read it."""

from __future__ import annotations

import pytest

from queuewatch.host_header import host_name, is_private


@pytest.mark.parametrize(
    ("header", "name"),
    [("a:1", "a"), ("[::1]:1", "::1"), ("[::1]x", None), ("A.", "a"), (":1", None), ("1.2.3.4", "1.2.3.4")],
)
def test_host_name_parses_a_host_header(header: str, name: str | None) -> None:
    """Port, brackets and the trailing dot are removed."""
    assert host_name(header) == name


@pytest.mark.parametrize(
    ("name", "private"),
    [
        ("::1", True),
        ("10.0.0.7", True),
        ("queuewatch", True),
        ("queuewatch.monitoring.svc.cluster.local", True),
        ("box.example.com", True),
        ("example.com", False),
        ("10.0.0.7.example.com", False),
        ("local.example.com", False),
    ],
)
def test_a_private_name_is_none_of_a_foreign_page(name: str, private: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """An address, this machine's own name, a name without a dot, or one that nobody can register."""
    monkeypatch.setattr("socket.gethostname", lambda: "Box.example.com")
    assert is_private(name) == private
