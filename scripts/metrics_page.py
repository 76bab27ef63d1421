"""`python scripts/metrics_page.py [--check]`: write docs/metrics.md from the catalogue of metrics."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from streaming.judge.metrics import METRICS, QUEUE_LABELS, SINK_METRICS  # noqa: E402 -- run as a script, it must find the project first

PAGE = ROOT / "docs" / "metrics.md"

HEAD = """# Metrics

Written by `python scripts/metrics_page.py` from [`streaming/judge/metrics/table.py`](../streaming/judge/metrics/table.py).

- Unknown values have no series: a queue known only by its counts has no ages while its backlog moves, and
  a queue without telemetry has no series at all.
- Metrics of a queue carry `system`, `scope_id` (the event's `scope`, empty when absent) and `queue`. **Never** a message id.
  Groups and consumers appear by name for the top K (10), the rest as `other`; `queuewatch_folded_total` counts the folded ones.
- Ages are computed when they are scraped, from the timestamps published beside them.
- Totals are kept in the state: they survive restarts, and a batch that runs twice is counted once.
- Histograms have classic buckets. Prometheus 3.9 stores them as native histograms with these buckets, one series each, if the
  scrape job sets `scrape_native_histograms` and `convert_classic_histograms_to_nhcb`, as its documentation says; this was not
  tested with queuewatch. Set `always_scrape_classic_histograms` too: the generated rules and dashboards read the classic series.
- There are no native histograms with exponential buckets; [why](#no-native-histograms).

| metric | type | labels | meaning |
|---|---|---|---|
"""


TAIL = """
## No native histograms

A scrape in protobuf could carry native histograms with exponential buckets (Prometheus from 2.40 on, with
`--enable-feature=native-histograms`). The state keeps one count for each of the classic buckets, and those cannot be expressed:
the bounds of a native histogram are 2^(k / 2^n), that is powers of two, or irrational. Of the bounds 0.1, 0.5, 1, 5, 10, 30, 60,
300, 900, 3600, 14400 and 86400 s, only 0.5 and 1 are among them. To spread a count over several exponential buckets would be a
guess that looks like a measurement.

Exact native histograms beside the same `le` values need finer counts in the state, for example:

- Buckets between all bounds of both kinds. From 1 ms to 48 days, schema 2 (a bucket is 19 % wide) gives 139 bounds, which fit the
  byte that a bucket's number has in the state; schema 3 gives 267, which do not.
- 94 to 131 counts per queue instead of 14 to 18 (three simulated queues with 4,500 to 6,300 deleted messages each), in the state
  and in the report of each step.
- A new version of the state's format. Counts of earlier versions cannot be divided, so native histograms would begin at the
  upgrade, with sums of their own, while the classic ones go on.
- The protobuf format for all metrics, because a scrape has one format; the text format would stay the default.
"""


def page() -> str:
    """Return the whole page."""
    rows = []
    for metric in (*METRICS, *SINK_METRICS):
        labels = ", ".join(f"`{label}`" for label in (*(QUEUE_LABELS if metric.per_queue else ()), *metric.labels))
        rows.append(f"| `{metric.name}` | {metric.kind} | {labels or '–'} | {metric.help} |\n")
    return HEAD + "".join(rows) + TAIL


def main() -> int:
    """Write or check the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only check whether it is up to date")
    if not parser.parse_args().check:
        PAGE.write_text(page())
    elif not PAGE.exists() or PAGE.read_text() != page():
        print(f"{PAGE.name} differs from the catalogue: run python scripts/metrics_page.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
