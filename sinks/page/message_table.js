// The listed messages, each with its timeline; dead letters show the time until they expire.

import { timeline } from "./charts.js";
import { el, name, setChildren, setText, sync } from "./dom.js";
import { count, duration, number, time } from "./format.js";
import { now, since, until } from "./live.js";

const FEW = 25;

const WHY = {
  poison: "Poison",
  held: "Held",
  head: "Head of group",
  dead_letter: "Dead letter",
  oldest: "Oldest",
};

const SUSPECT = new Set(["poison", "held", "dead_letter"]);

const KNOWN_BY = {
  event: "",
  first_receive: "known by its first receive here",
  inferred: "inferred",
};

export class MessageTable {
  /** `wanted` is the id of a message to open, or null. */
  constructor(wanted) {
    this.wanted = wanted;
    this.all = false;
    this.last = [];
    this.list = el("ol", { class: "message-list" });
    this.more = el("button", {
      type: "button",
      class: "quiet",
      hidden: true,
      onclick: () => {
        this.all = !this.all;
        this.show(this.last);
      },
    });
    this.node = el("div", {}, this.list, this.more);
  }

  /** `messages` as in the API's response. */
  show(messages) {
    this.last = messages;
    const few = messages.filter((message, index) => index < FEW || message.message_id === this.wanted);
    sync(
      this.list,
      this.all ? messages : few,
      (message) => message.message_id,
      (message) => makeMessage(message, message.message_id === this.wanted),
      updateMessage,
    );
    this.more.hidden = messages.length <= few.length && !this.all;
    setText(this.more, this.all ? "Show fewer" : `Show all ${count(messages.length, "message")}`);
  }
}

function makeMessage(message, wanted) {
  return el(
    "li",
    { class: "message", id: wanted ? "wanted" : null },
    el(
      "div",
      { class: "message-head" },
      name(message.message_id, "mono message-id"),
      el("button", { type: "button", class: "copy", onclick: (event) => copy(event.currentTarget, message.message_id) }, "Copy id"),
      el("span", { class: "message-why" }),
    ),
    el("dl", { class: "facts" }),
    el("div", { class: "message-times" }),
    el("details", { open: wanted }, el("summary", {}, "Receives"), el("ol", { class: "attempts" })),
  );
}

function updateMessage(node, message) {
  setChildren(node.querySelector(".message-why"), message.why.join(), () =>
    message.why.map((why) => el("span", { class: "tag", "data-severity": SUSPECT.has(why) ? "warning" : null }, WHY[why] ?? why)),
  );
  showFacts(node.querySelector(".facts"), message);
  const times = node.querySelector(".message-times");
  times.hidden = message.attempts.length === 0;
  if (message.attempts.length) times.replaceChildren(timeline(message, now()));
  const details = node.querySelector("details");
  details.hidden = message.attempts.length === 0;
  setText(details.querySelector("summary"), summaryWords(message));
  setChildren(details.querySelector("ol"), JSON.stringify(message.attempts), () => message.attempts.map(attemptLine));
}

function summaryWords(message) {
  const of = (what) => message.attempts.filter((attempt) => attempt.what === what).length;
  const words = [
    [of("received"), "receive"],
    [of("extended"), "extension"],
    [of("released"), "release"],
  ].flatMap(([times, thing]) => (times ? [count(times, thing)] : []));
  return `${words.join(", ")}, one by one`;
}

function showFacts(list, message) {
  const facts = [
    ["State", "text", { visible: "visible", in_flight: "in flight", delayed: "delayed" }[message.state]],
    [message.sent_known ? "Age" : "Age, at least", "since", message.sent_at_ms],
    // The receives of a dead letter in its source queue are not known here.
    ["Receives", "text", message.receive_count === null ? null : number(message.receive_count)],
    ["Deletions refused", "text", message.refused_settlements ? `${count(message.refused_settlements, "time")}, too late` : null],
    ["Window ends in", "until", message.state === "in_flight" ? message.invisible_until_ms : null],
    ["Consumer", "name", message.consumer],
    ["Group", "name", message.group],
    ["Sequence", "name", message.sequence],
    ["Arrived", "since", message.arrived_at_ms],
    ["Expires in", "until", message.arrived_at_ms === null ? null : message.expires_at_ms],
    ["Arrival", "text", KNOWN_BY[message.arrival_known_by] || null],
  ].filter(([, , value]) => value !== null && value !== undefined);
  sync(
    list,
    facts,
    ([label]) => label,
    ([label]) =>
      el("div", {}, el("dt", {}, label), el("dd", {}, el("span", {}), label === "Arrived" ? " ago" : "")),
    (node, [, kind, value]) => {
      const place = node.querySelector("dd > span");
      if (kind === "since") since(place, value);
      else if (kind === "until") until(place, value);
      else if (kind === "name") setChildren(place, value, () => name(value, "mono"));
      else setText(place, value);
    },
  );
}

function attemptLine(attempt) {
  const words = { received: `Receive ${number(attempt.receive_count)}`, extended: "Window extended", released: "Released" };
  const window = attempt.end_ms === null ? "" : `, invisible for ${duration((attempt.end_ms - attempt.at_ms) / 1000)}`;
  return el(
    "li",
    {},
    el("time", { datetime: new Date(attempt.at_ms).toISOString() }, time(attempt.at_ms, now())),
    " ",
    words[attempt.what] ?? attempt.what,
    attempt.consumer ? " by " : "",
    attempt.consumer ? name(attempt.consumer, "mono") : "",
    window,
  );
}

async function copy(button, id) {
  try {
    await navigator.clipboard.writeText(id);
    setText(button, "Copied");
  } catch {
    // Without HTTPS a browser may refuse to copy; the id can still be selected.
    const selection = getSelection();
    selection.selectAllChildren(button.parentElement.querySelector(".message-id"));
    setText(button, "Selected");
  }
  setTimeout(() => setText(button, "Copy id"), 2_000);
}
