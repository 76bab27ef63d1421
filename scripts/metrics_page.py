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
- A queue without messages has 31 series, 20 with `http.metrics_zero_states: false`; the three histograms of durations add 45 once
  a message has been deleted. `http.metrics_left_out` leaves out whole metrics.
- Histograms have classic buckets. `queuewatch_wait_seconds`, `queuewatch_processing_seconds` and `queuewatch_sojourn_seconds`
  can be scraped as [native histograms](#native-histograms) besides.

| metric | type | labels | meaning |
|---|---|---|---|
"""


TAIL = """
## Native histograms

`/metrics/native` has `queuewatch_wait_seconds`, `queuewatch_processing_seconds` and `queuewatch_sojourn_seconds` as native
histograms: one series for each queue, and quantiles that are at most 19% off (schema 2, four buckets per doubling) for
durations of any length, while a classic bucket may end at six times the duration it starts at. Scrape it with a second job:

```yaml
scrape_configs:
  - job_name: queuewatch
    static_configs:
      - targets: [queuewatch:9400]
  - job_name: queuewatch-native
    metrics_path: /metrics/native
    scrape_native_histograms: true # from Prometheus 3.8 on; before, start it with --enable-feature=native-histograms instead
    static_configs:
      - targets: [queuewatch:9400]
```

```
histogram_quantile(0.9, queuewatch_sojourn_seconds{queue="orders"})          # since the series began
histogram_quantile(0.9, rate(queuewatch_sojourn_seconds{queue="orders"}[5m]))
histogram_fraction(0, 45, rate(queuewatch_sojourn_seconds[5m]))              # the share within 45 s, a bound that no bucket has
```

- **The job that scrapes `/metrics` stays as it is**, and the generated rules and dashboards read its classic series. It is
  text, whatever the server accepts: a Prometheus that ingests a histogram as a native one drops its classic series unless the
  scrape job says otherwise (`scrape_classic_histograms` from 2.45 on, `always_scrape_classic_histograms` from 3.0 on; before
  2.45 it cannot).
- **`/metrics/native` has no classic buckets**, so the two jobs have no series in common, whatever these settings are. With
  classic series of a second job, the objectives' rules would see a second queue in which no message is ever lost.
- The second job needs a name of its own. Where labels come from elsewhere, set `job`: in a `ServiceMonitor`, by an endpoint with
  this path and `relabelings: [{targetLabel: job, replacement: queuewatch-native}]`. Otherwise both jobs write the same `up`.
- `/metrics/native` is in the protobuf format only, and answers 406 to a client that does not accept that: Prometheus before
  2.40, or without the flag or setting above. Credentials are those of `/metrics` (`http.metrics_auth`).
- A duration is measured in milliseconds. One below a millisecond is in the zero bucket; the others are in the bucket that
  their exact value belongs to, the upper bound included. A queue's buckets add up to the count of its classic histogram.
- **After an upgrade** from a release with state version 6 or earlier, a queue's native histogram begins with the first
  message that is settled then, with a count and a sum of its own. What was counted before is known by classic bucket only,
  and to spread it over native buckets would be a guess that looks like a measurement. The classic histograms go on.

The tests scrape both paths with Prometheus 2.42; newer versions were not tested. Prometheus 3.9 can also store the classic
histograms of `/metrics` as native histograms with these buckets (`convert_classic_histograms_to_nhcb`, as its documentation
says); this was not tested either. Set `always_scrape_classic_histograms` there, for the rules and dashboards.
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
