/** Every way to write a consumer or producer, and what is reported of it. */

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { FLAG, SYSTEM_DATE, modules, receiver, sleep, start, until } from "./harness.mjs";

const STYLES = [
  "object",
  "frozen",
  "instance",
  "twice",
  "entrypoint",
  "failing",
  "field",
  "plain",
  "sender",
  "bareSender",
  "caching",
  "bareCaching",
  "classSender",
  "slow",
  "hanging",
  "bareHanging",
  "unseen",
  "broken",
  "talkative",
  "backoff",
  "longBackoff",
];
const telemetry = await receiver();
let mf;

function worker(style, { name = style, flag = true, env = {}, queueProducers = {} } = {}) {
  return {
    name,
    ...modules([], {}),
    ...withMain(style),
    compatibilityDate: SYSTEM_DATE,
    compatibilityFlags: flag ? [FLAG] : [],
    bindings: { QUEUEWATCH_URL: telemetry.url, QUEUEWATCH_SCOPE: name, ...env },
    queueProducers: { OUT: { queueName: "out" }, ...queueProducers },
  };
}

function withMain(style) {
  const all = modules(["styles.mjs"]);
  const main = {
    type: "ESModule",
    path: "/main.mjs",
    contents: `import { STYLES } from "./styles.mjs"; export default STYLES.${style};`,
  };
  return { ...all, modules: [main, ...all.modules] };
}

before(() => {
  mf = start([
    ...STYLES.map((style) => worker(style)),
    worker("failing", { name: "failing-plain", flag: false }),
    worker("classSender", { name: "classSender-plain", flag: false }),
    worker("object", { name: "off", env: { QUEUEWATCH_OFF: "true" } }),
    worker("object", { name: "nowhere", env: { QUEUEWATCH_URL: "" } }),
    worker("object", { name: "to-path", env: { QUEUEWATCH_URL: `${telemetry.url}/base/api/v1/events` } }),
    worker("object", { name: "to-queue", queueProducers: { QUEUEWATCH_QUEUE: { queueName: "telemetry" } } }),
    {
      name: "reader",
      modules: true,
      compatibilityDate: SYSTEM_DATE,
      script: `const bodies = []; export default {
        fetch: () => Response.json(bodies),
        queue(batch) { for (const { body } of batch.messages) bodies.push(body); } }`,
      queueConsumers: { telemetry: { maxBatchTimeout: 0.05 }, out: { maxBatchTimeout: 0.05 } },
    },
    { ...worker("object", { name: "by-service" }), serviceBindings: { QUEUEWATCH_SERVICE: "proxy" } },
    {
      name: "proxy",
      modules: true,
      compatibilityDate: SYSTEM_DATE,
      script: `export default { fetch: (request) => fetch(new Request(request, { headers: { ...Object.fromEntries(request.headers), via: "proxy" } })) }`,
    },
  ]);
});
after(async () => {
  await mf.dispose();
  await telemetry.close();
});

const of = (scope, type) => telemetry.events.filter((e) => e.scope === scope && (!type || e.type === type));

async function deliver(name, ...attempts) {
  const target = await mf.getWorker(name);
  const messages = attempts.map((n, i) => ({
    id: `${name}-${i}`,
    timestamp: new Date(),
    attempts: n,
    body: { id: `app-${i}` },
  }));
  return target.queue("q", messages);
}

/** Deliver one message and wait for the outcome of its batch. */
async function outcomes(name, ...attempts) {
  const before = of(name, "batch").length;
  await deliver(name, ...attempts);
  assert.ok(await until(() => of(name, "batch").length > before), `no batch of ${name} was reported`);
  return Object.fromEntries(
    of(name)
      .filter((e) => ["deleted", "released", "dead_lettered", "dropped"].includes(e.type))
      .map((e) => [e.message_id, e.type]),
  );
}

for (const style of ["object", "frozen", "instance", "entrypoint", "field"]) {
  test(`a consumer written as ${style} is watched`, async () => {
    assert.deepEqual(await outcomes(style, 1, 1), { [`${style}-0`]: "released", [`${style}-1`]: "deleted" });
    assert.equal(of(style, "received").length, 2);
  });
}

