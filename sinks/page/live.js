// The service's clock, ages that tick, and notifications of new snapshots. Pausing stops all three.

import { duration, ticking } from "./format.js";

const POLL_MS = 5_000;
const HIDDEN_POLL_MS = 30_000;
const AT_MOST_EVERY_MS = 1_500;

let offsetMs = 0;
let pausedAtMs = null;
let wanted = null;
let stream = null;
/** By the browser's steady clock, as its time of day may be set back. */
let lastRefresh = -Infinity;
let loads = 0;
let due = false;
let timer = 0;

/** The current time by the service's clock, in epoch milliseconds; it stands still while paused. */
export function now() {
  return pausedAtMs ?? Date.now() + offsetMs;
}

/** Records the service's current time. */
export function setServerTime(ms) {
  if (pausedAtMs === null) offsetMs = ms - Date.now();
}

export function isPaused() {
  return pausedAtMs !== null;
}

/** Pauses or resumes; returns whether the page is now paused. */
export function togglePause() {
  pausedAtMs = pausedAtMs === null ? now() : null;
  if (pausedAtMs === null) refresh();
  return isPaused();
}

/** Makes a node show the time since `sinceMs`. */
export function since(node, sinceMs) {
  mark(node, "since", sinceMs);
}

/** Makes a node show the time left until `untilMs`. */
export function until(node, untilMs) {
  mark(node, "until", untilMs);
}

function mark(node, kind, ms) {
  if (ms === null || ms === undefined) {
    delete node.dataset[kind];
    node.textContent = "–";
    return;
  }
  node.dataset[kind] = ms;
  tickOne(node);
}

function tickOne(node) {
  const { since: sinceMs, until: untilMs } = node.dataset;
  const text =
    sinceMs !== undefined
      ? ticking(Math.max(0, now() - Number(sinceMs)) / 1000)
      : duration(Math.round(Math.max(0, Number(untilMs) - now()) / 1000));
  if (node.textContent !== text) node.textContent = text;
}

/** Updates every node that shows a time since or until. */
export function tick() {
  for (const node of document.querySelectorAll("[data-since], [data-until]")) tickOne(node);
}

/**
 * Calls `fetchAndShow`, which returns a promise, at once, for every new snapshot, and every few seconds otherwise; and
 * `everySecond` after the ages have ticked.
 * A hidden page is not refreshed and holds no connection, because a browser allows only six per host for all tabs; every
 * half minute, `whileHidden` is called.
 */
export function start(fetchAndShow, everySecond, whileHidden) {
  wanted = fetchAndShow;
  setInterval(() => {
    if (isPaused()) return;
    if (document.hidden) {
      if (performance.now() - lastRefresh < HIDDEN_POLL_MS) return;
      lastRefresh = performance.now();
      whileHidden();
      return;
    }
    if (performance.now() - lastRefresh >= POLL_MS) refresh();
    tick();
    everySecond();
  }, 1_000);
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) disconnect();
    else {
      connect();
      refresh();
    }
  });
  connect();
  return refresh();
}

/**
 * Fetches and shows, unless paused or hidden; shortly after the last refresh, it waits a little. It also waits for a load in
 * flight: if each new snapshot replaced that load, a slow service would never be shown. A forced refresh starts at once.
 */
export async function refresh(force = false) {
  if (!force && (isPaused() || document.hidden)) return;
  if (!force && loads > 0) {
    due = true;
    return;
  }
  const waitMs = lastRefresh + AT_MOST_EVERY_MS - performance.now();
  if (!force && waitMs > 0) {
    timer ||= setTimeout(() => {
      timer = 0;
      refresh();
    }, waitMs);
    return;
  }
  lastRefresh = performance.now();
  due = false;
  loads += 1;
  try {
    await wanted();
  } finally {
    loads -= 1;
  }
  if (due && loads === 0) refresh();
}

function connect() {
  if (stream !== null || document.hidden) return;
  stream = new EventSource("api/v1/stream");
  stream.addEventListener("snapshot", () => refresh());
  stream.addEventListener("error", () => {
    // A refusal (too many streams) is final for an EventSource. Polling continues, and a new connection is opened when
    // the user returns to the page.
    if (stream?.readyState === EventSource.CLOSED) disconnect();
  });
}

function disconnect() {
  stream?.close();
  stream = null;
}
