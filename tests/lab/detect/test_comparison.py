"""A small fixed part of the comparison, as a regression test."""

from __future__ import annotations

import json
from itertools import groupby
from pathlib import Path
from xml.etree import ElementTree

import pytest

from lab.__main__ import main
from lab.detect.compare import HELD_OUT, SEEDS, Row, Selection, figures, rows_of, summary
from lab.detect.pictures import thresholds, time_to_detect
from lab.detect.publish import BEGIN, END, FIGURES, PAGE, page, publish
from lab.detect.score import too_early
from lab.table import detection, markdown, misses

pytestmark = [pytest.mark.simulation, pytest.mark.timeout(900)]  # hours are simulated, and the machine may be busy

FIXED = [
    ("poison", "standard", 1),
    ("consumers_dead", "standard", 1),
    ("clock_ahead", "standard", 1),
    ("single_consumer", "fifo", 1),
]


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    """Three faults and a healthy queue."""
    return [row for run in FIXED for row in rows_of(*run)]


def of(rows: list[Row], rule: str, scenario: str | None = None) -> list[Row]:
    """Return the rows of a rule with its own threshold."""
    return [r for r in rows if r["rule"] == rule and r["limit_s"] is None and scenario in (None, r["scenario"])]


def test_queuewatch_detects_and_names_every_fault_without_false_alarms(rows: list[Row]) -> None:
    """Recall, precision and culprit ratio are 1, and there are no false pages."""
    for rule in ("queuewatch", "queuewatch, by the fault's name"):
        found = figures(of(rows, rule))
        assert (found["recall"], found["precision"], found["false_pages"]) == (1.0, 1.0, 0)
        assert found["culprit"] == 1.0


def test_nothing_is_detected_before_it_can_be_told_from_health(rows: list[Row]) -> None:
    """A rule that is earlier would be right by chance, or the minimum of the label is the limit of some rule."""
    assert too_early(rows) == []
    (row,) = of(rows, "queuewatch", "poison")
    assert too_early([{**row, "minimum_s": row["detected_s"] + 1}]) != []


@pytest.mark.parametrize(("scenario", "within_s"), [("poison", 80), ("consumers_dead", 320), ("clock_ahead", 20)])
def test_faults_are_detected_within_these_times(rows: list[Row], scenario: str, within_s: float) -> None:
    """Detection is at the third receive, after five minutes without a settlement, and at the first event."""
    (row,) = of(rows, "queuewatch, by the fault's name", scenario)
    assert row["detected_s"] <= within_s


def test_the_usual_alarms_miss_what_they_are_known_to_miss(rows: list[Row]) -> None:
    """CloudWatch's age restarts with a poison message, depth does not show it, and the true age shows it after five minutes."""
    detected = {r["rule"]: r["detected_s"] for r in rows if r["scenario"] == "poison" and r["limit_s"] is None}
    assert detected["CloudWatch: age > 5 min, 3 of 5"] is None
    assert detected["Burrow's rules"] is None
    assert 300 < detected["true age > 5 min"] <= 315
    assert "dead-letter queue depth > 0" not in detected, "there is none"


def test_a_lower_threshold_detects_no_later(rows: list[Row]) -> None:
    """For each rule of the sweep, the time to detect dead consumers rises with the threshold."""
    for rule in ("true age > 5 min", "CloudWatch: age > 5 min, 3 of 5"):
        swept = [r for r in rows if r["rule"] == rule and r["limit_s"] is not None and r["scenario"] == "consumers_dead"]
        detected = [
            r["detected_s"] for r in sorted(swept, key=lambda r: r["limit_s"]) if r["false"] == 0 and r["detected_s"] is not None
        ]
        assert detected == sorted(detected)
        assert len(detected) > 3


def test_tables_and_charts_are_made_of_the_rows(rows: list[Row]) -> None:
    """A table has one line per rule and the same number of columns in each line, and charts are SVG."""
    text = detection(summary(rows))
    assert text.count("\n") == len(summary(rows))
    assert {line.count("|") for line in markdown(summary(rows)).splitlines()} == {13}
    assert "every fault detected" in misses(rows, "queuewatch")
    assert "poison/standard" in misses(rows, "CloudWatch: age > 5 min, 3 of 5")
    for picture in (time_to_detect(rows), thresholds(rows)):
        assert ElementTree.fromstring(picture).tag.endswith("svg")


