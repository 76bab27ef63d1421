/**
 * Run `pager.mjs` against a service: `node pager_run.mjs URL TOKEN QUEUES`. Each line of standard input is the number of a
 * queue to send a message to; once that was delivered three times, a line of JSON says so. Ends with its input.
 */

import { createInterface } from "node:readline";
import { FLAG, SYSTEM_DATE, modules, start, until } from "./harness.mjs";

const [url, token, queues] = process.argv.slice(2);
const numbers = Array.from({ length: Number(queues) }, (_, n) => n);
const names = numbers.map((n) => `mail-${n}`);
const settings = { maxBatchSize: 1, maxBatchTimeout: 0, maxRetries: 20, retryDelay: 1 };
const mf = start([
  {
    name: "pager",
    ...modules(["pager.mjs"], { "names.mjs": `export default ${JSON.stringify(names)};` }),
    compatibilityDate: SYSTEM_DATE,
    compatibilityFlags: [FLAG],
    bindings: { QUEUEWATCH_URL: url, QUEUEWATCH_TOKEN: token },
    queueProducers: Object.fromEntries(numbers.map((n) => [`MAIL_${n}`, names[n]])),
    queueConsumers: Object.fromEntries(names.map((name) => [name, settings])),
  },
]);
try {
  const worker = await mf.getWorker("pager");
  const ask = async (number, method) => (await worker.fetch(`http://pager/${number}`, { method })).json();
  const waiting = [];
  for await (const line of createInterface({ input: process.stdin })) {
    const number = Number(line);
    await ask(number, "POST");
    let found;
    const answer = until(async () => (found = await ask(number, "GET")), 60_000);
    waiting.push(answer.then(() => console.log(JSON.stringify({ number, ...found }))));
  }
  await Promise.all(waiting);
} finally {
  await mf.dispose();
}
