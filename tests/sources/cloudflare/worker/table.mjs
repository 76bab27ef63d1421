/**
 * Every behaviour, bare and wrapped, with and without the flag: first against the runtime's own verdict, then
 * through miniflare's broker. Prints one JSON document; what it means is judged by the test that runs this.
 */

import { BEHAVIOURS } from "./behaviours.mjs";
import { FLAG, SYSTEM_DATE, modules, receiver, sleep, start, until } from "./harness.mjs";

const NAMES = Object.keys(BEHAVIOURS);
const LABELS = ["m0", "m1", "m2"];
const BATCH_TIMEOUT_S = 0.1;
const telemetry = await receiver();

const workerName = (wrapped, flag) => `${wrapped ? "wrapped" : "bare"}-${flag ? "flag" : "plain"}`;
const KINDS = [
  [false, true],
  [true, true],
  [false, false],
  [true, false],
];

function worker([wrapped, flag]) {
  const name = workerName(wrapped, flag);
  const queueProducers = {};
  const queueConsumers = {};
  const queues = {};
  NAMES.forEach((behaviour, i) => {
    const queue = `q-${name}-${i}`;
    const settings = BEHAVIOURS[behaviour].consumer ?? {};
    const consumer = {
      maxBatchSize: LABELS.length,
      maxBatchTimeout: BATCH_TIMEOUT_S,
      maxRetries: 3,
      ...settings,
    };
    const dlq = `dlq-${name}-${i}`;
    if (settings.deadLetterQueue) {
      consumer.deadLetterQueue = dlq;
      queueConsumers[dlq] = { maxBatchSize: LABELS.length, maxBatchTimeout: BATCH_TIMEOUT_S };
    }
    queueProducers[`Q${i}`] = { queueName: queue };
    queueConsumers[queue] = consumer;
    queues[queue] = { maxRetries: consumer.maxRetries, deadLetterQueue: consumer.deadLetterQueue ?? null };
    if (settings.retryDelay !== undefined) queues[queue].retryDelaySeconds = settings.retryDelay;
  });
  const options = wrapped ? { scope: "account", consumer: name, queues, timeoutMs: 500 } : null;
  return {
    name,
    ...modules(["consumer.mjs", "behaviours.mjs"], {
      "options.mjs": `export default ${JSON.stringify(options)};`,
    }),
    compatibilityDate: SYSTEM_DATE,
    compatibilityFlags: flag ? [FLAG] : [],
    bindings: { QUEUEWATCH_URL: telemetry.url, QUEUEWATCH_TOKEN: "secret" },
    queueProducers,
    queueConsumers,
  };
}

/** What the runtime says of each behaviour, with ids that say where they come from. */
async function verdicts(mf) {
  const rows = [];
  for (const flag of [true, false]) {
    for (const wrapped of [false, true]) {
      const target = await mf.getWorker(workerName(wrapped, flag));
      for (const [i, behaviour] of NAMES.entries()) {
        const messages = LABELS.map((label) => ({
          id: `${workerName(wrapped, flag)}/${i}/${label}`,
          timestamp: new Date(Date.now() - 1_000),
          attempts: 1,
          body: { behaviour, label },
        }));
        rows.push({
          behaviour,
          flag,
          wrapped,
          ids: messages.map(({ id }) => id),
          verdict: await target.queue(`q-${workerName(wrapped, flag)}-${i}`, messages),
        });
      }
    }
  }
  return rows;
}

async function throughBroker(mf) {
  await Promise.all(
    KINDS.map(async (kind) => {
      const target = await mf.getWorker(workerName(...kind));
      for (const [i, behaviour] of NAMES.entries()) {
        await target.fetch(`http://worker/Q${i}`, {
          method: "POST",
          body: JSON.stringify(LABELS.map((label) => ({ behaviour, label }))),
        });
      }
    }),
  );
  // The longest delay is 1 s; then nothing comes any more.
  let seen = -1;
  await until(async () => {
    const before = seen;
    seen = (await deliveries(mf)).length;
    if (before === seen) return true;
    await sleep(2_500);
    return false;
  }, 30_000);
  return deliveries(mf);
}

async function deliveries(mf) {
  const all = await Promise.all(
    KINDS.map(async ([wrapped, flag]) => {
      const target = await mf.getWorker(workerName(wrapped, flag));
      const list = await (await target.fetch("http://worker/deliveries")).json();
      return list.map((delivery) => ({ ...delivery, wrapped, flag }));
    }),
  );
  // What the verdicts were asked for was delivered by no broker.
  return all.flat().filter(({ messages }) => !messages[0].id.includes("/"));
}

/** Without the flag an outcome may stay behind until the next batch of the same isolate. */
async function nudge(mf) {
  await sleep(1_600);
  const target = await mf.getWorker(workerName(true, false));
  await target.queue("q-nudge", [
    { id: "nudge", timestamp: new Date(), attempts: 1, body: { behaviour: "returns", label: "m0" } },
  ]);
  await sleep(300);
}

const mf = start(KINDS.map(worker));
try {
  const oracle = await verdicts(mf);
  const broker = await throughBroker(mf);
  await nudge(mf);
  const behaviours = NAMES.map((name) => {
    const { local = null, consumer = {} } = BEHAVIOURS[name];
    return { name, local, retryDelay: consumer.retryDelay ?? null };
  });
  const tokens = new Set(telemetry.requests.map(({ headers }) => headers.authorization));
  console.log(
    JSON.stringify({
      behaviours,
      oracle,
      broker,
      events: telemetry.events,
      tokens: [...tokens],
      posts: telemetry.requests.length,
    }),
  );
} finally {
  await mf.dispose();
  await telemetry.close();
}