test("what is no queue handler stays as it was", async () => {
  const answer = async (name) => (await (await mf.getWorker(name)).fetch("http://worker/")).text();
  assert.equal(await answer("object"), "fetched");
  assert.equal(await answer("instance"), "7");
  assert.equal(await answer("entrypoint"), "Entrypoint");
  assert.equal(await answer("plain"), "false");
});

test("a class's waitUntil counts where the runtime waits for it", async () => {
  assert.deepEqual(await outcomes("failing", 1, 1), { "failing-0": "deleted", "failing-1": "deleted" });
  assert.deepEqual(await outcomes("failing-plain", 1, 1), {
    "failing-plain-0": "deleted",
    "failing-plain-1": "released",
  });
});

test("a handler that is wrapped twice reports once", async () => {
  await outcomes("twice", 1);
  await sleep(200);
  assert.equal(of("twice", "batch").length, 1);
});

test("switched off, or with nowhere to report to, it reports nothing and changes nothing", async () => {
  for (const name of ["off", "nowhere"]) {
    assert.deepEqual((await deliver(name, 1)).retryMessages, [{ msgId: `${name}-0` }]);
  }
  await sleep(200);
  assert.equal(of("off").length, 0);
});

test("the address may be the service's base or the whole path", async () => {
  await outcomes("object", 1);
  await outcomes("to-path", 1);
  const paths = new Set(telemetry.requests.map(({ path }) => path));
  assert.ok(paths.has("/api/v1/events") && paths.has("/base/api/v1/events"));
});

test("telemetry can go through a queue, as JSON arrays in text", async () => {
  await deliver("to-queue", 1, 1);
  const reader = await mf.getWorker("reader");
  let events = [];
  assert.ok(
    await until(async () => {
      const bodies = await (await reader.fetch("http://worker/")).json();
      events = bodies.filter((body) => typeof body === "string").flatMap((body) => JSON.parse(body));
      return events.some((e) => e.type === "batch");
    }),
  );
  assert.deepEqual(
    events.filter((e) => e.type !== "queue_state").map((e) => e.type),
    ["received", "received", "released", "deleted", "batch"],
  );
  assert.equal(of("to-queue").length, 0);
});

test("telemetry can go through a service binding", async () => {
  await outcomes("by-service", 1);
  assert.ok(telemetry.requests.some(({ headers }) => headers.via === "proxy"));
});

test("a long handler's deliveries are reported while it runs, once", async () => {
  const done = deliver("slow", 1);
  assert.ok(await until(() => of("slow", "received").length > 0, 1_200));
  assert.equal(of("slow", "batch").length, 0);
  await done;
  assert.ok(await until(() => of("slow", "batch").length > 0));
  assert.equal(of("slow", "received").length, 1);
});

test("a message that failed before is reported at once: it may take the isolate with it", async () => {
  assert.equal((await deliver("hanging", 2)).outcome, (await deliver("bareHanging", 2)).outcome);
  assert.ok(await until(() => of("hanging", "received").length > 0));
  assert.equal(of("hanging", "received")[0].receive_count, 2);
  assert.equal(of("hanging", "batch").length, 0);
});

test("settings the Worker was given are passed on, once", async () => {
  await outcomes("entrypoint", 1);
  await outcomes("entrypoint", 1);
  const states = of("entrypoint", "queue_state");
  assert.equal(states.length, 1);
  assert.deepEqual(states[0].attributes, {
    max_retries: 3,
    max_receive_count: 4,
    dead_letter_queue: "q-dlq",
    has_dead_letter_queue: true,
  });
});

