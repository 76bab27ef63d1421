"""A plugin that shares a run between processes: a test file is run by the process that claims it first.

Loaded with `-p tests.parallel`; `.ci/parallel.py` runs each process in an order of its own.
"""

from __future__ import annotations

import hashlib
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from pathlib import Path

import pytest

Files = list[tuple[str, list[pytest.Item]]]
"""Each test file with its tests."""


def _rank(file: tuple[str, list[pytest.Item]]) -> int:
    """Return where a file stands between those that wait longest and those that compute longest.

    The processes that share a run begin at either end and meet in the middle, where files are short: no process is left alone
    with a long one. Those that use a browser are long, too, and together, so that few processes start one.
    """
    tests = file[1]
    if any(test.get_closest_marker("e2e") or "browser" in getattr(test, "fixturenames", ()) for test in tests):
        return 0
    if any("services" in getattr(test, "fixturenames", ()) for test in tests):
        return 1
    return 3 if any(test.get_closest_marker("simulation") for test in tests) else 2


ORDERS: dict[str, Callable[[Files], Files]] = {
    "services-first": lambda files: sorted(files, key=_rank),
    "services-first-backwards": lambda files: sorted(files, key=_rank, reverse=True)[::-1],
    "services-last": lambda files: sorted(files, key=_rank, reverse=True),
    "services-last-backwards": lambda files: sorted(files, key=_rank)[::-1],
}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that `.ci/parallel.py` passes."""
    parser.addoption("--claims", type=Path, required=True, help="a folder, empty at first, that the processes share")
    parser.addoption("--order", choices=ORDERS, default="services-first", help="which test files this process claims first")


def pytest_configure(config: pytest.Config) -> None:
    """Refuse to run without the configuration of the tests: pytest takes a separate `--claims FOLDER` for a folder of tests."""
    if config.rootpath != config.invocation_params.dir:
        raise pytest.UsageError(f"the root is {config.rootpath}: write --claims=FOLDER as one word, and start in the checkout")
    _stop_services_at_sigterm()


def _stop_services_at_sigterm() -> None:
    """Make SIGTERM end the run like Ctrl-C: fixtures stop their brokers, which otherwise go on."""
    tests = os.getpid()

    def stop(number: int, _frame: object) -> None:
        if os.getpid() != tests:  # forked by a test
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        # `timeout` signals every process of its group, and .ci/parallel.py passes its own signal on.
        signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run the tests of the claimed files, like pytest's own loop runs all."""
    config = session.config
    if session.testsfailed or config.option.collectonly:
        return None  # pytest's own loop reports a failed collection
    files = list(_by_file(session.items))
    claims: Path = config.getoption("--claims")
    parts = [(name, len(items)) for name, items in files]
    (claims / f"collected-{hashlib.sha256(repr(parts).encode()).hexdigest()}").mkdir(exist_ok=True)
    due = _claimed(ORDERS[config.getoption("--order")](files), claims)
    item = next(due, None)
    while item is not None:
        following = next(due, None)
        config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)
        item = following
    return True


def _by_file(items: Iterable[pytest.Item]) -> Iterator[tuple[str, list[pytest.Item]]]:
    """Yield the tests of each file. A file comes again for each value of a session fixture with parameters."""
    times: Counter[Path] = Counter()
    for path, tests in groupby(items, lambda item: item.path):
        times[path] += 1
        yield f"{path}-{times[path]}", list(tests)


def _claimed(files: Iterable[tuple[str, list[pytest.Item]]], claims: Path) -> Iterator[pytest.Item]:
    """Yield the tests of each file that no other process has claimed; a file is claimed when its first test is due."""
    for name, tests in files:
        try:
            (claims / hashlib.sha256(name.encode()).hexdigest()).mkdir()
        except FileExistsError:
            continue
        yield from tests
