"""The common part of every `queuewatch doctor`: findings, an exit code, text and JSON."""

from sources.doctor.finding import SEVERITIES, Examination, Finding, Severity
from sources.doctor.report import as_json, as_text

__all__ = ["SEVERITIES", "Examination", "Finding", "Severity", "as_json", "as_text"]
