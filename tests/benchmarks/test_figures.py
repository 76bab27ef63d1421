"""Processing of measurements: bounds, latencies, sums."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.benchmarks import __main__ as bench
from tests.benchmarks import scrape
from tests.benchmarks.figures import Figure, Run, readable
from tests.benchmarks.latency import latencies
from tests.benchmarks.machine import Machine
from tests.benchmarks.processes import spent_by


@pytest.mark.parametrize(
    ("figure", "holds"),
    [
        (Figure("k", "w", 250_000, "events/s", at_least=250_000), True),
        (Figure("k", "w", 249_999, "events/s", at_least=250_000), False),
        (Figure("k", "w", 1.2, "s", at_most=1.2), True),
        (Figure("k", "w", 1.21, "s", at_most=1.2), False),
        (Figure("k", "w", 7, "s"), None),
    ],
)
def test_a_bound_holds_up_to_its_value(figure: Figure, holds: bool | None) -> None:
    """`at_least` and `at_most` include the bound; without a bound there is no verdict."""
    assert figure.holds is holds


@pytest.mark.parametrize(
    ("value", "text"), [(0.0123, "0.0123"), (1.204, "1.2"), (999.4, "999"), (1_234_567, "1,230,000"), (2500, "2,500")]
)
def test_numbers_have_three_digits(value: float, text: str) -> None:
    """More digits than a measurement has would suggest a precision that it lacks."""
    assert readable(value) == text


def test_the_json_has_what_the_table_has(tmp_path: Path) -> None:
    """The JSON has the machine, the commit, every figure with its verdict, and what was left out with the reason."""
    run = Run(Machine.here())
    run.add(Figure("a.b", "something", 5, "s", at_most=4, detail={"n": 1}))
    run.leave_out("live", "no javac")
    path = tmp_path / "deep" / "bench.json"
    run.write_json(path)
    found = json.loads(path.read_text())
    assert found["machine"]["cores"] >= 1
    assert found["machine"]["commit"]
    assert found["figures"][0] | {"detail": None} == {
        "key": "a.b",
        "what": "something",
        "value": 5,
        "unit": "s",
        "at_least": None,
        "at_most": 4,
        "detail": None,
        "holds": False,
    }
    assert found["left_out"] == {"live": "no javac"}


def test_an_event_is_shown_when_the_count_reaches_it() -> None:
    """Events 1 to 6 are sent 0.1 s apart; after a preload of 100, the page shows 102 at 10 s, 103 at 11 s, 105 at 12 s."""
    sent_at_s = np.array([9.1, 9.2, 9.3, 9.4, 9.5, 9.6])
    ages_s = latencies(sent_at_s, [(10.0, 102), (11.0, 103), (12.0, 105)], before=100)
    assert ages_s == pytest.approx([11.0 - 9.3, 12.0 - 9.4, 12.0 - 9.5])


def test_samples_are_summed_over_queues() -> None:
    """Queue labels are removed, other labels stay, and commas or braces in names are handled."""
    text = (
        "# TYPE queuewatch_queue_messages gauge\n"
        'queuewatch_queue_messages{system="s",scope_id="a,b",queue="x}",state="visible"} 3\n'
        'queuewatch_queue_messages{system="s",scope_id="",queue="y\\"",state="visible"} 4.0\n'
        'queuewatch_events_total{result="accepted"} 1.5e+03\n'
        "queuewatch_pipeline_state_bytes 7\n"
    )
    assert scrape.totals(text) == {
        'queuewatch_queue_messages{state="visible"}': 7,
        'queuewatch_events_total{result="accepted"}': 1500,
        "queuewatch_pipeline_state_bytes": 7,
    }
    assert scrape.accepted(text) == 1500
    assert scrape.accepted("") == 0


def test_processor_time_counts_children() -> None:
    """A child's half second of processor time is counted for its parent."""
    before = spent_by(os.getpid())
    burn = "import time\nwhile time.process_time() < 0.5: pass"
    subprocess.run([sys.executable, "-c", burn], check=True)
    assert (spent_by(os.getpid()) - before).python_s >= 0.45


def test_a_published_table_replaces_the_one_before(tmp_path: Path) -> None:
    """Only the text between the marks changes; a page without marks is refused."""
    page = tmp_path / "page.md"
    page.write_text("above\n<!-- figures -->\nold\n<!-- end of figures -->\nbelow\n")
    run = Run(Machine.here())
    run.add(Figure("k", "  something", 5, "s", at_most=4))
    run.publish(page)
    run.publish(page)
    text = page.read_text()
    assert text.startswith("above\n<!-- figures -->\n")
    assert text.endswith("<!-- end of figures -->\nbelow\n")
    assert text.count("| something | 5 | s | ≤ 4 (missed) |") == 1
    assert "old" not in text
    page.write_text("no marks")
    with pytest.raises(ValueError, match="no <!-- figures -->"):
        run.publish(page)


def test_a_failing_section_does_not_affect_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Table and JSON have the results of the other sections, and the exit code is 1."""

    def works(run: Run, *, quick: bool) -> None:
        run.add(Figure("micro.x", "x", 1 if quick else 2, "s"))

    def breaks(run: Run, *, quick: bool) -> None:
        del run, quick
        raise RuntimeError("the [broker] went away")

    monkeypatch.setattr(bench, "ALONE", {"micro": breaks, "alerts": works, "clone": works})
    out = tmp_path / "bench.json"
    assert bench.main(["micro", "alerts", "--quick", "--out", str(out)]) == 1
    found = json.loads(out.read_text())
    assert found["failed"] == {"micro": "the [broker] went away"}
    assert [figure["value"] for figure in found["figures"]] == [1]


def test_an_unknown_section_is_refused_with_the_existing_ones(capsys: pytest.CaptureFixture[str]) -> None:
    """A typo must not run everything for ten minutes."""
    with pytest.raises(SystemExit):
        bench.main(["throughputs"])
    assert "no such section: throughputs; choose from micro, queues, outage, scale, client, throughput" in capsys.readouterr().err
