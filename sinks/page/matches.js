// Search results other than queues: messages, groups and consumers, each with a link to its queue.

import { el, name, setChildren } from "./dom.js";
import { number } from "./format.js";
import { queueHash } from "./links.js";

const SHOWN = 8;

export class Matches {
  constructor() {
    this.node = el("div", { class: "matches", hidden: true });
  }

  /** `found` is the API's response, or null without a search. */
  show(found) {
    const others = (found?.matches ?? []).filter((match) => match.kind !== "queue");
    this.node.hidden = others.length === 0;
    setChildren(this.node, JSON.stringify(others), () => [
      el("h3", {}, "Also found"),
      el(
        "ul",
        {},
        others.slice(0, SHOWN).map((match) =>
          el(
            "li",
            {},
            el("span", { class: "match-kind" }, match.kind),
            el("a", { href: queueHash(match, { [match.kind]: match.name }) }, name(match.name, "mono")),
            el("span", { class: "muted" }, " in "),
            name(match.queue),
          ),
        ),
      ),
      others.length > SHOWN
        ? el("p", { class: "muted" }, `and ${number(others.length - SHOWN)} more: type more of the name`)
        : null,
    ]);
  }
}
