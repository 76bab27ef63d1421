"""The report page agrees with the printed lines, is self-contained, and is not changed by hostile names."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pytest
from playwright.sync_api import Browser

from sinks.markup import escaped
from sinks.report.attempts import MessageStory, TimelineEvent
from sinks.report.collect import Collected, QueueSeries, Span
from sinks.report.page import _event_table, report_page
from sinks.report.pictures import queue_picture
from streaming.core.settings import QueueName
from streaming.judge.findings.signals import Finding, Severity, SignalChange, SignalKey, SignalName
from tests.sinks.fakes import HOSTILE_NAMES
from tests.sinks.page.test_looks import CONTRASTS, wider_than_the_window
from tests.sinks.report.recordings import page_of, poisoned


class Elements(HTMLParser):
    """Tags with their attributes, and the text between them."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data + " "


@pytest.fixture(scope="module")
def replayed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    """The report of the recording with one poisoned message, and the lines of its replay."""
    return page_of(poisoned(), tmp_path_factory.mktemp("poisoned"))


@pytest.mark.simulation
def test_every_printed_signal_is_on_the_page_with_begin_and_end(
    replayed: tuple[Path, list[dict[str, Any]]], tmp_path: Path
) -> None:
    """Every signal has its summary, severity, begin in UTC, and how long it fired."""
    report, lines = replayed
    page = Elements(report.read_text())
    signals = [x for x in lines if x["kind"] == "signal" and x["status"] == "firing"]
    assert {"PoisonMessage", "DeadLetterArrived"} <= {s["signal"] for s in signals}
    for signal in signals:
        assert signal["signal"] in page.text
        assert signal["evidence"]["summary"] in page.text
    assert re.search(r"2023-11-14 22:15:00\s+5 min\s+DeadLetterArrived\s+warning", page.text)
    cut_off, _ = page_of(poisoned(), tmp_path, until_s=150)
    assert "until the end" in Elements(cut_off.read_text()).text


@pytest.mark.simulation
def test_the_culprits_deliveries_are_drawn_with_how_each_ended(replayed: tuple[Path, list[dict[str, Any]]]) -> None:
    """Three windows ended; the table has every event, the move included."""
    report, _ = replayed
    html = report.read_text()
    assert html.count("receive 1: window ended after 30 s") == 1
    assert html.count("receive 3: dead-lettered") + html.count("receive 3: window ended") == 1
    page = Elements(html)
    assert ("article", {"id": "message-1"}) in page.tags
    assert "max receives; to orders-dlq" in page.text
    assert "3 deliveries" in page.text


def test_folded_signals_are_in_a_list_of_their_own() -> None:
    """Folded signals are counted and cut at a limit of their own; the other signals are listed before them."""
    collected = Collected(times=[0, 9_000])
    failing = SignalKey("QueueFailing", "aws_sqs", "", "q")
    collected.on_signal(SignalChange(1, "firing", Finding(failing, "critical", 1, {"summary": "nothing is finished"}), "a"))
    for n in range(150):
        key = SignalKey("PoisonMessage", "aws_sqs", "", "q", message_id=f"m-{n}")
        finding = Finding(key, "warning", n, {"summary": f"poison {n}"}, folded="QueueFailing")
        collected.on_signal(SignalChange(n, "firing", finding, f"b{n}"))
    page = Elements(report_page(collected, pa.table({}), ["f"]))
    assert page.text.index("nothing is finished") < page.text.index("150 signals that QueueFailing explains")
    assert "poison 99" in page.text
    assert "poison 100" not in page.text
    assert "50 later ones are not shown" in page.text


def test_a_signal_links_to_the_message_of_its_own_account() -> None:
    """Producers that choose their ids may use one in two accounts."""
    collected = Collected(times=[0, 9_000])
    for at_ms, scope in enumerate(("1/eu-west-1", "2/eu-west-1"), start=1):
        key = SignalKey("PoisonMessage", "aws_sqs", scope, "q", message_id="same")
        collected.on_signal(SignalChange(at_ms, "firing", Finding(key, "critical", at_ms, {"summary": scope}), scope))
    page = report_page(collected, pa.table({}), ["f"])
    assert re.findall(r'<td>(./eu-west-1) <a href="#([^"]*)">', page) == [
        ("1/eu-west-1", "message-1"),
        ("2/eu-west-1", "message-2"),
    ]


