// One queue in detail: firing signals with advice, numbers, messages, groups, consumers and settings.

import { announceSignals } from "./announce.js";
import { get } from "./api.js";
import { sinceKnown, trendChart } from "./charts.js";
import { el, name, setAttribute, setChildren, setText, sync, visible } from "./dom.js";
import { basisWord, count, duration, number, percent, signalWords, statusWord, systemName, time } from "./format.js";
import { queueHash, queueKey } from "./links.js";
import { now, setServerTime, since, until } from "./live.js";
import { MessageTable } from "./message_table.js";
import { consumerTable, groupTable } from "./part_tables.js";

const SCOPES = {
  all: ["Oldest", "Since it was sent, whether visible or not"],
  visible: ["Oldest visible", "Of messages a consumer could receive now"],
  healthy: ["Oldest healthy", "Without poison suspects"],
  cloudwatch: ["CloudWatch's age", "What ApproximateAgeOfOldestMessage would show"],
};

/** Labels of the totals whose names do not say what they count. A phone has no tooltips. */
const TOTAL_WORDS = {
  reconciled: "Reconciled away (no end reported)",
  arrived: "Dead letters that arrived",
  retried: "Redelivered from failed batches",
  touched: "Messages with a delivery or end",
  touched_unsent: "… without a reported send",
  unseen_receives: "Receives not reported",
  failed: "Deliveries without a settlement",
  outlived: "Settled too late",
  found_later: "Presumed gone, then reported",
  processed: "Deleted, processing time known",
};

const GONE_RETRY_MS = 10_000;

export class QueuePage {
  /** `parameters` is the query of the URL's hash; `back()` returns the URL of the last overview. */
  constructor(parameters, back) {
    this.who = Object.fromEntries(["system", "scope", "queue"].map((key) => [key, parameters.get(key)]));
    this.wanted = {
      message: parameters.get("message"),
      group: parameters.get("group"),
      consumer: parameters.get("consumer"),
    };
    this.retryAtMs = 0;
    /** The time of the data that are shown; null if none are. */
    this.atMs = null;
    this.build(back);
  }

  build(back) {
    const section = (id, title, ...children) =>
      el("section", { class: "part", id, "aria-labelledby": `${id}-title` }, el("h2", { id: `${id}-title` }, title), ...children);
    this.title = el("h1", { tabindex: "-1" }, name(this.who.queue));
    this.where = el("p", { class: "where" });
    this.sentence = el("p", { class: "sentence" });
    this.gone = el("p", { class: "sentence", "aria-live": "polite" });
    this.firing = el("ul", { class: "reason-list" });
    this.firingPart = section("firing", "Firing", this.firing);
    this.members = el("ul", { class: "near-list" });
    this.membersNote = el("p", { class: "muted" });
    this.membersPart = section("members", "Queues", this.members, this.membersNote);
    this.objectives = el("ul", { class: "objective-list" });
    this.objectivesNote = el("p", { class: "muted" });
    this.objectivesPart = section("objectives", "Objectives", this.objectives, this.objectivesNote);
    this.numbers = el("dl", { class: "numbers" });
    this.charts = el("div", { class: "charts" });
    this.messages = new MessageTable(this.wanted.message);
    this.messagesPart = section("messages", "Messages to look at", this.messages.node);
    this.groups = groupTable(this.wanted.group);
    this.groupsPart = section("groups", "Groups", this.groups.node);
    this.consumers = consumerTable(this.wanted.consumer);
    this.consumersPart = section("consumers", "Consumers", this.consumers.node);
    this.near = el("ul", { class: "near-list" });
    this.nearPart = section("quiet", "Not firing", this.near);
    this.totals = el("dl", { class: "numbers small" });
    this.broker = el("dl", { class: "settings" });
    this.brokerPart = section("settings", "Broker settings", this.broker);
    // Headings without contents would look like a queue with nothing in it: it may have vanished since its alert.
    this.parts = el(
      "div",
      { hidden: true },
      this.firingPart,
      this.membersPart,
      section("numbers", "Now", this.numbers, this.charts),
      this.objectivesPart,
      this.messagesPart,
      this.groupsPart,
      this.consumersPart,
      el(
        "div",
        { class: "columns" },
        this.nearPart,
        section("totals", "Since counting began", this.totals),
        this.brokerPart,
      ),
    );
    this.node = el(
      "div",
      { class: "queue-page" },
      el("p", { class: "back" }, el("a", { href: back() }, "← All queues")),
      el("div", { class: "queue-head" }, this.title, this.where, this.sentence, this.gone),
      this.parts,
    );
  }

