/** Telemetry that goes nowhere, slowly or wrongly: the batch must not notice. */

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";

import { FLAG, SYSTEM_DATE, modules, quantile, receiver, start, until } from "./harness.mjs";

const TRIED = ["returns", "retries one", "rejects", "acks and retries after awaiting", "waitUntil resolves"];
/** More than any of the behaviours takes, far less than the silent and the slow endpoint do. */
const NOTICEABLE_MS = 400;

const never = () => {};
const closed = await receiver(never);
await closed.close();
const stolen = await receiver();

const ENDPOINTS = {
  "refuses connections": closed,
  "never answers": await receiver(never),
  "answers late": await receiver((request, response) =>
    setTimeout(() => response.writeHead(202).end(), 2_000),
  ),
  "hangs up": await receiver((request) => request.socket.destroy()),
  fails: await receiver((request, response) => response.writeHead(500).end("<html>no</html>")),
  "is overloaded": await receiver((request, response) =>
    response.writeHead(429, { "retry-after": "30" }).end(),
  ),
  redirects: await receiver((request, response) => response.writeHead(307, { location: stolen.url }).end()),
  "refuses the events": await receiver((request, response) => response.writeHead(400).end()),
  "talks without end": await receiver((request, response) => {
    response.writeHead(200);
    const talking = setInterval(() => response.write("x".repeat(1_000)), 5);
    response.on("close", () => clearInterval(talking));
  }),
};
const NAMES = Object.keys(ENDPOINTS);
const workerName = (i, flag) => `w${i}-${flag ? "flag" : "plain"}`;

function worker(name, flag, options, url) {
  return {
    name,
    ...modules(["consumer.mjs", "behaviours.mjs"], {
      "options.mjs": `export default ${JSON.stringify(options)};`,
    }),
    compatibilityDate: SYSTEM_DATE,
    compatibilityFlags: flag ? [FLAG] : [],
    bindings: { QUEUEWATCH_URL: url ?? "", QUEUEWATCH_TOKEN: "secret" },
    queueProducers: { Q: { queueName: `q-${name}` } },
    queueConsumers: { [`q-${name}`]: { maxBatchSize: 3, maxBatchTimeout: 0.1 } },
  };
}

const deliver = (target, behaviour, attempts = 1) =>
  target.queue(
    "q",
    ["m0", "m1", "m2"].map((label) => ({
      id: label,
      timestamp: new Date(),
      attempts,
      body: { behaviour, label },
    })),
  );

describe("an endpoint that", () => {
  let mf;
  before(() => {
    const workers = [true, false].flatMap((flag) => [
      worker(workerName("bare", flag), flag, null),
      ...NAMES.map((name, i) => worker(workerName(i, flag), flag, {}, ENDPOINTS[name].url)),
      worker(workerName("patient", flag), flag, { waitMs: 150 }, ENDPOINTS["never answers"].url),
    ]);
    mf = start(workers);
  });
  after(async () => {
    await mf.dispose();
    await Promise.all(
      [stolen, ...Object.values(ENDPOINTS).filter((e) => e !== closed)].map((e) => e.close()),
    );
  });

  for (const flag of [true, false]) {
    for (const [i, name] of NAMES.entries()) {
      test(`${name} changes nothing, ${flag ? "with" : "without"} the flag`, async () => {
        const bare = await mf.getWorker(workerName("bare", flag));
        const wrapped = await mf.getWorker(workerName(i, flag));
        const tookMs = [];
        for (const behaviour of TRIED) {
          const expected = await deliver(bare, behaviour);
          const startedMs = Date.now();
          assert.deepEqual(await deliver(wrapped, behaviour), expected, behaviour);
          tookMs.push(Date.now() - startedMs);
        }
        assert.ok(quantile(tookMs, 0.5) < NOTICEABLE_MS, `batches took ${tookMs} ms`);
      });
    }

    test(`never answers makes no batch of the broker come again, ${flag ? "with" : "without"} the flag`, async () => {
      const wrapped = await mf.getWorker(workerName(NAMES.indexOf("never answers"), flag));
      const list = async () =>
        (await (await wrapped.fetch("http://worker/deliveries")).json()).filter((d) => d.queue !== "q");
      await wrapped.fetch("http://worker/Q", {
        method: "POST",
        body: JSON.stringify(["m0", "m1", "m2"].map((label) => ({ behaviour: "acks each", label }))),
      });
      assert.ok(await until(async () => (await list()).length > 0));
      await new Promise((resolve) => setTimeout(resolve, 500));
      assert.deepEqual(
        (await list()).flatMap(({ messages }) => messages.map(({ attempts }) => attempts)),
        [1, 1, 1],
      );
    });
  }

  test("redirects does not get the token to go elsewhere", () => {
    assert.ok(ENDPOINTS.redirects.requests.length > 0);
    assert.equal(stolen.requests.length, 0);
  });

  test("never answers may be waited for where the Worker says so, for as long as it says", async () => {
    const patient = await mf.getWorker(workerName("patient", false));
    await deliver(patient, "returns");
    const startedMs = Date.now();
    assert.equal((await deliver(patient, "returns")).outcome, "ok");
    const tookMs = Date.now() - startedMs;
    assert.ok(tookMs >= 140 && tookMs < 150 + NOTICEABLE_MS, `${tookMs} ms`);
  });
});