@pytest.mark.parametrize(("minutes", "until"), [(5, "22:18:20"), (120, "2023-11-15 00:13:20")], ids=["same day", "next day"])
def test_a_window_that_ends_on_another_day_has_its_day(minutes: int, until: str) -> None:
    """A window lasts for up to twelve hours."""
    story = MessageStory(QueueName("aws_sqs", "", "q"), "m")
    at_ms = 1_700_000_000_000
    story.timeline.append(TimelineEvent(at_ms, "received", "q", None, 1, at_ms + 60_000 * minutes, ""))
    assert f"<td>{until}</td>" in "".join(_event_table(story))


def test_times_in_the_evidence_are_in_utc() -> None:
    """A person compares them with the other times of the page; milliseconds since 1970 say nothing."""
    evidence = {"arrived_at": 1_700_000_000_000, "age_s": 80.5, "final_attempt": True, "summary": "s"}
    key = SignalKey("DeadLetterArrived", "aws_sqs", "", "q", message_id="m")
    collected = Collected(times=[0, 9_000], spans=[Span(Finding(key, "warning", 1, evidence), 1)])
    page = report_page(collected, pa.table({}), ["f"])
    shown = dict(re.findall(r"<dt>(\w+)</dt><dd>([^<]*)</dd>", page))
    assert [shown[name] for name in ("arrived_at", "age_s", "final_attempt")] == ["2023-11-14T22:13:20Z", "80.5", "yes"]


def test_a_bar_has_the_colour_of_the_signals_it_stands_for() -> None:
    """A critical signal that begins during one that is folded is drawn over it; those of one colour are one bar."""
    queue = QueueName("aws_sqs", "", "q")
    collected = Collected([0, 500_000], {queue: QueueSeries()})
    spans: list[tuple[str, Severity, SignalName | None, int, int | None]] = [
        ("m1", "warning", "QueueFailing", 0, 100_000),
        ("m2", "critical", None, 90_000, None),
        ("m3", "warning", "QueueFailing", 95_000, 200_000),
        ("m4", "warning", None, 210_000, 300_000),
    ]
    for message, severity, folded, from_ms, to_ms in spans:
        key = SignalKey("PoisonMessage", "aws_sqs", "", "q", message_id=message)
        collected.spans.append(Span(Finding(key, severity, from_ms, {}, folded=folded), from_ms, to_ms))
    bars = re.findall(r'class="bar (\w+)".*?<title>PoisonMessage (\w+) [^<]*?, ([^<]*)</title>', queue_picture(collected, queue))
    assert bars == [
        ("folded", "m1", "3 min 20 s"),
        ("warning", "m4", "1 min 30 s"),
        ("critical", "m2", "6 min 50 s, still firing"),
    ]


def test_labels_of_lanes_are_whole(browser: Browser, tmp_path: Path) -> None:
    """The longest name of a signal with a count of five digits begins inside its chart."""
    name = max(get_args(SignalName), key=len)
    span = Span(Finding(SignalKey(name, "aws_sqs", "", "q"), "warning", 1, {"summary": "-"}), 1, 2)
    collected = Collected([0, 9_000], {QueueName("aws_sqs", "", "q"): QueueSeries()}, [span] * 10_000)
    file = tmp_path / "report.html"
    file.write_text(report_page(collected, pa.table({}), ["f"]))
    with browser.new_context() as context:
        page = context.new_page()
        page.goto(file.as_uri())
        lane = page.locator("svg text", has_text=f"{name} ×10000")
        assert lane.evaluate("text => text.getBBox().x") >= 0


@pytest.mark.parametrize(("system", "drawn"), [("aws_sqs", True), ("activemq", False), ("cloudflare_queues", False)])
def test_only_the_chart_of_an_sqs_queue_has_the_age_that_cloudwatch_shows(system: str, drawn: bool) -> None:
    """Other brokers have no CloudWatch."""
    name = QueueName(system, "", "q")
    ages = {"all": {0: 1.0, 9_000: 10.0}, "cloudwatch": {0: 1.0, 9_000: 86_400.0}}
    picture = queue_picture(Collected([0, 9_000], {name: QueueSeries(ages=ages)}), name)
    assert ("as CloudWatch would show" in picture) is drawn
    assert ("6 h" in picture) is drawn, "the axis ends at the largest age that is drawn"