test("a handler's habits become facts about its queue", async () => {
  await outcomes("talkative", 1);
  assert.equal(of("talkative", "queue_state").at(-1).attributes.throws_on_error, true);
  // The last delivery asks for 30 ** 4 seconds, which are never waited.
  await outcomes("backoff", 3, 4);
  assert.equal(of("backoff", "queue_state").at(-1).attributes.backoff_cap_exceeded_at_attempt, undefined);
  assert.equal(of("backoff", "dead_lettered").length, 1);
  await outcomes("longBackoff", 3, 5);
  await outcomes("longBackoff", 4);
  assert.deepEqual(
    of("longBackoff", "queue_state").map((e) => e.attributes.backoff_cap_exceeded_at_attempt),
    [5, 4],
  );
  const last = of("longBackoff", "queue_state").at(-1).attributes;
  assert.deepEqual([last.dead_letter_queue, last.has_dead_letter_queue], ["", false]);
});

test("an error's text is reported when it was asked for", async () => {
  await outcomes("talkative", 1);
  assert.equal(of("talkative", "released")[0].reason, "exception: TypeError: order 7 is odd");
});

test("an id function that throws leaves the broker's id", async () => {
  assert.deepEqual(await outcomes("broken", 1), { "broken-0": "released" });
});

test("what is sent is reported with the application's id and its delay", async () => {
  const bare = await (await (await mf.getWorker("bareSender")).fetch("http://worker/")).json();
  const watched = await (await (await mf.getWorker("sender")).fetch("http://worker/")).json();
  assert.deepEqual(Object.keys(watched.answer), Object.keys(bare.answer));
  assert.deepEqual({ ...watched, answer: 0, keys: 0 }, { ...bare, answer: 0, keys: 0 });
  assert.deepEqual(watched.keys, bare.keys);
  assert.ok(await until(() => of("sender", "sent").length >= 5));
  await sleep(100);
  const delays = of("sender", "sent").map((e) => [e.message_id, (e.visible_at ?? e.at) - e.at]);
  assert.deepEqual(Object.fromEntries(delays), { a1: 30_000, a2: 0, b1: 5_000, b2: 9_000, c1: 0 });
  // A delay of zero replaces that of the queue, which no send names.
  const named = of("sender", "sent").filter((e) => e.visible_at !== undefined);
  assert.deepEqual(named.map((e) => e.message_id).sort(), ["a1", "b1", "b2", "c1"]);
  assert.ok(of("sender", "sent").every((e) => e.queue === "out" && e.sent_at === e.at));
  assert.ok(of("sender", "queue_state").some((e) => typeof e.attributes.visible === "number"));
});

test("sends of a batch are reported with it", async () => {
  await outcomes("sender", 1);
  assert.ok(await until(() => of("sender", "sent").some((e) => e.message_id === "from-app-0")));
  // The consumer reports the same application id.
  assert.ok(of("sender", "received").some((e) => e.message_id === "app-0"));
});

test("a Worker that keeps something for its environment finds it at the next call", async () => {
  for (const name of ["bareCaching", "caching"]) {
    const called = await mf.getWorker(name);
    const fetched = async (path) => (await called.fetch(`http://worker/${path}`)).text();
    // The first call ends last: what it sends then is reported although another has begun meanwhile.
    const first = fetched("d1?afterMs=300");
    await sleep(100);
    assert.equal(await fetched("d2?afterMs=0"), "1", name);
    assert.equal(await first, "1", name);
    assert.equal(await fetched("d3?afterMs=0"), "1", name);
  }
  assert.ok(await until(() => of("caching", "sent").length >= 3));
  assert.deepEqual(
    of("caching", "sent")
      .map((e) => e.message_id)
      .sort(),
    ["d1", "d2", "d3"],
  );
});

test("a class that sends is watched too", async () => {
  for (const name of ["classSender", "classSender-plain"]) {
    await (await mf.getWorker(name)).fetch("http://worker/");
    assert.ok(await until(() => of(name, "sent").some((e) => e.message_id === "k1")));
    await outcomes(name, 1);
    assert.ok(await until(() => of(name, "sent").some((e) => e.message_id === "k2")));
  }
});

test("calls that go round the batch are not seen: the next delivery corrects the record", async () => {
  assert.deepEqual((await deliver("unseen", 1)).retryMessages, [{ msgId: "unseen-0" }]);
  assert.ok(await until(() => of("unseen", "batch").length > 0));
  assert.equal(of("unseen", "deleted").length, 1);
});
