"""`python -m tests.benchmarks.proxy`: added latency, calls per second of a core, and memory of waiting long polls."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import uvloop

from tests.benchmarks.proxy import load
from tests.services.process import running
from tests.services.proxy import command_line, environment

_WARM_UP = 500
_LATENCY_CALLS = 3_000
_LATENCY_CONNECTIONS = 4
_THROUGHPUT_CALLS = int(os.environ.get("CALLS") or 30_000)
_THROUGHPUT_CONNECTIONS = 32
_LONG_POLLS = 500
_ROUNDS = 12


def _address(log: str) -> tuple[str, int] | None:
    found = re.search(r"listening on (\S+:\d+)", log)
    return (found[1], 0) if found else None


def _pid(port: str) -> int:
    """Return the process that listens on a loopback port."""
    wanted = f"{int(port):04X}"
    inodes = {
        fields[9]
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]
        if (fields := line.split())[1].endswith(f":{wanted}") and fields[3] == "0A"
    }
    for folder in Path("/proc").glob("[0-9]*/fd"):
        try:
            targets = {os.readlink(entry) for entry in folder.iterdir()}
        except OSError:
            continue
        if targets & {f"socket:[{inode}]" for inode in inodes}:
            return int(folder.parent.name)
    raise RuntimeError(f"nobody listens on {port}")


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _resident_mib(pid: int) -> float:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found
    return int(found[1]) / 1024


async def _long_polls(address: str, pid: int) -> float:
    host, _, port = address.rpartition(":")
    opened = [await asyncio.open_connection(host, int(port)) for _ in range(_LONG_POLLS)]
    for _, writer in opened:
        writer.write(load.request("ReceiveMessage", address, WaitTimeSeconds=5))
    await asyncio.sleep(3)
    resident = _resident_mib(pid)
    await asyncio.gather(*(load.read_answer(reader) for reader, _ in opened))
    for _, writer in opened:
        writer.close()
    return resident


def _measure(name: str, address: str) -> tuple[load.Result, float, float]:
    pid = _pid(address.rpartition(":")[2])
    requests = load.life(address)
    uvloop.run(load.call(address, requests, _WARM_UP, _LATENCY_CONNECTIONS))
    latency = uvloop.run(load.call(address, requests, _LATENCY_CALLS, _LATENCY_CONNECTIONS, pause_s=0.01))
    before_s = _cpu_s(pid)
    result = uvloop.run(load.call(address, requests, _THROUGHPUT_CALLS, _THROUGHPUT_CONNECTIONS))
    per_core = result.calls / (_cpu_s(pid) - before_s)
    print(
        f"{name:12} p50 {latency.percentile(0.5):6.3f} ms  p99 {latency.percentile(0.99):6.3f} ms  "
        f"{per_core:7,.0f} calls/s of a core  {result.calls / result.seconds:7,.0f} calls/s  {_resident_mib(pid):5.0f} MiB"
    )
    return latency, per_core, _resident_mib(pid)


def _in_turn(addresses: Sequence[str]) -> list[float]:
    """Return CPU seconds per call of each process, in short alternating rounds, so that other load affects all equally."""
    spent = [0.0] * len(addresses)
    for _ in range(_ROUNDS):
        for number, address in enumerate(addresses):
            pid = _pid(address.rpartition(":")[2])
            before_s = _cpu_s(pid)
            uvloop.run(load.call(address, load.life(address), _THROUGHPUT_CALLS // _ROUNDS, _THROUGHPUT_CONNECTIONS))
            spent[number] += _cpu_s(pid) - before_s
    return [cpu_s / (_THROUGHPUT_CALLS // _ROUNDS * _ROUNDS) for cpu_s in spent]


def main() -> None:
    """Print a line each for the endpoint alone, the bare pass-through and the proxy."""
    root = Path(__file__).parents[3]
    env = environment({"PYTHONPATH": f"{root}{os.pathsep}{root / 'client'}"})

    def started(command: Sequence[str], folder: Path, name: str):  # type: ignore[no-untyped-def]
        return running(command, folder / f"{name}.log", _address, env=env)

    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        module = [sys.executable, "-m", "tests.benchmarks.proxy."]
        with started([*module[:2], f"{module[2]}upstream"], folder, "upstream") as (upstream, _):
            direct, _, _ = _measure("direct", upstream)
            proxy_command = command_line(f"http://{upstream}", "--to", f"spool:{folder / 'spool'}", "--region", "us-east-1")
            with (
                started([*module[:2], f"{module[2]}bare", f"http://{upstream}"], folder, "bare") as (bare, _),
                started(proxy_command, folder, "proxy") as (proxy, _),
            ):
                _measure("pass-through", bare)
                proxied, _, _ = _measure("proxy", proxy)
                of_bare_s, of_proxy_s = _in_turn([bare, proxy])
                polls = uvloop.run(_long_polls(proxy, _pid(proxy.rpartition(":")[2])))
        print(
            f"in turn: {of_bare_s * 1e6:.0f} and {of_proxy_s * 1e6:.0f} us of a core a call, ratio {of_bare_s / of_proxy_s:.2f}"
        )
        added = [proxied.percentile(share) - direct.percentile(share) for share in (0.5, 0.99)]
        print(f"the proxy adds p50 {added[0]:.3f} ms, p99 {added[1]:.3f} ms; {_LONG_POLLS} long polls: {polls:.0f} MiB")


if __name__ == "__main__":
    main()