  /**
   * Fetches and shows until `signal` aborts it; returns the summary, or null if it is too early to ask again for a queue that
   * is not watched.
   */
  async load(signal) {
    if (performance.now() < this.retryAtMs) return null;
    try {
      const [answer, signals] = await Promise.all([get("queue", this.who, signal), get("signals", { limit: 200 }, signal)]);
      setServerTime(answer.summary.now_ms);
      this.show(answer.queue);
      this.atMs = answer.summary.at_ms;
      announceSignals(signals);
      return answer.summary;
    } catch (error) {
      if (error.code !== "unknown_queue") throw error;
    }
    const { summary } = await get("queues", { limit: 0 }, signal);
    setServerTime(summary.now_ms);
    this.showGone();
    return summary;
  }

  /** The service runs, but not with this queue: asking at every snapshot would be in vain. */
  showGone() {
    this.retryAtMs = performance.now() + GONE_RETRY_MS;
    this.atMs = null;
    this.parts.hidden = true;
    setChildren(this.where, "", () => []);
    setText(this.sentence, "");
    const { queue } = this.who;
    setChildren(this.gone, queue, () => [
      "Queue ",
      name(queue),
      " is not being watched. ",
      el("a", { href: `#/?${new URLSearchParams({ filter: queue })}` }, "Look for it among all queues"),
    ]);
  }

  /** Puts the time of the last data before the sentence when there is no newer data; returns it, or null if none are shown. */
  outdate() {
    if (this.atMs !== null) setText(this.sentence, `At ${time(this.atMs, now())}: ${this.described}`);
    return this.atMs;
  }

  show(queue) {
    this.parts.hidden = false;
    setChildren(this.gone, "", () => []);
    const { shown_status: status, kind, is_dead_letter_queue: deadLetters, dashboard_url: dashboard } = queue;
    setChildren(this.where, JSON.stringify([status, queue.system, queue.scope, kind, deadLetters, dashboard]), () => [
      el("span", { class: "status", "data-status": status }, statusWord(status)),
      name(systemName(queue.system)),
      queue.scope ? name(queue.scope) : null,
      kind ? el("span", {}, name(kind)) : null,
      deadLetters ? el("span", {}, "dead-letter queue") : null,
      dashboard ? el("a", { href: dashboard, rel: "noopener" }, "Grafana") : null,
    ]);
    this.described = visible(queue.sentence);
    setText(this.sentence, this.described);
    this.showFiring(queue.firing);
    this.showMembers(queue);
    this.showNumbers(queue);
    this.showCharts(queue.trend);
    this.showObjectives(queue);
    this.messagesPart.hidden = queue.messages.length === 0;
    this.messages.show(queue.messages);
    this.groupsPart.hidden = queue.top_groups.length === 0;
    this.groups.show(queue.top_groups, groupsNote(queue));
    this.consumersPart.hidden = queue.consumers.length === 0;
    this.consumers.show(queue.consumers, queue.other_consumers ? `and ${number(queue.other_consumers)} more` : "");
    this.showNear(queue.not_firing);
    this.showTotals(queue);
  }

  showFiring(firing) {
    this.firingPart.hidden = firing.length === 0;
    sync(this.firing, firing, (signal) => signal.id, makeReason, updateReason);
  }

  /** The queues folded into this one, with links to their pages; those that need attention come first. */
  showMembers({ members, folded_queues: folded }) {
    this.membersPart.hidden = members.length === 0;
    sync(
      this.members,
      members,
      queueKey,
      (member) => el("li", {}, el("a", { href: queueHash(member) }, name(member.queue)), " ", el("span", {})),
      (node, member) => {
        setAttribute(node, "data-severity", member.severity);
        const signals = member.signals.map(({ signal }) => signalWords(signal));
        setText(node.lastElementChild, [statusWord(member.shown_status), ...signals, `${number(member.visible)} visible`].join(" · "));
      },
    );
    const hidden = folded - members.length;
    setText(this.membersNote, hidden > 0 ? `and ${number(hidden)} more: look for them by name on the page of all queues` : "");
  }

  showNumbers(queue) {
    const items = [
      ...Object.entries(SCOPES)
        .filter(([scope]) => queue.oldest_ms[scope] !== undefined)
        .map(([scope, [label, title]]) => ({
          label: queue.exact_ages.includes(scope) ? label : `${label}, at least`,
          title,
          sinceMs: queue.oldest_ms[scope],
        })),
      { label: "Visible", value: number(queue.visible) },
      { label: "In flight", value: number(queue.in_flight) },
      ...(queue.delayed ? [{ label: "Delayed", value: number(queue.delayed) }] : []),
      ...(queue.receive_count_max ? [{ label: "Most receives", value: number(queue.receive_count_max) }] : []),
      ...(queue.dead_letter_expires_at_ms === null
        ? []
        : [{ label: "First expires in", untilMs: queue.dead_letter_expires_at_ms }]),
      ...(queue.time_to_drain_s === null ? [] : [{ label: "Drains in", value: duration(queue.time_to_drain_s) }]),
      { label: "Last received", sinceMs: queue.last_received_at_ms, ago: true },
      { label: "Last finished", sinceMs: queue.last_settled_at_ms, ago: true },
      ...(queue.coverage_ratio === null
        ? []
        : [{ label: "Tracked", value: percent(queue.coverage_ratio), title: "Share of the broker's own count" }]),
      ...(queue.basis === "messages"
        ? []
        : [{ label: "Known from", value: basisWord(queue.basis), title: `${queue.basis_reason}: ${queue.next_step}` }]),
    ];
    showFacts(this.numbers, items);
  }

