"""`python -m lab matrix|incidents|week|detect|publish|record`: run the laboratory. Prints a table; `--json` keeps the rows."""

from __future__ import annotations

import argparse
import json
import math
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from lab import incidents, table
from lab.detect import compare
from lab.detect.pictures import write_pictures
from lab.detect.publish import publish
from lab.matrix import KINDS, Selection, run_matrix
from lab.scenarios.faults import possible
from lab.scenarios.matrix import SCENARIOS
from lab.scenarios.reporting import instrumentation_of
from lab.telemetry import CHANGEOVERS, COUNTS, INSTRUMENTATIONS, seen
from lab.week import TRIGGER_MS, WEEK_HOURS, run_week
from sources.wire import encode_ndjson

ALL = {**SCENARIOS, **incidents.ALL}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one part of the laboratory; returns 1 with `--strict` when a judged criterion does not hold.

    Exits with 2 for options that are wrong, such as a name that no scenario has: nothing would run, and so all would hold. Or a
    file that cannot be written, which the first result would find out after a minute.
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    scenarios = SCENARIOS if options.run is matrix else incidents.ALL
    for part in getattr(options, "only", ()):
        if not any(part in name for name in scenarios):
            parser.error(f"--only {part}: no scenario has this in its name; there are {', '.join(scenarios)}")
    _prepare_file(getattr(options, "json", None), parser)
    options.command = shlex.join(["python", "-m", "lab", *(sys.argv[1:] if arguments is None else arguments)])
    code: int = options.run(options)
    return code


def matrix(options: argparse.Namespace) -> int:
    """Run the matrix of scenarios and bases of knowledge."""
    selection = Selection(options.only, options.basis, options.kind, options.counts, options.seed)
    began, rows = time.monotonic(), []
    for some in run_matrix(selection, options.jobs):
        rows += some
        _keep(rows, options)
        _progress(f"{len(rows)} cells, {time.monotonic() - began:.0f} s: {some[-1]['scenario']}/{some[-1]['kind']}")
    shown = rows if options.all else [row for row in rows if row["broken"]]
    if shown:
        print(table.matrix_cells(shown), end="\n\n")
    print(table.matrix_summary(rows))
    return _close(rows, began, options)


def run_incidents(options: argparse.Namespace) -> int:
    """Run incidents, further faults and healthy runs."""
    selection = incidents.Selection(options.only, options.kind, options.seed, options.basis, options.counts)
    began, rows = time.monotonic(), []
    for row in incidents.run_incidents(selection, options.jobs):
        rows.append(row)
        _keep(rows, options)
        _progress(f"{time.monotonic() - began:.0f} s: {row['scenario']}/{row['kind']} {' '.join(row['broken']) or 'holds'}")
    print(table.incidents(rows))
    return _close(rows, began, options)


def week(options: argparse.Namespace) -> int:
    """Run a healthy week, hour by hour, and show what was reported."""
    began, rows = time.monotonic(), []
    for kind, seed in product(options.kind or KINDS, options.seed):
        rows.append(run_week(kind, seed, options.hours, options.basis, round(1000 * options.trigger)))
        _keep(rows, options)
        _progress(f"{time.monotonic() - began:.0f} s: {kind}, {rows[-1]['events']:,} events")
    print(table.incidents(rows))
    return _close(rows, began, options)


def detect(options: argparse.Namespace) -> int:
    """Compare queuewatch with common alarms."""
    seeds = options.seed or (*compare.SEEDS, *compare.HELD_OUT)
    selection = compare.Selection(options.only, options.kind, seeds, options.basis)
    began, rows, count = time.monotonic(), [], len(selection.runs())
    if not count:
        return _nothing_ran()
    for n, some in enumerate(compare.compare(selection, options.jobs), start=1):
        rows += some
        _progress(f"{n} of {count} runs, {time.monotonic() - began:.0f} s: {some[0]['scenario']}/{some[0]['kind']}")
        if options.json:
            document = {"command": options.command, "seeds": list(seeds), "basis": options.basis, "rows": rows}
            options.json.write_text(json.dumps({**document, "summary": compare.summary(rows)}, indent=1) + "\n")
    for seed in seeds:
        print(f"seed {seed}, {options.basis}")
        chosen = [row for row in rows if row["seed"] == seed]
        print((table.markdown if options.markdown else table.detection)(compare.summary(chosen)), end="\n\n")
    for rule in compare.RULES[:2]:
        print(table.misses(rows, rule.name), end="\n\n")
    if options.pictures:
        write_pictures([row for row in rows if row["seed"] == seeds[0]], options.pictures)
    print(f"{time.monotonic() - began:.0f} s")
    return 0


def publish_detect(options: argparse.Namespace) -> int:
    """Write docs/detection.json, the tables of docs/detection.md and its pictures."""
    publish(json.loads(options.measured.read_text()), options.date, options.commit)
    return 0


def _progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _prepare_file(path: Path | None, parser: argparse.ArgumentParser) -> None:
    if path is None:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    except OSError as error:
        parser.error(f"--json {path}: cannot be written: {error.strerror}")


def _keep(rows: list[dict[str, Any]], options: argparse.Namespace) -> None:
    """Write the rows finished so far, so that an interrupted run is not lost."""
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


