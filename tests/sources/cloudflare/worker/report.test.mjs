import assert from "node:assert/strict";
import { test } from "node:test";

import { outcomeEvents, receivedEvents } from "../../../../sources/cloudflare/worker/report.mjs";
import { textsOf } from "../../../../sources/cloudflare/worker/target.mjs";
import { Verdict } from "../../../../sources/cloudflare/worker/verdict.mjs";

const AT = 1_750_000_000_000;
const FAILED = { failed: true, reason: "exception: Error" };
const RETURNED = { failed: false };

function batch(settings, ...attempts) {
  return {
    queue: "orders",
    scope: "account",
    consumer: "worker",
    batchId: "b",
    startedAtMs: AT,
    settings,
    deliveries: attempts.map((n, i) => ({
      id: `id${i}`,
      messageId: `m${i}`,
      sentAtMs: AT - 1_000,
      attempts: n,
    })),
  };
}

/** The event of the first message, without what every event has. */
function outcome(settings, attempts, verdict, result = RETURNED) {
  const [{ v, at, system, scope, queue, consumer, batch_id, message_id, receive_count, ...rest }] =
    outcomeEvents(batch(settings, attempts), verdict, result, AT, 0);
  assert.deepEqual(
    [v, at, system, scope, queue, consumer, batch_id, message_id, receive_count],
    [1, AT, "cloudflare_queues", "account", "orders", "worker", "b", "m0", attempts],
  );
  return rest;
}

const retried = (delayS) => {
  const verdict = new Verdict();
  verdict.retry("id0", delayS);
  return verdict;
};

test("a delivery is received, in flight for as long as an invocation can last", () => {
  const [event] = receivedEvents(batch({}, 2));
  assert.deepEqual(event, {
    v: 1,
    type: "received",
    at: AT,
    system: "cloudflare_queues",
    scope: "account",
    queue: "orders",
    consumer: "worker",
    message_id: "m0",
    sent_at: AT - 1_000,
    receive_count: 2,
    invisible_until: AT + 900_000,
    batch_id: "b",
  });
});

test("a subject without scope or consumer leaves the fields out", () => {
  const [event] = receivedEvents({ ...batch({}, 1), scope: undefined, consumer: undefined });
  assert.ok(!("scope" in event) && !("consumer" in event));
});

test("an acknowledgement says whether somebody made it", () => {
  const acked = new Verdict();
  acked.ack("id0");
  assert.deepEqual(outcome({}, 1, acked), { type: "deleted", reason: "ack" });
  assert.deepEqual(outcome({}, 1, new Verdict()), { type: "deleted", reason: "implicit ack" });
});

test("a retry is due after its own delay, else the consumer's, else at a time nobody here knows", () => {
  assert.deepEqual(outcome({}, 1, retried(30)), {
    type: "released",
    visible_at: AT + 30_000,
    reason: "retry",
  });
  assert.deepEqual(outcome({ retryDelaySeconds: 5 }, 1, retried()), {
    type: "released",
    visible_at: AT + 5_000,
    reason: "retry",
  });
  assert.deepEqual(outcome({ retryDelaySeconds: 5 }, 1, retried(0)), {
    type: "released",
    visible_at: AT,
    reason: "retry",
  });
  assert.deepEqual(outcome({}, 1, retried()), { type: "released", reason: "retry" });
});

test("a negative delay is none; one beyond 24 hours is named", () => {
  assert.equal(outcome({}, 1, retried(-5)).visible_at, AT);
  assert.match(outcome({}, 4, retried(30 ** 4)).reason, /^retry; delay of 810000 s is over the limit$/);
  assert.equal(outcome({}, 3, retried(86_400)).reason, "retry");
});

test("a failed batch gives its reason to what nobody named", () => {
  assert.deepEqual(outcome({}, 1, new Verdict(), FAILED), { type: "released", reason: "exception: Error" });
  assert.deepEqual(outcome({}, 1, retried(), FAILED), { type: "released", reason: "retry" });
});

test("the last delivery ends in the dead-letter queue, or in nothing", () => {
  const toDlq = { maxRetries: 3, deadLetterQueue: "orders-dlq" };
  assert.equal(outcome(toDlq, 3, retried(60)).type, "released");
  assert.deepEqual(outcome(toDlq, 4, retried(60)), {
    type: "dead_lettered",
    to_queue: "orders-dlq",
    reason: "retry; delivery 4 of 4",
  });
  assert.deepEqual(outcome({ maxRetries: 0, deadLetterQueue: null }, 1, new Verdict(), FAILED), {
    type: "dropped",
    reason: "exception: Error; delivery 1 of 1",
  });
});

test("without its settings an exhausted message is left to the service", () => {
  assert.equal(outcome({ maxRetries: 3 }, 4, retried()).type, "released");
  assert.equal(outcome({ deadLetterQueue: null }, 4, retried()).type, "released");
});

test("a batch is counted by why its messages go back", () => {
  const verdict = new Verdict();
  verdict.ack("id0");
  verdict.retry("id1");
  const counted = (result, dropped) =>
    outcomeEvents(batch({}, 1, 1, 1, 1), verdict, result, AT, dropped).at(-1);
  assert.deepEqual(counted(RETURNED, 0).attributes, { size: 4, acked: 3, retried: 1, failed: 0 });
  assert.deepEqual(counted(FAILED, 0).attributes, { size: 4, acked: 1, retried: 1, failed: 2 });
  assert.equal(counted(FAILED, 0).reason, "exception: Error");
  assert.equal(counted(RETURNED, 7).attributes.telemetry_dropped, 7);
});

test("queue messages stay below what a queue takes, whatever script names are written in", () => {
  const events = Array.from({ length: 1_000 }, (_, n) => ({ n, name: "名前".repeat(40) }));
  const texts = textsOf(events);
  assert.ok(texts.length > 1);
  for (const text of texts) assert.ok(new TextEncoder().encode(text).length <= 101_000);
  assert.deepEqual(
    texts.flatMap((text) => JSON.parse(text)),
    events,
  );
});
