"""Run the service under a steady load, sample it, and fail when something grows.

Usage: python -m tests.soak [--minutes N] [--events-per-s N] [--json FILE] [--svg FILE]

The default is ten minutes at 20,000 events a second. Each message is deleted half a second after it is sent, so that the
number of tracked messages stays constant. Every two seconds it samples the memory of the driver, of Java and of the Python
workers (proportional set size), the size of the checkpoint, and the age of the newest event when it is published.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from streaming.health.liveness import descendants
from tests.e2e.service import Service, running
from tests.faults.load import Load, into_folder
from tests.soak.flat import growth
from tests.soak.picture import picture

EVERY_S: Final = 2.0
LIMITS: Final = {
    "driver memory, MB": 0.2,
    "Java memory, MB": 0.2,
    "worker memory, MB": 0.2,
    "checkpoint, MB": 0.3,
    "latency, s": 0.5,
}
"""The allowed growth after the warm-up, as a share."""
_MB: Final = 1e6


def main() -> int:
    """Run as the usage describes."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--events-per-s", type=int, default=20_000)
    parser.add_argument("--json", type=Path, default=Path("artifacts/soak.json"))
    parser.add_argument("--svg", type=Path, default=Path("artifacts/soak.svg"))
    options = parser.parse_args()
    minutes, series = soak(options.minutes, options.events_per_s)
    for path in (options.json, options.svg):
        path.parent.mkdir(parents=True, exist_ok=True)
    grown = {name: round(growth(samples), 3) for name, samples in series.items()}
    body = {"events_per_s": options.events_per_s, "minutes": minutes, "series": series, "growth": grown}
    options.json.write_text(json.dumps(body))
    options.svg.write_text(picture(f"{options.events_per_s:,} events/s for {options.minutes:g} minutes", minutes, series))
    failed = False
    for name, share in grown.items():
        over = share > LIMITS[name]
        failed |= over
        sys.stdout.write(f"{name:20} {share:+.1%} (limit {LIMITS[name]:+.0%}){'  GROWS' if over else ''}\n")
    return int(failed)


def soak(minutes: float, events_per_s: int) -> tuple[list[float], dict[str, list[float]]]:
    """Return the time of each sample in minutes, and the samples by name."""
    times: list[float] = []
    series: dict[str, list[float]] = {name: [] for name in LIMITS}
    with tempfile.TemporaryDirectory(prefix="queuewatch-soak-", ignore_cleanup_errors=True) as scratch:
        folder = Path(scratch)
        config = {
            "source": {"spool": {"folder": "spool", "after_reading": "delete"}},
            "spark": {"checkpoint_dir": "checkpoint", "master": "local[2]", "driver_memory": "2g"},
            # Ended messages are remembered for this long, so their number is stable after the warm-up.
            "judge": {"lateness_s": max(30, int(minutes * 60 * 0.2))},
            "log": {"format": "json"},
        }
        load = Load(into_folder(folder / "spool"), events_per_s, deletes=True)
        try:
            with running(folder, config) as service:
                service.wait(lambda metrics: metrics.get('queuewatch_events_total{result="accepted"}', 0) > 0, 600)
                begin_s = time.monotonic()
                while (now_s := time.monotonic() - begin_s) < minutes * 60:
                    times.append(round(now_s / 60, 3))
                    for name, value in sample(service, folder / "checkpoint").items():
                        series[name].append(value)
                    time.sleep(EVERY_S)
                service.stop()
        finally:
            load.stop()
    return times, series


def sample(service: Service, checkpoint: Path) -> dict[str, float]:
    """Take one sample of each series."""
    driver = service.process.pid
    below = descendants(driver)
    java = [pid for pid in below if _command(pid).startswith(b"java") or b"/java\0" in _command(pid)[:200]]
    metrics = service.metrics()
    return {
        "driver memory, MB": _memory(driver) / _MB,
        "Java memory, MB": sum(map(_memory, java)) / _MB,
        "worker memory, MB": sum(_memory(pid) for pid in below if pid not in java) / _MB,
        "checkpoint, MB": _size(checkpoint) / _MB,
        "latency, s": metrics.get("queuewatch_pipeline_lag_seconds", 0.0),
    }


def _memory(pid: int) -> float:
    """Return the proportional set size of a process in bytes; 0 if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return next((float(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0.0)


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _size(folder: Path) -> float:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size
        except OSError:
            continue
    return float(total)


if __name__ == "__main__":
    raise SystemExit(main())
