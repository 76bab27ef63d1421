// Screen reader announcements, for signals that began or ended only.

import { setText, visible } from "./dom.js";
import { count, signalWords } from "./format.js";

const SEVERITIES = ["info", "warning", "critical"];
/** The most resolved signals in a response. */
const MOST_RESOLVED = 20;

let before = null;

/**
 * Compares `signals`, the API's response, with that of the last call and announces the difference. Of very many firing
 * signals the response has only the first, so one that enters or leaves the list has not necessarily begun or ended.
 */
export function announceSignals(signals) {
  const previous = before;
  before = signals;
  if (previous !== null) {
    const entered = missing(signals.firing, previous.firing);
    const began = all(previous) ? entered : entered.filter((signal) => precedes(signal, previous.firing.at(-1)));
    const ended = all(signals)
      ? missing(previous.firing, signals.firing)
      : signals.resolved.filter((signal) => signal.resolved_at_ms > previous.at_ms);
    const more = !all(signals) && ended.length === MOST_RESOLVED;
    const words = [
      ...began.slice(0, 3).map((signal) => `${signal.severity}: ${signalWords(signal.signal)}${where(signal)}.`),
      began.length > 3 ? `${began.length - 3} more signals.` : "",
      more ? `${MOST_RESOLVED} or more signals resolved.` : ended.length ? `${count(ended.length, "signal")} resolved.` : "",
    ].filter(Boolean);
    if (words.length) setText(document.getElementById("announce"), words.join(" "));
  }
}

/** The signals that are not among `others`. */
function missing(signals, others) {
  const ids = new Set(others.map((signal) => signal.id));
  return signals.filter((signal) => !ids.has(signal.id));
}

function all({ firing, total }) {
  return firing.length === total;
}

/** Whether a signal comes before another one in the service's order: the worst, and then the longest firing first. */
function precedes(signal, other) {
  const worse = SEVERITIES.indexOf(signal.severity) - SEVERITIES.indexOf(other.severity);
  return worse > 0 || (worse === 0 && signal.since_ms < other.since_ms);
}

// A collector's signals have no queue.
function where(signal) {
  return signal.queue ? ` on ${visible(signal.queue)}` : "";
}