def test_known_and_held_out_seeds_are_disjoint() -> None:
    """What is published as known is not called held out, and every scenario that is possible for a kind of queue is run."""
    published = json.loads(FIGURES.read_text())
    assert not {*SEEDS, *published["seeds"]} & set(HELD_OUT)
    assert Selection().seeds == (*SEEDS, *HELD_OUT)
    runs = Selection().runs()
    assert len(runs) == len(set(runs))
    assert [seed for seed, _ in groupby(seed for _, _, seed, _ in runs)] == [*SEEDS, *HELD_OUT], "one seed after the other"
    assert ("noisy_tenant", "fifo", 1, "full") not in runs


def test_the_page_shows_what_was_measured() -> None:
    """The tables are those of the JSON file, whose summary is that of its rows."""
    published = json.loads(FIGURES.read_text())
    text = PAGE.read_text()
    assert page(text, published) == text
    assert too_early(published["rows"]) == []
    for seed, found in published["summary"].items():
        rows = [{**row, "limit_s": None} for row in published["rows"] if row["seed"] == int(seed)]
        assert summary(rows) == found


def test_publishing_writes_figures_tables_and_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: list[Row]) -> None:
    """All of a page is made from one file that `detect --json` wrote."""
    monkeypatch.setattr("lab.detect.publish.FIGURES", tmp_path / "detection.json")
    monkeypatch.setattr("lab.detect.publish.PAGE", tmp_path / "detection.md")
    monkeypatch.setattr("lab.detect.publish.DOCS", tmp_path)
    (tmp_path / "detection.md").write_text(f"before\n{BEGIN}old\n{END}\nafter\n")
    fresh = [{**row, "seed": HELD_OUT[0]} for row in rows]
    # The lowest thresholds that are tried fire by chance.
    swept = next(row for row in rows if row["limit_s"] is not None and row["detected_s"] is not None)
    fresh.append({**swept, "seed": HELD_OUT[0], "detected_s": 0.0, "minimum_s": 5.0})
    measured = {"command": "c", "basis": "full", "seeds": [1, HELD_OUT[0]], "rows": [*rows, *fresh]}
    (tmp_path / "measured.json").write_text(json.dumps(measured))
    assert main(["publish", str(tmp_path / "measured.json"), "--date", "2026-11-28", "--commit", "abc1234"]) == 0
    published = json.loads((tmp_path / "detection.json").read_text())
    assert (published["seeds"], published["held_out"], published["commit"]) == ([1], [HELD_OUT[0]], "abc1234")
    text = (tmp_path / "detection.md").read_text()
    assert text.startswith(f"before\n{BEGIN}\nRun on 2026-11-28 at commit `abc1234`: `c`.\n")
    assert text.endswith(f"|\n\n{END}\nafter\n")
    assert f"Seed {HELD_OUT[0]}, held out: " in text
    assert (text.count("| queuewatch |"), text.count("| Burrow's rules |")) == (2, 1)
    assert (tmp_path / "images" / "detection-time.svg").exists()
    early = [{**row, "minimum_s": 3600.0} for row in rows]
    with pytest.raises(ValueError, match="before it was possible"):
        publish({**measured, "rows": early}, "2026-11-28", "abc1234")


def test_the_command_writes_rows_and_charts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command runs with two healthy scenarios."""
    kept, pictures = tmp_path / "rows.json", tmp_path / "pictures"
    words = ["detect", "--only", "worker_healthy", "mq_prefetch_one", "--seed", "7", "--basis", "consumers", "--jobs", "1"]
    assert main([*words, "--json", str(kept), "--pictures", str(pictures)]) == 0
    assert "seed 7, consumers\n" in capsys.readouterr().out
    detected = json.loads(kept.read_text())
    assert (detected["seeds"], detected["basis"]) == ([7], "consumers")
    assert {r["rule"] for r in detected["summary"]} >= {"queuewatch", "ActiveMQ: window full (prefetch)"}
    assert sorted(p.name for p in pictures.iterdir()) == ["detection-thresholds.svg", "detection-time.svg"]
