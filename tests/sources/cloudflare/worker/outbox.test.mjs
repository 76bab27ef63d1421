import assert from "node:assert/strict";
import { mock, test } from "node:test";

import { MAX_EVENTS_PER_POST, Outbox } from "../../../../sources/cloudflare/worker/outbox.mjs";

const events = (count, from = 0) => Array.from({ length: count }, (_, i) => ({ n: from + i }));
const numbers = (posts) => posts.flat().map(({ n }) => n);

/** A target that keeps posts and answers as it is set to; `undefined` never answers. */
function target(...answers) {
  const posts = [];
  return {
    posts,
    send(batch) {
      posts.push(batch);
      const answer = answers.length > 1 ? answers.shift() : answers[0];
      return answer === undefined ? new Promise(() => {}) : Promise.resolve(answer);
    },
  };
}

const TAKEN = { taken: true };
const LATER = { taken: false, again: true };
const REFUSED = { taken: false, again: false };

test("what is added leaves once, in order", async () => {
  const outbox = new Outbox({ maxEvents: 10, lostAfterMs: 1_000 });
  const taken = target(TAKEN);
  outbox.add(events(3));
  await outbox.flush(taken);
  await outbox.flush(taken);
  assert.deepEqual(numbers(taken.posts), [0, 1, 2]);
  assert.equal(outbox.size, 0);
});

test("many events leave in several posts", async () => {
  const outbox = new Outbox({ maxEvents: 5_000, lostAfterMs: 1_000 });
  const taken = target(TAKEN);
  outbox.add(events(2 * MAX_EVENTS_PER_POST + 1));
  await outbox.flush(taken);
  assert.deepEqual(
    taken.posts.map((post) => post.length),
    [MAX_EVENTS_PER_POST, MAX_EVENTS_PER_POST, 1],
  );
});

test("what could not be delivered is kept, and left alone for a growing while", async () => {
  mock.timers.enable({ apis: ["Date"], now: 1_000_000 });
  try {
    const outbox = new Outbox({ maxEvents: 10, lostAfterMs: 1_000 });
    const down = target(LATER);
    outbox.add(events(2));
    for (const [waitMs, posts] of [
      [0, 1],
      [900, 1],
      [100, 2],
      [1_900, 2],
      [100, 3],
    ]) {
      mock.timers.tick(waitMs);
      await outbox.flush(down);
      assert.equal(down.posts.length, posts);
    }
    mock.timers.tick(60_000);
    const up = target(TAKEN);
    await outbox.flush(up);
    assert.deepEqual(numbers(up.posts), [0, 1]);
  } finally {
    mock.timers.reset();
  }
});

test("the other side can ask for a longer pause, up to a minute", async () => {
  mock.timers.enable({ apis: ["Date"], now: 1_000_000 });
  try {
    const outbox = new Outbox({ maxEvents: 10, lostAfterMs: 1_000 });
    const busy = target({ ...LATER, pauseMs: 30_000 });
    outbox.add(events(1));
    await outbox.flush(busy);
    mock.timers.tick(29_000);
    await outbox.flush(busy);
    assert.equal(busy.posts.length, 1);
    mock.timers.tick(1_000);
    await outbox.flush(busy);
    assert.equal(busy.posts.length, 2);
  } finally {
    mock.timers.reset();
  }
});

test("a target that throws is one that is down", async () => {
  const outbox = new Outbox({ maxEvents: 10, lostAfterMs: 1_000 });
  outbox.add(events(1));
  await outbox.flush({
    send: () => {
      throw new Error("no");
    },
  });
  assert.equal(outbox.size, 1);
});

test("refused events are dropped and counted: they would be refused for ever", async () => {
  const outbox = new Outbox({ maxEvents: 10, lostAfterMs: 1_000 });
  outbox.add(events(2));
  await outbox.flush(target(REFUSED));
  assert.equal(outbox.size, 0);
  assert.equal(outbox.takeDropped(), 2);
  assert.equal(outbox.takeDropped(), 0);
});

test("a full outbox drops the oldest and counts them", async () => {
  const outbox = new Outbox({ maxEvents: 3, lostAfterMs: 1_000 });
  outbox.add(events(5));
  const taken = target(TAKEN);
  await outbox.flush(taken);
  assert.deepEqual(numbers(taken.posts), [2, 3, 4]);
  assert.equal(outbox.takeDropped(), 2);
});

test("what a dropped event would have reported as dropped is counted on", async () => {
  const outbox = new Outbox({ maxEvents: 3, lostAfterMs: 1_000 });
  outbox.add(events(5));
  outbox.add([{ type: "batch", attributes: { size: 1, telemetry_dropped: outbox.takeDropped() } }]);
  outbox.add(events(3));
  assert.equal(outbox.takeDropped(), 2 + 1 + 3);
  outbox.add([{ type: "batch", attributes: { size: 1, telemetry_dropped: 6 } }]);
  await outbox.flush(target(REFUSED));
  assert.equal(outbox.takeDropped(), 1 + 6 + 3);
});

test("a post whose invocation ended is sent once more, with what is new, and not again", async () => {
  mock.timers.enable({ apis: ["Date"], now: 1_000_000 });
  try {
    const outbox = new Outbox({ maxEvents: 10, lostAfterMs: 1_000 });
    const silent = target(undefined);
    outbox.add(events(2));
    void outbox.flush(silent);
    outbox.add(events(1, 2));
    void outbox.flush(silent);
    mock.timers.tick(1_000);
    outbox.add(events(1, 3));
    void outbox.flush(silent);
    assert.deepEqual(
      silent.posts.map((post) => post.map(({ n }) => n)),
      [[0, 1], [2], [0, 1, 2, 3]],
    );
    mock.timers.tick(1_000);
    void outbox.flush(silent);
    assert.deepEqual(
      silent.posts.at(-1).map(({ n }) => n),
      [3],
    );
  } finally {
    mock.timers.reset();
  }
});

test("unanswered posts do not pile up", () => {
  const outbox = new Outbox({ maxEvents: 10, lostAfterMs: 60_000 });
  const silent = target(undefined);
  for (let i = 0; i < 100; i += 1) {
    outbox.add(events(10, i));
    void outbox.flush(silent);
  }
  assert.ok(outbox.size <= 40, String(outbox.size));
});

test("the log says why nothing arrives, once a minute", async () => {
  mock.timers.enable({ apis: ["Date"], now: 1_000_000 });
  try {
    /** @type {string[]} */
    const said = [];
    const outbox = new Outbox({ maxEvents: 10, lostAfterMs: 1_000, warn: (text) => said.push(text) });
    const down = target({ ...LATER, why: "the service answered 401" });
    outbox.add(events(1));
    for (let i = 0; i < 5; i += 1) {
      await outbox.flush(down);
      mock.timers.tick(15_000);
    }
    assert.deepEqual(said, Array(2).fill("queuewatch: telemetry is not sent: the service answered 401"));
    mock.timers.tick(60_000);
    await outbox.flush(target(TAKEN));
    assert.equal(said.length, 2);
  } finally {
    mock.timers.reset();
  }
});

test("a log that raises costs no event", async () => {
  const warn = () => {
    throw new Error("of the application's console");
  };
  const outbox = new Outbox({ maxEvents: 10, lostAfterMs: 1_000, warn });
  outbox.add(events(1));
  await outbox.flush(target(LATER));
  assert.equal(outbox.size, 1);
});