  showCharts(trend) {
    setChildren(this.charts, JSON.stringify(trend), () =>
      trend === null
        ? []
        : [
            figure("Visible", trend, sinceKnown(trend.backlog), number),
            figure("Oldest", trend, sinceKnown(trend.oldest_age_s), duration),
          ],
    );
  }

  showObjectives({ objectives, basis, dashboard_url: dashboard }) {
    this.objectivesPart.hidden = objectives.length === 0;
    sync(
      this.objectives,
      objectives,
      (item) => item.objective,
      (item) => el("li", {}, el("strong", {}, item.objective), " ", el("span", {})),
      (node, item) => {
        setAttribute(node, "data-severity", item.budget_used_ratio > 1 ? "critical" : null);
        setText(node.lastElementChild, objectiveSentence(item));
      },
    );
    const reported = basis === "messages" ? "" : "Only reported messages are counted; some are not reported. ";
    setChildren(this.objectivesNote, `${reported}${dashboard}`, () => [
      reported,
      "Since counting began, not of the last 28 days: that budget is in ",
      dashboard ? el("a", { href: `${dashboard}&from=now-28d&to=now`, rel: "noopener" }, "Grafana") : "Prometheus",
      ".",
    ]);
  }

  showNear(near) {
    this.nearPart.hidden = near.length === 0;
    sync(
      this.near,
      near,
      (item) => item.signal,
      (item) => el("li", {}, el("strong", {}, signalWords(item.signal)), " ", el("span", {})),
      (node, item) => setText(node.lastElementChild, visible(item.sentence)),
    );
  }

  showTotals(queue) {
    showFacts(
      this.totals,
      Object.entries(queue.totals)
        .filter(([, total]) => total > 0)
        .map(([label, total]) => ({ label: TOTAL_WORDS[label] ?? keyWords(label), value: number(total) })),
    );
    document.getElementById("totals").hidden = this.totals.children.length === 0;
    const settings = Object.entries(queue.broker).filter(([, value]) => value !== null);
    this.brokerPart.hidden = settings.length === 0;
    setChildren(this.broker, JSON.stringify(settings), () =>
      settings.map(([key, value]) => el("div", {}, el("dt", {}, name(keyWords(key))), el("dd", {}, name(settingWords(key, value))))),
    );
  }

  /** Focuses the queue's name, where reading starts after navigation, and scrolls to a wanted message. */
  takeFocus() {
    this.title.focus({ preventScroll: true });
    document.getElementById("wanted")?.scrollIntoView({ block: "center" });
  }
}

function groupsNote(queue) {
  const states = Object.entries(queue.groups)
    .filter(([, groups]) => groups > 0)
    .map(([state, groups]) => `${number(groups)} ${state.replace("_", " ")}`);
  const rest = queue.other_groups ? `and ${number(queue.other_groups)} more groups` : "";
  return [states.join(", "), rest].filter(Boolean).join(" · ");
}

const TIMED = {
  sojourn: (limit) => `settled within ${limit} of being sent`,
  wait: (limit) => `first received within ${limit} of being sent`,
  processing: (limit) => `settled within ${limit} of the last receive`,
};

function objectiveSentence(item) {
  const promise = `${Number((item.ratio * 100).toFixed(4))}% ${TIMED[item.of](duration(item.within_s))}`;
  if (item.ended === 0) return `${promise}: no message has ended yet.`;
  // Rounded down: if one message missed the objective, this is not 100%.
  const share = `${Math.floor(item.in_time_ratio * 10_000) / 100}%`;
  const missed = `${number(item.missed)} of ${count(item.ended, "message")} late or lost`;
  return `${promise}: ${share} were, ${missed}, ${percent(item.budget_used_ratio)} of the misses allowed.`;
}

/** Formats `visibility_timeout_s` as `Visibility timeout`; the unit is shown with the value. */
function keyWords(key) {
  const words = key.replace(/_(per_s|s|ms)$/, "").replaceAll("_", " ");
  return words.charAt(0).toUpperCase() + words.slice(1);
}

