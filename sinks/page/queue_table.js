// The table of queues: one row per queue, sorted by the service, updated in place.

import { el, name, setAttribute, setChildren, setText, sync } from "./dom.js";
import { basisWord, count, number, signalWords, statusWord, systemName } from "./format.js";
import { queueHash, queueKey } from "./links.js";
import { since } from "./live.js";
import { sparkline } from "./charts.js";

/** Labels of the API's sort keys. */
export const SORTS = {
  attention: "Needs attention",
  queue: "Name",
  status: "Status",
  signals: "Signals",
  age: "Oldest",
  age_visible: "Oldest visible",
  visible: "Visible",
  in_flight: "In flight",
  receives: "Most receives",
};

const COLUMNS = [
  ["queue", "Queue", "", ""],
  ["status", "Status", "", ""],
  ["signals", "Signals", "", ""],
  ["age", "Oldest", "number", "Age of the oldest unsettled message, including those in flight and delayed"],
  ["age_visible", "Oldest visible", "number", "Age of the oldest message a consumer could receive now"],
  ["visible", "Visible", "number", "Messages a consumer could receive now"],
  ["in_flight", "In flight", "number", "Messages delivered but not yet finished"],
  ["receives", "Most receives", "number", "The highest receive count of an unsettled message"],
  [null, "Visible, recently", "trend", ""],
];

export class QueueTable {
  /** `onSort(key)` is called with a sort key of the API. */
  constructor(onSort) {
    this.heads = new Map();
    const heads = COLUMNS.map(([key, words, kind, title]) => {
      const head = el("th", { scope: "col", class: kind, role: "columnheader" });
      if (key === null) head.append(words);
      else {
        head.append(el("button", { type: "button", title: title || null, onclick: () => onSort(key) }, words));
        this.heads.set(key, head);
      }
      return head;
    });
    this.body = el("tbody", { role: "rowgroup" });
    // The card layout hides the headers and has a list of sort orders above; Tab must skip the headers.
    const cards = matchMedia("(max-width: 60rem)");
    const reach = () => {
      for (const head of this.heads.values()) setAttribute(head.firstElementChild, "tabindex", cards.matches ? "-1" : null);
    };
    cards.addEventListener("change", reach);
    reach();
    // On a phone the rows are cards; with the roles, screen readers still see a table.
    this.node = el(
      "table",
      { class: "queue-table", role: "table" },
      el("caption", { class: "unseen" }, "Queues, by default those that need attention first"),
      el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, heads)),
      this.body,
    );
  }

  /** `rows` as in the API's response. */
  show(rows, sort, order) {
    for (const [key, head] of this.heads) {
      setAttribute(head, "aria-sort", key === sort ? (order === "asc" ? "ascending" : "descending") : null);
    }
    sync(this.body, this.steady(rows), queueKey, makeRow, updateRow);
  }

  /** Keeps the order under a pointer or focus while the table has the same queues. */
  steady(rows) {
    const shown = [...this.body.children].map((node) => node.dataset.key);
    const held = this.body.matches(":hover") || this.body.contains(document.activeElement);
    if (!held || shown.length !== rows.length) return rows;
    const byKey = new Map(rows.map((row) => [queueKey(row), row]));
    return shown.every((key) => byKey.has(key)) ? shown.map((key) => byKey.get(key)) : rows;
  }
}

function makeRow(row) {
  const cell = (kind, label, ...children) => el("td", { class: kind, role: "cell", "data-label": label }, ...children);
  return el(
    "tr",
    { role: "row" },
    el(
      "th",
      { scope: "row", role: "rowheader", class: "cell-queue" },
      el("a", { class: "stretched", href: queueHash(row) }, name(row.queue)),
      el("span", { class: "cell-where" }),
    ),
    cell("cell-status", "Status", el("span", { class: "status" })),
    cell("cell-signals", "Signals"),
    cell("number", "Oldest", el("span", { "data-role": "age" })),
    cell("number", "Oldest visible", el("span", { "data-role": "age-visible" })),
    cell("number", "Visible", el("span", { "data-role": "visible" })),
    cell("number", "In flight", el("span", { "data-role": "in-flight" })),
    cell("number", "Most receives", el("span", { "data-role": "receives" })),
    cell("trend", "Visible, recently"),
  );
}

/** For a queue without full telemetry: the basis of its numbers, the reason, and what would complete them. */
function basisBadge(queue) {
  if (!queue.basis || queue.basis === "messages") return [];
  const title = [queue.basis_reason, queue.next_step].filter(Boolean).join(": ");
  return [" ", el("span", { class: "tag basis", title }, basisWord(queue.basis))];
}

function updateRow(node, row) {
  const find = (role) => node.querySelector(`[data-role="${role}"]`);
  setAttribute(node, "data-severity", row.severity);
  setAttribute(node, "data-status", row.shown_status);
  setText(node.querySelector(".status"), statusWord(row.shown_status));
  const { is_dead_letter_queue: deadLetters, ordered, basis, basis_reason: reason, next_step: step, folded_queues: folded } = row;
  const where = JSON.stringify([deadLetters, ordered, basis, reason, step, folded, row.worst_queue]);
  setChildren(node.querySelector(".cell-where"), where, () => [
    name(systemName(row.system)),
    ...(row.scope ? [" · ", name(row.scope)] : []),
    ...(folded ? [` · ${count(folded, "queue")}, worst: `, name(row.worst_queue)] : []),
    ...(deadLetters ? [" · dead letters"] : []),
    ...(ordered ? [" · ordered"] : []),
    ...basisBadge(row),
  ]);
  setChildren(node.querySelector(".cell-signals"), JSON.stringify(row.signals), () =>
    row.signals.map((signal) =>
      el(
        "span",
        { class: "tag", "data-severity": signal.severity },
        signalWords(signal.signal),
        signal.count > 1 ? el("span", { class: "tag-count" }, ` ×${number(signal.count)}`) : null,
      ),
    ),
  );
  since(find("age"), row.oldest_ms.all);
  since(find("age-visible"), row.oldest_ms.visible);
  for (const [role, scope] of [["age", "all"], ["age-visible", "visible"]]) {
    const bound = row.oldest_ms[scope] !== undefined && !row.exact_ages.includes(scope);
    setAttribute(find(role), "data-least", bound ? "≥ " : null);
  }
  setText(find("visible"), number(row.visible));
  setText(find("in-flight"), number(row.in_flight));
  setText(find("receives"), row.receive_count_max > 0 ? number(row.receive_count_max) : "–");
  setChildren(node.querySelector("td.trend"), JSON.stringify(row.trend?.backlog), () => sparkline(row.trend));
}
