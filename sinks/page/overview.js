// All queues: a headline, a few numbers, the firing signals, and the table.

import { announceSignals } from "./announce.js";
import { get } from "./api.js";
import { el, setAttribute, setChildren, setText } from "./dom.js";
import { count, number, statusWord, time } from "./format.js";
import { now, refresh, setServerTime, since } from "./live.js";
import { Matches } from "./matches.js";
import { QueueTable, SORTS } from "./queue_table.js";
import { SignalList } from "./signal_list.js";

const PAGE = 50;
const PHONE = matchMedia("(max-width: 40rem)");
const MANY_SIGNALS = 200;
const CHIPS = ["all", "firing", "critical", "failing", "stalled", "stopped", "lagging", "stale", "unknown", "ok"];

export class Overview {
  /** `parameters` is the query of the URL's hash; `onAddress(hash)` is called when the hash changes. */
  constructor(parameters, onAddress) {
    this.onAddress = onAddress;
    this.filter = parameters.get("filter") ?? "";
    this.status = CHIPS.includes(parameters.get("status")) ? parameters.get("status") : "all";
    this.sort = Object.hasOwn(SORTS, parameters.get("sort")) ? parameters.get("sort") : "attention";
    this.order = parameters.get("order") === "asc" ? "asc" : "desc";
    this.page = Math.max(1, Number.parseInt(parameters.get("page") ?? "1", 10) || 1);
    this.allSignals = false;
    this.build();
  }

  build() {
    this.headline = el("h1", { class: "headline" }, "Loading…");
    this.stats = el("dl", { class: "stats" });
    this.signals = new SignalList("Firing now");
    this.moreSignals = el("button", { type: "button", class: "quiet", hidden: true, onclick: () => this.toggleSignals() });
    this.resolved = el("ul", { class: "resolved-list" });
    this.resolvedBox = el("details", { class: "resolved", hidden: true }, el("summary", {}, "Recently resolved"), this.resolved);
    this.search = el("input", {
      type: "search",
      id: "filter",
      placeholder: "Queue, group, consumer or message id",
      autocomplete: "off",
      spellcheck: "false",
      value: this.filter,
      oninput: () => this.typed(),
    });
    this.search.value = this.filter;
    this.chips = el("div", { class: "chips", role: "group", "aria-label": "Show queues that are" });
    this.sorting = el(
      "select",
      { id: "sorting", onchange: () => this.setSort(this.sorting.value) },
      Object.entries(SORTS).map(([key, words]) => el("option", { value: key }, words)),
    );
    this.matches = new Matches();
    this.table = new QueueTable((key) => this.setSort(key));
    this.found = el("p", { class: "found", "aria-live": "polite" });
    this.previous = el("button", { type: "button", class: "quiet", onclick: () => this.turn(-1) }, "← Previous");
    this.next = el("button", { type: "button", class: "quiet", onclick: () => this.turn(1) }, "Next →");
    this.pager = el("nav", { class: "pager", "aria-label": "Pages of queues" }, this.previous, this.found, this.next);
    this.node = el(
      "div",
      { class: "overview" },
      el("section", { class: "hero" }, this.headline, this.stats),
      el(
        "section",
        { class: "firing", "aria-labelledby": "firing-title" },
        el("h2", { id: "firing-title", class: "unseen" }, "Firing now"),
        this.signals.node,
        this.moreSignals,
        this.resolvedBox,
      ),
      el(
        "section",
        { class: "queues", "aria-labelledby": "queues-title" },
        el("h2", { id: "queues-title", class: "unseen" }, "Queues"),
        el(
          "div",
          { class: "toolbar" },
          el("div", { class: "search" }, el("label", { class: "unseen", for: "filter" }, "Filter and find"), this.search),
          this.chips,
          el("div", { class: "sorting" }, el("label", { for: "sorting" }, "Sort by"), this.sorting),
        ),
        this.matches.node,
        this.table.node,
        this.pager,
      ),
    );
  }

