"""Record the frames of `recorded/` from a broker.

Run `python -m tests.sources.activemq.record`, then review the diff.
"""

import json
from pathlib import Path

from sources.activemq.inbox import Incoming
from tests.services.activemq import Policy
from tests.services.process import free_port
from tests.sources.activemq import broker
from tests.sources.activemq.lab import Lab, Recorder, jms_client
from tests.sources.activemq.orders import ORDERS, POLICY_QUEUE

FOLDER = Path(__file__).with_name("recorded")
SETUP = broker.Setup(policies=(Policy(), Policy(POLICY_QUEUE, dead_letters=None)))
_KEPT = ("destination", "orignalMessageId", "consumerId", "originBrokerName")


def load(name: str) -> list[Incoming]:
    """Return the recorded frames of one order."""
    frames = []
    for line in (FOLDER / f"{name}.jsonl").read_text(encoding="utf-8").splitlines():
        at_ms, headers, body = json.loads(line)
        frames.append(Incoming("message", at_ms, "advisories", headers, json.dumps(body) if body else ""))
    return frames


def save(name: str, frames: list[Incoming]) -> None:
    """Write the frames of one order, without padding and unused headers."""
    lines = []
    for frame in frames:
        headers = {key: value for key, value in frame.headers.items() if key in _KEPT}
        body = json.loads(frame.body) if frame.body else None
        for content in body.values() if body else ():
            content.pop("marshalledProperties", None)
        lines.append(json.dumps([frame.at_ms, headers, body], separators=(",", ":")))
    (FOLDER / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> None:
    """Run every order against a broker and save its advisories."""
    FOLDER.mkdir(exist_ok=True)
    jmx_port = free_port()
    setup = broker.Setup(policies=SETUP.policies, jmx_port=jmx_port)
    with broker.start(setup) as running, jms_client(running, jmx_port) as jms:
        recorder = Recorder(running)
        lab = Lab(running, jms)
        recorder.record()
        for order in ORDERS:
            order.do(lab, order.queue)
            frames = recorder.record(order.advisories_take_s)
            lab.close()
            frames += recorder.record(0.2)
            save(order.name, [frame for frame in frames if order.is_about(frame.headers["destination"])])
        recorder.close()


if __name__ == "__main__":
    main()
