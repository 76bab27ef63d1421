"""Errors that prevent a replay."""

from __future__ import annotations


class ReplayError(Exception):
    """A replay is not possible; the message names the file or option, and the fix."""