def _nothing_ran() -> int:
    """Say that no scenario is possible with the chosen options: otherwise all of none would hold."""
    _progress("no scenario with such a name exists with the chosen options")
    return 2


def _close(rows: list[dict[str, Any]], began: float, options: argparse.Namespace) -> int:
    if not rows:
        return _nothing_ran()
    held = sum(1 for row in rows if not row["broken"])
    print(f"\n{held} of {len(rows)} hold, {time.monotonic() - began:.0f} s")
    return 1 if options.strict and held < len(rows) else 0


def record(options: argparse.Namespace) -> int:
    """Write one recording as files: events.ndjson for `queuewatch replay`, labels.json and truth.json."""
    if not possible(options.scenario, options.kind):
        (other,) = {*KINDS} - {options.kind}
        _progress(f"{options.scenario} cannot happen in a {options.kind} queue: use --kind {other}")
        return 2
    recording = ALL[options.scenario](options.kind, options.seed)
    instrumentation = instrumentation_of(
        options.scenario, {**INSTRUMENTATIONS, **CHANGEOVERS}[options.basis].with_counts(options.counts)
    )
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "events.ndjson").write_bytes(encode_ndjson(seen(recording, instrumentation)))
    (options.out / "labels.json").write_text(json.dumps(recording.labels_json(), indent=1) + "\n")
    (options.out / "truth.json").write_text(json.dumps(recording.truth()) + "\n")
    print(options.out)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m lab", description=__doc__)
    commands = parser.add_subparsers(required=True)
    cells = _command(commands, "matrix", matrix, "every scenario under every basis of knowledge")
    _only(cells)
    cells.add_argument("--basis", nargs="+", default=[], choices=[*INSTRUMENTATIONS, *CHANGEOVERS])
    _kinds(cells)
    cells.add_argument("--counts", nargs="+", default=[], choices=list(COUNTS))
    _seeds(cells, [1])
    cells.add_argument("--all", action="store_true", help="print the cells that hold, too")
    _jobs(cells)
    _json(cells)
    _strict(cells)
    deploys = _command(commands, "incidents", run_incidents, "broken and slow deploys, and what only looks like them")
    _only(deploys)
    _kinds(deploys)
    _one_basis(deploys)
    _one_kind_of_counts(deploys)
    _seeds(deploys, [1])
    _jobs(deploys)
    _json(deploys)
    _strict(deploys)
    healthy = _command(commands, "week", week, "a healthy week of seven days at low traffic, with bursts, deploys and batches")
    _kinds(healthy)
    _one_basis(healthy)
    _seeds(healthy, [1])
    healthy.add_argument("--hours", type=_positive, default=WEEK_HOURS, help="how much of it")
    healthy.add_argument("--trigger", type=_positive, default=TRIGGER_MS / 1000, help="seconds between two judgements")
    _json(healthy)
    _strict(healthy)
    compared = _command(commands, "detect", detect, "compare queuewatch with common alarms, on the same runs")
    _only(compared)
    _kinds(compared)
    _one_basis(compared)
    _seeds(compared, [])
    compared.add_argument("--pictures", type=Path, help="write the pictures of the first seed into this folder")
    compared.add_argument("--markdown", action="store_true", help="tables for a page")
    _jobs(compared)
    _json(compared)
    published = _command(commands, "publish", publish_detect, "write the figures, tables and pictures of docs/detection.md")
    published.add_argument("measured", type=Path, help="the file that `detect --json` wrote")
    published.add_argument("--date", required=True, help="when it ran: YYYY-MM-DD")
    published.add_argument("--commit", required=True, help="of which commit")
    recorded = _command(commands, "record", record, "write one recording as files")
    recorded.add_argument("scenario", choices=list(ALL))
    recorded.add_argument("--kind", default="standard", choices=KINDS)
    recorded.add_argument("--basis", default="full", choices=[*INSTRUMENTATIONS, *CHANGEOVERS])
    _one_kind_of_counts(recorded)
    recorded.add_argument("--seed", type=int, default=1)
    recorded.add_argument("--out", type=Path, required=True)
    return parser


def _command(commands: Any, name: str, run: Callable[[argparse.Namespace], int], words: str) -> argparse.ArgumentParser:
    made: argparse.ArgumentParser = commands.add_parser(name, help=words)
    made.set_defaults(run=run)
    return made


def _only(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", nargs="+", default=[], help="scenarios with this in their name")


def _kinds(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kind", nargs="+", default=[], choices=KINDS)


def _seeds(parser: argparse.ArgumentParser, default: list[int]) -> None:
    parser.add_argument("--seed", nargs="+", type=int, default=default)


def _one_basis(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--basis", default="full", choices=list(INSTRUMENTATIONS))


def _one_kind_of_counts(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--counts", default="exact", choices=list(COUNTS))


def _jobs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--jobs", type=_at_least_one, default=2)


def _positive(text: str) -> float:
    number = float(text)
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return number


def _at_least_one(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return number


def _json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", type=Path, help="keep the rows in this file")


def _strict(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--strict", action="store_true", help="exit 1 when something does not hold")


if __name__ == "__main__":
    sys.exit(main())
