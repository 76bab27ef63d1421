// Formats numbers and names in the same way as the service.

const UNITS = [
  ["d", 86_400],
  ["h", 3_600],
  ["min", 60],
  ["s", 1],
];

/** Formats seconds with the two largest units: `19 ms`, `0.4 s`, `12 min 38 s`, `3 d 4 h`. A line breaks only between the two. */
export function duration(seconds) {
  if (seconds < 0) return `−${duration(-seconds)}`;
  if (seconds > 0 && seconds < 0.095) return `${Math.max(1, Math.round(seconds * 1000))}\u00a0ms`;
  if (seconds < 9.95) return `${seconds.toFixed(1).replace(".0", "")}\u00a0s`;
  let left = Math.round(seconds);
  const parts = [];
  for (const [unit, size] of UNITS) {
    const count = Math.floor(left / size);
    left -= count * size;
    if (count > 0) parts.push(`${count}\u00a0${unit}`);
    else if (parts.length > 0) break;
    if (parts.length === 2) break;
  }
  return parts.join(" ");
}

/** Formats whole seconds, for durations that tick: changing tenths are noise. */
export function ticking(seconds) {
  return duration(seconds < 9.95 ? Math.floor(Math.max(0, seconds)) : seconds);
}

const NUMBER = new Intl.NumberFormat("en");

/** `1,204`, or a dash for an unknown value. */
export function number(value) {
  return value === null || value === undefined ? "–" : NUMBER.format(value);
}

/** `1 message`, `1,204 messages`. */
export function count(value, thing) {
  return `${number(value)} ${thing}${value === 1 ? "" : "s"}`;
}

/** `97.4%`. */
export function percent(ratio) {
  return `${(ratio * 100).toFixed(1).replace(".0", "")}%`;
}

/** `31 MB`. */
export function bytes(value) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let power = 0;
  let left = value;
  while (left >= 1000 && power < units.length - 1) {
    left /= 1000;
    power += 1;
  }
  return `${left.toFixed(left < 10 && power > 0 ? 1 : 0)} ${units[power]}`;
}

// UTC, because people compare these times with logs of machines in other time zones.
const HOURS = { hour: "2-digit", minute: "2-digit", hourCycle: "h23", timeZone: "UTC", timeZoneName: "short" };
const CLOCK = new Intl.DateTimeFormat([], { ...HOURS, second: "2-digit" });
const DAY = new Intl.DateTimeFormat([], { ...HOURS, month: "short", day: "numeric" });

/** The time of day with its zone, and the date if it is more than twelve hours from `nowMs`. */
export function time(ms, nowMs) {
  return (Math.abs(nowMs - ms) < 43_200_000 ? CLOCK : DAY).format(ms);
}

/** `DeadLetterArrived` as `Dead letter arrived`. */
export function signalWords(signal) {
  const words = signal.replace(/([a-z])([A-Z])/g, "$1 $2").toLowerCase();
  return words.charAt(0).toUpperCase() + words.slice(1);
}

const STATUS = {
  critical: "Critical",
  ok: "OK",
  lagging: "Lagging",
  failing: "Failing",
  stalled: "Stalled",
  stopped: "Stopped",
  stale: "Stale",
  unknown: "Unknown",
};

/** The label of a queue's shown status. */
export function statusWord(status) {
  return STATUS[status] ?? status;
}

const BASIS = {
  messages: "every message",
  consumers: "consumers only",
  producers: "producers only",
  partial: "some messages",
  counts: "counts only",
  unknown: "no telemetry",
};

/** The label of a telemetry basis: what is known of a queue. */
export function basisWord(basis) {
  return BASIS[basis] ?? basis;
}

const SYSTEM = {
  aws_sqs: "Amazon SQS",
  activemq: "ActiveMQ",
  cloudflare_queues: "Cloudflare Queues",
  kafka: "Kafka",
  rabbitmq: "RabbitMQ",
};

/** The product name of a queue system; any other comes from outside, as a queue's name does. */
export function systemName(system) {
  return Object.hasOwn(SYSTEM, system) ? SYSTEM[system] : system;
}