  /** Fetches and shows until `signal` aborts it; returns the summary. */
  async load(signal) {
    const text = this.filter.trim();
    const [queues, signals, matches] = await Promise.all([
      get(
        "queues",
        {
          filter: text,
          status: this.status === "all" || this.status === "firing" ? null : this.status,
          firing: this.status === "firing" ? 1 : null,
          sort: this.sort,
          order: this.order,
          offset: (this.page - 1) * PAGE,
          limit: PAGE,
        },
        signal,
      ),
      get("signals", { limit: MANY_SIGNALS }, signal),
      text.length > 1 ? get("search", { q: text }, signal) : null,
    ]);
    if (queues.total > 0 && queues.queues.length === 0) {
      // The requested page no longer exists: queues vanished, or the filter got stricter.
      this.page = Math.ceil(queues.total / PAGE);
      return this.load(signal);
    }
    setServerTime(queues.summary.now_ms);
    this.show(queues, signals, matches);
    return queues.summary;
  }

  show(queues, signals, matches) {
    this.showHero(queues.summary);
    this.showSignals(signals);
    this.showChips(queues.summary);
    this.matches.show(matches);
    this.table.show(queues.queues, this.sort, this.order);
    this.table.node.hidden = queues.total === 0;
    this.sorting.value = this.sort;
    this.showPager(queues);
    announceSignals(signals);
  }

  /** Adds the time of the last data to the headline when there is no newer data; returns it, or null if none are shown. */
  outdate() {
    if (!this.latest) return null;
    setText(this.headline, headline(this.latest, this.latest.at_ms));
    return this.latest.at_ms;
  }

  showHero(summary) {
    this.latest = summary;
    setText(this.headline, headline(summary));
    const stats = [
      ["Queues", number(summary.queues)],
      ["Visible", number(summary.visible)],
      ["In flight", number(summary.in_flight)],
      ["Oldest", null, "Without dead-letter queues"],
      ["Dead letters", number(summary.dead_letters)],
    ];
    setChildren(this.stats, stats.map(([label]) => label).join(), () =>
      stats.map(([label, , title]) => el("div", { title }, el("dt", {}, label), el("dd", { "data-stat": label }))),
    );
    for (const [label, value] of stats) {
      const node = this.stats.querySelector(`[data-stat="${label}"]`);
      if (label === "Oldest") {
        since(node, summary.oldest_ms);
        setAttribute(node, "data-least", summary.oldest_is_exact === false ? "≥ " : null);
      } else setText(node, value);
    }
  }

  showSignals(signals) {
    const few = PHONE.matches ? 3 : 6;
    const shown = this.allSignals ? signals.firing : signals.firing.slice(0, few);
    this.signals.show(shown);
    const hidden = signals.total - shown.length;
    this.moreSignals.hidden = signals.total <= few;
    setText(
      this.moreSignals,
      this.allSignals
        ? hidden > 0
          ? `Show fewer (${count(hidden, "signal")} are not shown: use the filter)`
          : "Show fewer"
        : `Show all ${count(signals.total, "signal")}`,
    );
    setAttribute(this.moreSignals, "aria-expanded", this.allSignals);
    this.resolvedBox.hidden = signals.resolved.length === 0;
    setChildren(this.resolved, signals.resolved.map((item) => item.id + item.resolved_at_ms).join(), () =>
      signals.resolved.slice(0, 8).map((item) => SignalList.resolvedItem(item)),
    );
    for (const node of this.resolved.querySelectorAll("[data-resolved]")) since(node, node.dataset.resolved);
  }

  showChips(summary) {
    const counts = { all: summary.queues, firing: summary.queues_firing, ...summary.statuses };
    const shown = CHIPS.filter((chip) => counts[chip] || chip === "all" || chip === this.status);
    setChildren(this.chips, shown.join(), () =>
      shown.map((chip) =>
        el(
          "button",
          { type: "button", class: `chip chip-${chip}`, "data-chip": chip, onclick: () => this.setStatus(chip) },
          el("span", {}, { all: "All", firing: "Firing" }[chip] ?? statusWord(chip)),
          el("span", { class: "chip-count" }),
        ),
      ),
    );
    for (const node of this.chips.children) {
      const { chip } = node.dataset;
      setAttribute(node, "aria-pressed", String(chip === this.status));
      setText(node.lastElementChild, number(counts[chip] ?? 0));
    }
  }

