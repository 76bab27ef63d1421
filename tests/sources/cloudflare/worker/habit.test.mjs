import assert from "node:assert/strict";
import { mock, test } from "node:test";

import { Verdict } from "../../../../sources/cloudflare/worker/verdict.mjs";
import { Watcher } from "../../../../sources/cloudflare/worker/watcher.mjs";

const MINUTE_MS = 60_000;
const START_MS = 1_750_000_000_000;
const HABITS = { throws_on_error: true, backoff_cap_exceeded_at_attempt: 2 };
const WITHDRAWN = { throws_on_error: false, backoff_cap_exceeded_at_attempt: null };

mock.timers.enable({ apis: ["Date"], now: START_MS });

/** One isolate. `good` and `bad` are a batch at a minute after the start; the reports on the queue are returned. */
function isolate(queues = {}) {
  const watcher = new Watcher({ queues });
  const batch = (minute, verdict, outcome) => {
    mock.timers.setTime(START_MS + minute * MINUTE_MS);
    const messages = ["a", "b"].map((id) => ({ id, body: null, timestamp: new Date(), attempts: 2 }));
    watcher.noteOutcome(watcher.batchFacts("orders", messages), verdict, outcome);
    return watcher.stateEvents("orders");
  };
  return {
    watcher,
    good: (minute) => batch(minute, new Verdict(), { failed: false }),
    bad: (minute) => {
      const verdict = new Verdict();
      verdict.retry("b", 90_000);
      return batch(minute, verdict, { failed: true, reason: "exception: Error" });
    },
  };
}

/** The value of each attribute that the service keeps: that of the latest time. */
function latest(events) {
  const known = {};
  for (const { at, attributes } of events) {
    for (const [name, value] of Object.entries(attributes)) {
      if (!(known[name]?.at > at)) known[name] = { at, value };
    }
  }
  return Object.fromEntries(Object.entries(known).map(([name, { value }]) => [name, value]));
}

test("a habit is withdrawn after an hour in which it was not seen", () => {
  const { good, bad } = isolate();
  const events = [...bad(0), ...good(10), ...good(50)];
  assert.deepEqual(latest(events), HABITS);
  events.push(...good(59));
  assert.deepEqual(latest(events), HABITS);
  events.push(...good(60));
  assert.deepEqual(latest(events), WITHDRAWN);
  events.push(...bad(61));
  assert.deepEqual(latest(events), HABITS, "and reported when it is seen again");
});

test("the isolates of a repaired deploy withdraw what others reported", () => {
  const events = isolate().bad(0);
  const repaired = isolate();
  for (let minute = 20; minute < 80; minute += 1) events.push(...repaired.good(minute));
  assert.deepEqual(latest(events), HABITS);
  events.push(...repaired.good(80));
  assert.deepEqual(latest(events), WITHDRAWN);
});

test("isolates that see nothing do not overrule one that does", () => {
  const [failing, ...healthy] = Array.from({ length: 5 }, () => isolate());
  const events = [];
  let withdrawals = 0;
  for (let minute = 0; minute <= 300; minute += 1) {
    // It fails every half an hour, and has batches in between.
    events.push(...(minute % 30 === 0 ? failing.bad(minute) : failing.good(minute)));
    assert.deepEqual(latest(events), HABITS, `after ${minute} minutes`);
    for (const { good } of healthy) {
      const reports = good(minute + 0.5);
      withdrawals += reports.length;
      events.push(...reports);
    }
    assert.deepEqual(latest(events), HABITS, `after ${minute} minutes and a half`);
  }
  assert.equal(withdrawals, 4 * 5, "one an hour from each");
});

test("a withdrawal leaves the options alone, and a Worker that only sends makes none", () => {
  const { watcher, good } = isolate({ orders: { maxRetries: 3, deadLetterQueue: null } });
  good(0);
  const options = { max_retries: 3, max_receive_count: 4, dead_letter_queue: "", has_dead_letter_queue: false };
  assert.deepEqual(
    good(61).map((event) => event.attributes),
    [options, WITHDRAWN],
  );
  mock.timers.setTime(START_MS + 200 * MINUTE_MS);
  watcher.noteBacklog("mail", { backlogCount: 1 });
  assert.deepEqual(watcher.stateEvents("mail"), []);
});
