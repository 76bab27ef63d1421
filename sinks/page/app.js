// The frame around the views: routing, header, footer, and banners when the service does not answer.

import { get } from "./api.js";
import { el, name, setAttribute, setChildren, setText } from "./dom.js";
import { bytes, count, duration, number, time } from "./format.js";
import * as live from "./live.js";
import { Overview } from "./overview.js";
import { QueuePage } from "./queue.js";

const OLD_AFTER_MS = 30_000;
const BEHIND_MS = 60_000;
const ANSWER_WITHIN_MS = 10_000;
const SOON_MS = 2_000;

const main = document.getElementById("main");
let view = null;
let lastOverview = "#/";
let lastQueueLink = null;
/** Aborts the load in flight, and when that load began. */
let loading = null;
let loadingSinceMs = 0;
/** The summary that is shown as current, or null during an outage and while the view waits to ask for a newer one. */
let current = null;
/** The state of the connection and its words. */
let connection = ["connecting", "Connecting"];

function address() {
  const [path, query] = location.hash.replace(/^#/, "").split("?");
  return { path: path || "/", parameters: new URLSearchParams(query ?? "") };
}

function route() {
  const { path, parameters } = address();
  const first = view === null;
  if (path === "/queue" && parameters.get("queue")) {
    lastQueueLink = location.hash;
    view = new QueuePage(parameters, () => lastOverview);
  } else {
    lastOverview = location.hash || "#/";
    const overview = new Overview(parameters, (hash) => {
      lastOverview = hash;
      // What was typed takes effect a moment later, when a queue may have been opened.
      if (view === overview) history.replaceState(null, "", hash);
    });
    view = overview;
  }
  main.replaceChildren(view.node);
  if (!first) {
    scrollTo(0, 0);
    live.refresh(true).then(() => view.takeFocus(lastQueueLink));
  }
}

/** Loads the view and shows the summary, or why there is none; a load that is still in flight is replaced. */
async function show() {
  loading?.abort();
  const mine = new AbortController();
  loading = mine;
  loadingSinceMs = performance.now();
  const timeout = setTimeout(() => mine.abort(new DOMException("no answer", "TimeoutError")), ANSWER_WITHIN_MS);
  try {
    const summary = await view.load(mine.signal);
    if (mine !== loading) return;
    live.tick();
    if (summary === null) current = null;
    else showSummary(summary);
  } catch (error) {
    if (mine === loading) showError(error);
  } finally {
    clearTimeout(timeout);
    // If one of several requests failed, the others are still in flight.
    mine.abort();
    if (mine === loading) loading = null;
  }
}

/** Notices old numbers between two answers: a service that hangs gives none. An answer that may come soon is awaited. */
function checkAge() {
  if (loading !== null && performance.now() - loadingSinceMs < SOON_MS) return;
  if (current !== null && live.now() - current.at_ms > OLD_AFTER_MS) showAge(current);
}

/** Says whether the numbers are current. */
function showAge(summary) {
  const ageMs = live.now() - summary.at_ms;
  const old = ageMs > OLD_AFTER_MS;
  banner(
    old
      ? `No new batch for ${duration(ageMs / 1000)}: ages keep growing, but it is unknown which messages were finished since.`
      : summary.behind_ms > BEHIND_MS
        ? `This is the state as of ${time(summary.at_ms, summary.at_ms + summary.behind_ms)}, ` +
          `${duration(summary.behind_ms / 1000)} ago: the job is behind its source (after an outage it catches up by itself; ` +
          "otherwise it needs more CPU), or its clock is not trusted (see the signal ClockUntrusted)."
        : null,
  );
  setLive(old ? "old" : "live", old ? "No new batches" : "Live");
  if (old) view.outdate();
  current = old ? null : summary;
}

function showSummary(summary) {
  showAge(summary);
  showTab(summary);
  showFoot(summary);
}

/** Shows the worst severity in the title and the icon of the tab. */
function showTab({ firing: { critical = 0, warning = 0 } }) {
  const worst = critical ? "critical" : warning ? "warning" : "";
  document.title = worst ? `${critical || warning} ${worst} · queuewatch` : "queuewatch";
  setAttribute(document.getElementById("favicon"), "href", `assets/favicon${worst ? `-${worst}` : ""}.svg`);
}

/** Of a page that nobody sees, the tab is still seen. */
async function refreshTab() {
  try {
    const { summary } = await get("queues", { limit: 0 }, AbortSignal.timeout(ANSWER_WITHIN_MS));
    showTab(summary);
  } catch {
    // The tab stays as it is until the next answer.
  }
}

function showError(error) {
  current = null;
  const atMs = view.outdate();
  if (error.code === "starting") {
    setLive("old", "Starting");
    banner("Waiting for the first batch. This page will show it as soon as it is available.", atMs);
  } else if (error.status) {
    setLive("old", "Error");
    const sentences = [error.message, error.fix].filter(Boolean);
    banner(sentences.map((text) => `${capital(text)}.`).join(" "), atMs);
  } else {
    setLive("lost", "Not connected");
    banner("The service does not answer. This page retries every few seconds.", atMs);
  }
}

function capital(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** Shows a text and the time of the data on the page, if there are any. Their age ticks, so it is not announced. */
function banner(text, atMs = null) {
  const node = document.getElementById("banner");
  node.hidden = text === null;
  if (text === null) return;
  setChildren(node, `${text}${atMs}`, () => {
    if (atMs === null) return [text];
    const age = el("span", {});
    live.since(age, atMs);
    return [`${text} The data shown are from ${time(atMs, live.now())}`, el("span", { "aria-hidden": "true" }, ", ", age, " ago"), "."];
  });
}

function setLive(state, text) {
  connection = [state, text];
  if (!live.isPaused()) showLive(state, text);
}

function showLive(state, text) {
  setAttribute(document.getElementById("live"), "data-state", state);
  setText(document.getElementById("live-text"), text);
}

function showFoot(summary) {
  const { pipeline, collectors, events_total: events, folded } = summary;
  const facts = [
    `${number(Object.values(events).reduce((sum, value) => sum + value, 0))} events`,
    events.invalid ? `${number(events.invalid)} invalid` : null,
    events.late ? `${number(events.late)} late` : null,
    pipeline.events_per_s === null ? null : `${number(Math.round(pipeline.events_per_s))} events/s`,
    pipeline.batch_id === null ? null : `batch ${number(pipeline.batch_id)}`,
    pipeline.batch_duration_s === null ? null : `took ${duration(pipeline.batch_duration_s)}`,
    pipeline.lag_s === null ? null : `lag ${duration(pipeline.lag_s)}`,
    pipeline.state_bytes === null ? null : `state ${bytes(pipeline.state_bytes)}`,
    ...Object.entries(folded)
      .filter(([, value]) => value > 0)
      .map(([what, value]) => `${count(value, what.replace(/s$/, ""))} folded`),
  ].filter(Boolean);
  const foot = document.getElementById("foot");
  const signature = JSON.stringify([facts, Object.keys(collectors)]);
  setChildren(foot, signature, () => [
    el("p", {}, facts.join(" · ")),
    Object.keys(collectors).length
      ? el(
          "p",
          {},
          "Collectors: ",
          Object.keys(collectors).flatMap((collector, index) => [
            index ? ", " : "",
            name(collector),
            " ",
            el("span", { "data-collector": collector }),
            " ago",
          ]),
        )
      : null,
    el("p", {}, el("a", { href: "metrics" }, "Metrics"), " · ", el("a", { href: "api/v1/queues" }, "API")),
  ]);
  for (const node of foot.querySelectorAll("[data-collector]")) {
    live.since(node, collectors[node.dataset.collector]);
  }
}

function wirePause() {
  const button = document.getElementById("pause");
  button.addEventListener("click", () => {
    const paused = live.togglePause();
    setAttribute(button, "aria-pressed", paused);
    setText(document.getElementById("pause-text"), paused ? "Resume" : "Pause");
    if (paused) showLive("paused", `Paused at ${time(live.now(), live.now())}`);
    else showLive(...connection);
  });
}

function wireTheme() {
  const root = document.documentElement;
  const label = () => setText(document.getElementById("theme-text"), root.dataset.theme === "dark" ? "Light" : "Dark");
  document.getElementById("theme").addEventListener("click", () => {
    const theme = root.dataset.theme === "dark" ? "light" : "dark";
    root.dataset.chosen = theme;
    root.dataset.theme = theme;
    try {
      localStorage.setItem("queuewatch-theme", theme);
    } catch {
      // Without storage, the choice lasts until the page is closed.
    }
  });
  new MutationObserver(label).observe(root, { attributeFilter: ["data-theme"] });
  label();
}

/** The link must not change the address, which says what is shown. */
function wireSkip() {
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault();
    main.focus();
  });
}

window.addEventListener("hashchange", route);
wireSkip();
wirePause();
wireTheme();
route();
live.start(show, checkAge, refreshTab);