/** The judge's own values, in words. What a broker or a user wrote, such as another reason, stays as it is. */
const EVIDENCE_WORDS = {
  reason: {
    poison_head: "its head fails again and again",
    held_head: "a consumer holds its head",
    not_received: "its head is not received",
    no_receives: "consumers stopped receiving",
    no_progress: "consumers receive but never finish",
  },
  known_by: {
    event: "seen as a move",
    first_receive: "seen as a first receive here",
    counts: "seen in the broker's counts",
  },
  state: { in_flight: "in flight" },
  head_state: { in_flight: "in flight" },
};

function evidenceWords(key, value) {
  const words = EVIDENCE_WORDS[key] ?? {};
  return Object.hasOwn(words, value) ? words[value] : settingWords(key, value);
}

function settingWords(key, value) {
  if (key.endsWith("_per_s") && typeof value === "number") return `${number(value)} /s`;
  if (key.endsWith("_s") && typeof value === "number") return duration(value);
  if (/_(at|since|until|ms)$/.test(key) && typeof value === "number" && value > 1e12) return time(value, now());
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value === "number") return number(value);
  if (Array.isArray(value)) return value.map((one) => settingWords("", one)).join(", ") || "none";
  if (value !== null && typeof value === "object") {
    const parts = Object.entries(value).map(([part, one]) => `${part}: ${settingWords(part, one)}`);
    return parts.join(", ") || "none";
  }
  return String(value ?? "–");
}

function showFacts(list, items) {
  sync(
    list,
    items,
    (item) => item.label,
    (item) => el("div", {}, el("dt", {}, item.label), el("dd", {}, el("span", {}), item.ago ? " ago" : "")),
    (node, item) => {
      setAttribute(node, "title", item.title);
      const value = node.querySelector("dd > span");
      if ("sinceMs" in item) since(value, item.sinceMs);
      else if ("untilMs" in item) until(value, item.untilMs);
      else setText(value, item.value);
      if (item.ago) node.hidden = item.sinceMs === null;
    },
  );
}

function figure(title, trend, points, write) {
  const values = points.filter((value) => value !== null);
  const spanS = trend.step_s * points.length;
  return el(
    "figure",
    {},
    el(
      "figcaption",
      {},
      el("span", {}, title),
      el("span", { class: "muted" }, values.length ? `at most ${write(Math.max(...values))}` : "nothing known yet"),
    ),
    trendChart(title, trend.step_s, points, write),
    el(
      "div",
      { class: "chart-axis", "aria-hidden": "true" },
      el("span", {}, values.length ? `${duration(spanS)} ago` : ""),
      el("span", {}, time(trend.end_ms, trend.end_ms)),
    ),
  );
}

function makeReason(signal) {
  return el(
    "li",
    { class: "reason" },
    el(
      "p",
      { class: "signal-head" },
      el("span", { class: "severity" }),
      el("strong", { class: "signal-name" }, signalWords(signal.signal)),
      el("span", { class: "signal-since" }, "for ", el("span", { "data-role": "since" })),
    ),
    el("p", { class: "signal-summary" }),
    el("dl", { class: "evidence" }),
    el("details", {}, el("summary", {}, "What it means and what to do"), el("div", { "data-role": "advice" })),
  );
}

/** Text in which parts between backticks are code. */
function codeWords(text) {
  return text.split("`").map((part, index) => (index % 2 ? el("code", {}, part) : part));
}

function updateReason(node, signal) {
  setAttribute(node, "data-severity", signal.severity);
  setText(node.querySelector(".severity"), signal.severity);
  setText(node.querySelector(".signal-summary"), visible(signal.summary));
  since(node.querySelector('[data-role="since"]'), signal.since_ms);
  const about = { message: signal.message_id, group: signal.group, consumer: signal.consumer, ...signal.evidence };
  const facts = Object.entries(about).filter(([, value]) => value !== null && value !== undefined);
  setChildren(node.querySelector(".evidence"), JSON.stringify(facts), () =>
    facts.map(([key, value]) =>
      el("div", {}, el("dt", {}, name(keyWords(key))), el("dd", {}, name(evidenceWords(key, value)))),
    ),
  );
  // The remedy depends on the reason, which can change while the signal fires.
  const { meaning, to_do: steps, runbook_url: runbook } = signal;
  setChildren(node.querySelector('[data-role="advice"]'), JSON.stringify([meaning, steps, runbook]), () => [
    el("p", {}, meaning),
    el(
      "ul",
      { class: "to-do" },
      steps.map((step) => el("li", {}, ...codeWords(step))),
    ),
    runbook ? el("p", {}, el("a", { href: runbook, rel: "noopener" }, "Runbook")) : null,
  ]);
}
