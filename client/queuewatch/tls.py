"""Recognize a port without TLS behind an address that asks for TLS."""

from __future__ import annotations

from typing import Final

HTTP_FIX: Final = "this port does not speak TLS: use http:// instead of https://, or correct the port"

_REASONS: Final = ("wrong version number", "record layer failure", "packet length too long")
"""OpenSSL's words for an answer that is not TLS; which of them depends on its release. botocore and httpx keep only the text."""


def is_plain_text(error: object) -> bool:
    """Return whether a TLS handshake failed because the other side does not speak TLS."""
    text = str(error).lower().replace("_", " ")
    return any(reason in text for reason in _REASONS)
