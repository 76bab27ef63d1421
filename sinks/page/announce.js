// Screen reader announcements, for signals that began or ended only.

import { setText, visible } from "./dom.js";
import { count, signalWords } from "./format.js";

let before = null;

/** Compares the firing signals with those of the last call and announces the difference. */
export function announceSignals(firing) {
  const now = new Map(firing.map((signal) => [signal.id, signal]));
  if (before !== null) {
    const began = [...now.values()].filter((signal) => !before.has(signal.id));
    const ended = [...before.values()].filter((signal) => !now.has(signal.id));
    const words = [
      ...began.slice(0, 3).map((signal) => `${signal.severity}: ${signalWords(signal.signal)}${where(signal)}.`),
      began.length > 3 ? `${began.length - 3} more signals.` : "",
      ended.length ? `${count(ended.length, "signal")} resolved.` : "",
    ].filter(Boolean);
    if (words.length) setText(document.getElementById("announce"), words.join(" "));
  }
  before = now;
}

// A collector's signals have no queue.
function where(signal) {
  return signal.queue ? ` on ${visible(signal.queue)}` : "";
}
