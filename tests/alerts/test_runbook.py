"""The runbook has a heading for every link, everything that an entry says, and the same content as Markdown and HTML."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from alerts.blocks import Block, Heading, Items, Links, Paragraph, Shell, Table, to_html, to_markdown
from alerts.catalogue import CATALOGUE, rule_text
from alerts.config import AlertRulesConfig, AlertSwitch
from alerts.entry import SYSTEM_TITLES
from alerts.prometheus_rules import rule_groups
from alerts.remedy import labelled
from alerts.runbook import runbook_html, runbook_markdown
from streaming.core.thresholds import Thresholds

MARKDOWN = runbook_markdown(AlertRulesConfig())
HTML = runbook_html(AlertRulesConfig())


def _section(name: str) -> str:
    return MARKDOWN.split(f"\n## Alert name: Queuewatch{name}\n")[1].split("\n## ")[0]


def _anchor(heading: str) -> str:
    """Return the anchor that a Markdown host makes of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")


class _Ids(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "br"):
            self.open.append(tag)
        self.ids += [value for name, value in attrs if name == "id" and value]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_every_runbook_link_of_an_alert_has_a_heading_in_both_forms() -> None:
    """A link opened at 3 a.m. must not end at the top of a long document."""
    urls = [r["annotations"]["runbook_url"] for g in rule_groups(AlertRulesConfig()) for r in g["rules"] if "alert" in r]
    wanted = {url.split("#")[1] for url in urls}
    assert len(wanted) == len(CATALOGUE)
    headings = [_anchor(text) for text in re.findall(r"^#+ (.+)$", MARKDOWN, re.MULTILINE)]
    assert wanted <= set(headings)
    assert len(headings) == len(set(headings))
    parser = _Ids()
    parser.feed(HTML)
    assert wanted <= set(parser.ids)
    assert parser.open == []


def test_links_inside_the_page_have_targets() -> None:
    """The table at the top links to every alert."""
    targets = set(re.findall(r"\]\(#([\w-]+)\)", MARKDOWN))
    assert targets == {entry.anchor for entry in CATALOGUE}


@pytest.mark.parametrize("entry", CATALOGUE, ids=lambda e: e.name)
def test_a_section_holds_everything_the_entry_says(entry: Any) -> None:
    """A section has meaning, rule, evidence, checks with commands, remedies, and when to ignore the alert."""
    section = _section(entry.name)
    assert entry.meaning in section
    for step in rule_text(entry):
        assert step in section
    for field in entry.evidence:
        assert f"`{field.name}`" in section
    for checks in (*entry.checks.values(), entry.watcher_checks):
        for check in checks:
            assert check.command in section
    assert all(text in section for text in (*labelled(entry.fix, SYSTEM_TITLES), *entry.ignore))
    for system, reason in entry.not_applicable.items():
        assert f"**Not on {SYSTEM_TITLES[system]}.** {reason}" in section
    for link in entry.links:
        assert f"[{link.title}]({link.url})" in section


def test_no_step_begins_with_an_empty_label() -> None:
    """One that depends on the evidence alone has neither systems nor reasons to name."""
    runbook = (Path(__file__).parents[2] / "docs" / "runbook.md").read_text(encoding="utf-8")
    assert "let the message go there" in runbook
    assert not [line for line in runbook.splitlines() if line.startswith("- :")]


def test_it_shows_configured_values() -> None:
    """Thresholds, limits and durations are the configured ones, and alerts that are off are left out."""
    config = AlertRulesConfig(
        rules={"MessageTooOld": AlertSwitch(limit=600, for_s=120), "NoisyGroup": AlertSwitch(enabled=False)}
    )
    text = runbook_markdown(config, Thresholds(stalled_s=1200.0))
    assert "For 2 minutes, the oldest visible message has been older than 10 minutes" in text
    assert "Nothing was settled for 20 minutes" in text
    assert "QueuewatchNoisyGroup" not in text


def test_the_opening_warns_against_receiving() -> None:
    """Receiving is what many would try first, and it can dead-letter the message."""
    opening = MARKDOWN.split("## Prepare your shell")[0]
    assert "Do not inspect a queue by receiving from it" in opening


def test_blocks_become_markdown_and_escaped_html() -> None:
    """Every kind of block is rendered in both forms; text that looks like HTML is escaped."""
    blocks: list[Block] = [
        Heading(2, "A <b> title"),
        Paragraph("Use `x < y`.", "Note."),
        Items([("one", "echo 1"), ("two", "")], numbered=True),
        Items([("dot", "")]),
        Shell("a | b"),
        Table(("k", "v"), [("a|b", "[x](#y)")]),
        Links([("T & U", "https://example.org/?a=1&b=2")]),
    ]
    markdown = to_markdown(blocks)
    assert "## A <b> title\n\n**Note.** Use `x < y`.\n\n1. one\n\n   ```sh\n   echo 1\n   ```\n\n2. two" in markdown
    assert "| a\\|b | [x](#y) |" in markdown
    page = to_html("T", blocks)
    assert '<h2 id="a-b-title">A &lt;b&gt; title</h2>' in page
    assert "<code>x &lt; y</code>" in page
    assert '<a href="https://example.org/?a=1&amp;b=2">T &amp; U</a>' in page
    assert '<a href="#y">x</a>' in page
    assert "<li>one<pre" in page


def test_a_severity_that_rises_is_announced() -> None:
    """Its page must not surprise whoever read that the alert is for working hours."""
    section = _section("QueueLagging")
    assert "**Severity:** warning, for working hours; critical, pages somebody, if" in section