  showPager({ total, offset, queues }) {
    const many = total > PAGE;
    setText(
      this.found,
      total === 0
        ? "No matching queues."
        : many
          ? `${number(offset + 1)}–${number(offset + queues.length)} of ${count(total, "queue")}`
          : count(total, "queue"),
    );
    this.previous.hidden = this.next.hidden = !many;
    this.previous.disabled = offset === 0;
    this.next.disabled = offset + queues.length >= total;
  }

  typed() {
    this.filter = this.search.value;
    this.page = 1;
    clearTimeout(this.typing);
    this.typing = setTimeout(() => this.changed(), 200);
  }

  setStatus(status) {
    this.status = status;
    this.page = 1;
    this.changed();
  }

  setSort(key) {
    if (key === this.sort && key !== "attention") this.order = this.order === "desc" ? "asc" : "desc";
    else this.order = key === "queue" ? "asc" : "desc";
    this.sort = key;
    this.page = 1;
    this.changed();
  }

  turn(pages) {
    this.page += pages;
    this.changed().then(() => {
      this.table.node.scrollIntoView({ block: "start" });
    });
  }

  toggleSignals() {
    this.allSignals = !this.allSignals;
    refresh(true);
  }

  changed() {
    const query = new URLSearchParams();
    if (this.filter.trim()) query.set("filter", this.filter.trim());
    if (this.status !== "all") query.set("status", this.status);
    if (this.sort !== "attention") query.set("sort", this.sort);
    if (this.order !== (this.sort === "queue" ? "asc" : "desc")) query.set("order", this.order);
    if (this.page > 1) query.set("page", this.page);
    const text = query.toString();
    this.onAddress(text ? `#/?${text}` : "#/");
    return refresh(true);
  }

  /** Focuses the row of the queue that was open before. */
  takeFocus(queueHash) {
    const link = [...this.node.querySelectorAll("a[href]")].find((node) => node.getAttribute("href") === queueHash);
    link?.focus();
  }
}

/** The headline; `wasAtMs` is the time of a summary that is no longer current. */
function headline(summary, wasAtMs = null) {
  const { critical = 0, warning = 0 } = summary.firing;
  const at = wasAtMs === null ? "" : ` at ${time(wasAtMs, now())}`;
  const parts = [critical ? `${number(critical)} critical` : "", warning ? count(warning, "warning") : ""];
  const what = parts.filter(Boolean).join(" and ");
  if (summary.queues === 0) return what ? `No queues yet, but ${what}${at}` : "No queues yet";
  if (!what) return `${fine(summary, wasAtMs === null ? "are" : "were")}${at}`;
  if (summary.queues_alerting === 0) return `${what}, none of them on a queue${at}`;
  // Silent collectors and untrusted clocks belong to no queue.
  const { critical: otherCritical = 0, warning: otherWarning = 0 } = summary.firing_without_queue;
  const others = otherCritical + otherWarning;
  const which = others ? `, ${number(critical + warning - others)} of them` : "";
  return `${what}${which} on ${number(summary.queues_alerting)} of ${count(summary.queues, "queue")}${at}`;
}

/** The headline without a firing signal: only queues with status OK are fine, the others are counted by status. */
function fine({ queues, statuses }, verb) {
  const others = CHIPS.filter((status) => status !== "ok" && statuses[status]);
  if (queues === 1) return `The queue ${verb === "are" ? "is" : "was"} ${others[0] ?? "fine"}`;
  if (others.length === 0) return `All ${number(queues)} queues ${verb} fine`;
  const counts = others.map((status) => `${number(statuses[status])} ${status}`);
  return [`${number(statuses.ok ?? 0)} of ${number(queues)} queues ${verb} fine`, ...counts].join(", ");
}
