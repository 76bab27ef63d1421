"""How findings are shown: the worst first, each with its fix, as text and as JSON."""

from __future__ import annotations

import json

import pytest

from sources.doctor import Examination, Finding, Severity, as_json, as_text

XML = "<plugins>\n  <statisticsBrokerPlugin/>\n</plugins>"
EXAMINATION = Examination(
    system="aws_sqs",
    passed=["fine"],
    findings=[
        Finding(rule="unencrypted", severity="warning", queue="a", scope="1/eu-west-1", summary="Plain.", fix="Encrypt."),
        Finding(rule="fifo_throughput", severity="info", queue="b", scope="1/eu-west-1", summary="Slow."),
        Finding(rule="allow_policy", severity="critical", queue="b", scope="1/eu-west-1", summary="Refused.", fix="Allow."),
        Finding(rule="not_examined", severity="info", scope="eu-west-1", summary="No Lambda."),
    ],
)


def test_findings_are_grouped_by_queue_with_the_worst_first() -> None:
    """Findings about the whole account come first, the totals last."""
    assert as_text(EXAMINATION).splitlines() == [
        "eu-west-1",
        "  info      not_examined: No Lambda.",
        "b  (1/eu-west-1)",
        "  critical  allow_policy: Refused.",
        "            Fix: Allow.",
        "  info      fifo_throughput: Slow.",
        "a  (1/eu-west-1)",
        "  warning   unencrypted: Plain.",
        "            Fix: Encrypt.",
        "ok          fine",
        "4 findings: 1 critical, 1 warning, 2 info",
    ]


def test_lines_to_paste_keep_their_indentation() -> None:
    """The block is indented as a whole."""
    found = [Finding(rule="statistics", severity="critical", summary="Silent.", fix=XML)]
    lines = as_text(Examination(system="activemq", passed=[], findings=found)).splitlines()
    assert lines[2:5] == ["            Fix: <plugins>", "              <statisticsBrokerPlugin/>", "            </plugins>"]


@pytest.mark.parametrize(
    ("passed", "last"),
    [([], "Nothing was found to examine."), (["a"], "Nothing to fix."), ([f"q{n}" for n in range(40)], "Nothing to fix.")],
)
def test_a_report_without_findings_says_so(passed: list[str], last: str) -> None:
    """Healthy queues do not fill the screen: at most 22 lines."""
    lines = as_text(Examination(system="aws_sqs", passed=passed, findings=[])).splitlines()
    assert lines[-1] == last
    assert len(lines) <= 22


def test_json_holds_the_same() -> None:
    """All fields of all findings, in the same order as the text."""
    document = json.loads(as_json(EXAMINATION))
    assert document["system"] == "aws_sqs"
    assert document["counts"] == {"critical": 1, "warning": 1, "info": 2}
    assert document["passed"] == ["fine"]
    assert [finding["rule"] for finding in document["findings"]] == [
        "not_examined",
        "allow_policy",
        "fifo_throughput",
        "unencrypted",
    ]
    assert document["findings"][1] == {
        "rule": "allow_policy",
        "severity": "critical",
        "scope": "1/eu-west-1",
        "queue": "b",
        "summary": "Refused.",
        "fix": "Allow.",
    }


@pytest.mark.parametrize(
    ("worst", "at_least", "fails"),
    [
        ("info", "info", True),
        ("info", "warning", False),
        ("warning", "warning", True),
        ("warning", "critical", False),
        ("critical", "info", True),
        ("critical", "critical", True),
    ],
)
def test_it_fails_from_the_requested_severity(worst: Severity, at_least: Severity, fails: bool) -> None:
    """Findings below it do not count."""
    examination = Examination(system="x", passed=[], findings=[Finding(rule="r", severity=worst, summary="s")])
    assert examination.fails(at_least) is fails
    assert not Examination(system="x", passed=["a"], findings=[]).fails("info")
