// The list of firing signals: name, queue, start, and a sentence with the evidence.

import { el, name, setAttribute, setChildren, setText, sync, visible } from "./dom.js";
import { signalWords } from "./format.js";
import { queueHash } from "./links.js";
import { since } from "./live.js";

export class SignalList {
  constructor(label) {
    this.node = el("ul", { class: "signal-list", "aria-label": label });
  }

  /** `firing` as in the API's response, worst first. */
  show(firing) {
    sync(this.node, firing, (signal) => signal.id, make, update);
    this.node.hidden = firing.length === 0;
  }

  /** One line for a resolved signal. */
  static resolvedItem(signal) {
    return el(
      "li",
      {},
      el("a", { href: address(signal) }, signalWords(signal.signal)),
      " ",
      name(signal.queue),
      " ",
      el("span", { class: "muted", "data-resolved": signal.resolved_at_ms }),
      el("span", { class: "muted" }, " ago"),
    );
  }
}

function address(signal) {
  return queueHash(signal, { message: signal.message_id, group: signal.group, consumer: signal.consumer });
}

function make(signal) {
  return el(
    "li",
    { class: "signal" },
    el(
      "p",
      { class: "signal-head" },
      el("span", { class: "severity" }),
      el("a", { class: "signal-name stretched", href: address(signal) }, signalWords(signal.signal)),
      el("span", { class: "signal-since" }, "for ", el("span", { "data-role": "since" })),
    ),
    el("p", { class: "signal-summary", "data-role": "summary" }),
    el("p", { class: "signal-where" }, name(signal.queue), el("span", { class: "muted", "data-role": "about" })),
  );
}

function update(node, signal) {
  setAttribute(node, "data-severity", signal.severity);
  setText(node.querySelector(".severity"), signal.severity);
  setText(node.querySelector('[data-role="summary"]'), visible(signal.summary));
  since(node.querySelector('[data-role="since"]'), signal.since_ms);
  const about = node.querySelector('[data-role="about"]');
  // A signal without a queue is about a collector, or about queuewatch itself.
  const parts = [
    signal.group ? ["group ", name(signal.group)] : null,
    signal.consumer ? [signal.queue ? "consumer " : "collector ", name(signal.consumer)] : null,
    signal.alerting ? null : ["does not alert"],
    signal.folded ? [`explained by ${signal.folded}`] : null,
  ].filter(Boolean);
  setChildren(about, `${signal.group}|${signal.consumer}|${signal.alerting}|${signal.folded}`, () =>
    parts.flatMap((part, index) => [index || signal.queue ? " · " : "", ...part]),
  );
}
