/**
 * What the wrapper costs a batch: its time with and without, taken in turns. Prints one JSON document, in
 * milliseconds.
 */

import { FLAG, SYSTEM_DATE, modules, quantile, receiver, sleep, start } from "./harness.mjs";

const ROUNDS = Number(process.argv[2] ?? 200);
const telemetry = await receiver((request, response) => response.writeHead(202).end());

function worker(name, flag, options) {
  return {
    name,
    ...modules(["consumer.mjs", "behaviours.mjs"], {
      "options.mjs": `export default ${JSON.stringify(options)};`,
    }),
    compatibilityDate: SYSTEM_DATE,
    compatibilityFlags: flag ? [FLAG] : [],
    bindings: { QUEUEWATCH_URL: telemetry.url },
  };
}

async function timed(target, messages) {
  const started = performance.now();
  await target.queue("q", messages);
  return performance.now() - started;
}

const mf = start(
  [true, false].flatMap((flag) => [
    worker(`bare-${flag}`, flag, null),
    worker(`wrapped-${flag}`, flag, {
      scope: "account",
      consumer: "worker",
      queues: { q: { maxRetries: 3 } },
    }),
  ]),
);
try {
  const rows = [];
  for (const flag of [true, false]) {
    const bare = await mf.getWorker(`bare-${flag}`);
    const wrapped = await mf.getWorker(`wrapped-${flag}`);
    for (const size of [1, 10, 100]) {
      const messages = Array.from({ length: size }, (_, i) => ({
        id: `m${i}`,
        timestamp: new Date(),
        attempts: 1,
        body: { behaviour: "acks each", label: "m0" },
      }));
      const times = { bare: [], wrapped: [] };
      for (let round = -20; round < ROUNDS; round += 1) {
        const bareMs = await timed(bare, messages);
        const wrappedMs = await timed(wrapped, messages);
        if (round < 0) continue;
        times.bare.push(bareMs);
        times.wrapped.push(wrappedMs);
      }
      const [bareMs, wrappedMs] = [quantile(times.bare, 0.5), quantile(times.wrapped, 0.5)];
      rows.push({
        flag,
        size,
        bareMs,
        wrappedMs,
        addedMs: wrappedMs - bareMs,
        wrappedP95Ms: quantile(times.wrapped, 0.95),
      });
      await sleep(100);
    }
  }
  console.log(JSON.stringify(rows));
} finally {
  await mf.dispose();
  await telemetry.close();
}
