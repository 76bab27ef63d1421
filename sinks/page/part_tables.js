// Small tables of a queue's groups and consumers.

import { el, name, setAttribute, setChildren, setText, sync } from "./dom.js";
import { number } from "./format.js";
import { since } from "./live.js";

class PartTable {
  constructor(caption, columns, keyOf, make, update, wanted) {
    this.keyOf = keyOf;
    this.make = make;
    this.update = (node, item) => {
      update(node, item);
      setAttribute(node, "id", wanted !== null && keyOf(item) === wanted ? "wanted" : null);
    };
    this.body = el("tbody", { role: "rowgroup" });
    this.note = el("p", { class: "muted note" });
    this.node = el(
      "div",
      {},
      el(
        "table",
        { class: "part-table", role: "table" },
        el("caption", { class: "unseen" }, caption),
        el(
          "thead",
          { role: "rowgroup" },
          el(
            "tr",
            { role: "row" },
            columns.map(([words, kind]) => el("th", { scope: "col", role: "columnheader", class: kind }, words)),
          ),
        ),
        this.body,
      ),
      this.note,
    );
  }

  show(items, note) {
    sync(this.body, items, this.keyOf, this.make, this.update);
    setText(this.note, note);
    this.note.hidden = note === "";
  }
}

function cells(...columns) {
  return el(
    "tr",
    { role: "row" },
    columns.map(([role, label, kind]) =>
      el("td", { role: "cell", class: kind ?? "", "data-label": label }, el("span", { "data-role": role })),
    ),
  );
}

function finder(node) {
  return (role) => node.querySelector(`[data-role="${role}"]`);
}

/** The oldest groups, each with its head. */
export function groupTable(wanted) {
  return new PartTable(
    "Groups, the oldest first",
    [
      ["Group", ""],
      ["", ""],
      ["Unsettled", "number"],
      ["In flight", "number"],
      ["Oldest", "number"],
      ["Head", ""],
      ["Receives of head", "number"],
      ["Last finished", "number"],
    ],
    (group) => group.group,
    () => {
      const row = cells(
        ["group", "Group"],
        ["stuck", ""],
        ["unsettled", "Unsettled", "number"],
        ["in-flight", "In flight", "number"],
        ["oldest", "Oldest", "number"],
        ["head", "Head"],
        ["receives", "Receives of head", "number"],
        ["settled", "Last finished", "number"],
      );
      finder(row)("settled").after(el("span", { "data-role": "ago" }));
      return row;
    },
    (node, group) => {
      const find = finder(node);
      setAttribute(node, "data-severity", group.stuck ? "critical" : null);
      setChildren(find("group"), group.group, () => name(group.group, "mono"));
      setChildren(find("stuck"), String(group.stuck), () =>
        group.stuck ? el("span", { class: "tag", "data-severity": "critical" }, "Stuck") : null,
      );
      setText(find("unsettled"), number(group.unsettled));
      setText(find("in-flight"), number(group.in_flight));
      since(find("oldest"), group.oldest_sent_at_ms);
      setChildren(find("head"), group.head_message_id ?? "", () =>
        group.head_message_id ? name(group.head_message_id, "mono") : "–",
      );
      setText(find("receives"), number(group.head_receive_count));
      since(find("settled"), group.last_settled_at_ms);
      setText(find("ago"), group.last_settled_at_ms === null ? "" : " ago");
    },
    wanted,
  );
}

/** Consumers, the messages that they hold, and for how long. */
export function consumerTable(wanted) {
  return new PartTable(
    "Consumers, longest hold first",
    [
      ["Consumer", ""],
      ["Holds", "number"],
      ["Oldest held for", "number"],
      ["Oldest message", ""],
      ["Prefetch", "number"],
      ["Connected", ""],
    ],
    (consumer) => consumer.consumer,
    () =>
      cells(
        ["consumer", "Consumer"],
        ["held", "Holds", "number"],
        ["since", "Oldest held for", "number"],
        ["message", "Oldest message"],
        ["prefetch", "Prefetch", "number"],
        ["connected", "Connected"],
      ),
    (node, consumer) => {
      const find = finder(node);
      setChildren(find("consumer"), consumer.consumer, () => name(consumer.consumer, "mono"));
      setText(find("held"), number(consumer.held));
      since(find("since"), consumer.oldest_held_since_ms);
      setChildren(find("message"), consumer.oldest_message_id ?? "", () =>
        consumer.oldest_message_id ? name(consumer.oldest_message_id, "mono") : "–",
      );
      setText(find("prefetch"), number(consumer.prefetch));
      setText(find("connected"), consumer.connected === null ? "–" : consumer.connected ? "yes" : "no");
    },
    wanted,
  );
}