@pytest.mark.parametrize(("width", "hinted"), [(390, True), (1280, False)])
def test_a_chart_that_scrolls_says_so(browser: Browser, long_names: Path, width: int, hinted: bool) -> None:
    """On a phone a chart shows only its first part, and a scroll bar appears only while it is moved."""
    with browser.new_context(viewport={"width": width, "height": 800}) as context:
        page = context.new_page()
        page.goto(long_names.as_uri())
        chart = page.locator(".wide").first
        assert chart.evaluate("chart => chart.scrollWidth > chart.clientWidth") is hinted
        hint = chart.evaluate("chart => getComputedStyle(chart, '::before').content")
        assert ("Scroll sideways" in hint) is hinted


@pytest.mark.slow
def test_the_page_is_self_contained(replayed: tuple[Path, list[dict[str, Any]]]) -> None:
    """The page has no script, external link, image, font or import, and its own policy forbids them."""
    report, _ = replayed
    html = report.read_text()
    page = Elements(html)
    assert not {tag for tag, _ in page.tags} & {"script", "link", "img", "iframe", "object", "embed", "form", "base"}
    for tag, attributes in page.tags:
        assert not attributes.get("src"), tag
        assert (attributes.get("href") or "#").startswith("#"), tag
        assert not [name for name in attributes if name.startswith("on")], tag
    assert not re.search(r"url\(|@import|https?://(?!www\.w3\.org)", html)
    policy = [a["content"] for tag, a in page.tags if tag == "meta" and a.get("http-equiv") == "Content-Security-Policy"]
    assert policy == ["default-src 'none'; style-src 'unsafe-inline'"]


@pytest.fixture(scope="module")
def plain_tags(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, list[str]]]:
    """The elements of a page with plain names."""
    page, _ = page_of(poisoned("m", "q", "c"), tmp_path_factory.mktemp("plain"), until_s=150)
    return [(tag, sorted(a)) for tag, a in Elements(page.read_text()).tags]


@pytest.mark.simulation
@pytest.mark.parametrize("name", [n for n in HOSTILE_NAMES if n.isprintable() or n.isascii()], ids=repr)
def test_hostile_names_add_no_element_and_no_attribute(
    name: str, tmp_path: Path, plain_tags: list[tuple[str, list[str]]]
) -> None:
    """The tags are the same as with plain names. Lone surrogates are not tested: the wire format refuses them."""
    page, _ = page_of(poisoned(name, name, name), tmp_path, until_s=150)
    html = page.read_text()
    assert [(tag, sorted(a)) for tag, a in Elements(html).tags] == plain_tags
    assert "hacked=1>" not in html


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a<b>&'c\"", "a&lt;b&gt;&amp;&#x27;c&quot;"),
        ("\u202egnirts", "\\u202egnirts"),
        ("a\x00b\nc", "a\\x00b\\nc"),
        ("lone\ud800surrogate", "lone\\ud800surrogate"),
        ("очередь-队列-🧵", "очередь-队列-🧵"),
    ],
)
def test_invisible_characters_are_escaped(text: str, shown: str) -> None:
    """An id with a right-to-left override could look like another id."""
    assert escaped(text) == shown


@pytest.mark.simulation
def test_an_empty_recording_and_a_healthy_one_have_a_page(tmp_path: Path) -> None:
    """The page says that nothing happened."""
    empty, _ = page_of([], tmp_path)
    assert "No signal fired" in empty.read_text()
    healthy, _ = page_of([e for e in poisoned() if e.get("message_id") != "m-bad" and e["type"] != "queue_state"], tmp_path)
    assert "No signal fired" in healthy.read_text()
    assert "Queue orders" in healthy.read_text()


@pytest.fixture(scope="module")
def long_names(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report with a message id of 512 characters."""
    return page_of(poisoned("x" * 512), tmp_path_factory.mktemp("long"), until_s=150)[0]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1360])
def test_the_page_is_readable_without_scripts(browser: Browser, long_names: Path, scheme: str, width: int) -> None:
    """On a phone and a wide screen, in both themes, nothing is cut off, charts have a size, and evidence can be opened."""
    with browser.new_context(
        color_scheme="dark" if scheme == "dark" else "light", viewport={"width": width, "height": 800}
    ) as context:
        page = context.new_page()
        troubles: list[str] = []
        page.on("console", lambda message: troubles.append(message.text))
        page.goto(long_names.as_uri())
        assert page.evaluate(CONTRASTS) == []
        assert wider_than_the_window(page) == 0
        boxes = [box for one in page.locator("svg").all() if (box := one.bounding_box())]
        assert len(boxes) == page.locator("svg").count() > 2
        assert min(box["height"] for box in boxes) > 20
        page.locator("summary").first.click()
        assert page.locator("dl").first.is_visible()
        assert troubles == []
