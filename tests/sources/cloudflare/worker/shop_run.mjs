/** Run the shop against a service for some seconds: `node shop_run.mjs URL TOKEN SECONDS`. Prints nothing but JSON. */

import { FLAG, SYSTEM_DATE, modules, sleep, start } from "./harness.mjs";

const [url, token, seconds] = process.argv.slice(2);
const settings = { maxBatchTimeout: 0.2 };
const mf = start([
  {
    name: "shop",
    ...modules(["shop.mjs"]),
    compatibilityDate: SYSTEM_DATE,
    compatibilityFlags: [FLAG],
    bindings: { QUEUEWATCH_URL: url, QUEUEWATCH_TOKEN: token },
    queueProducers: { MAIL: "mail", ORDERS: "orders", LATER: "later" },
    queueConsumers: {
      mail: { ...settings, maxBatchSize: 5, maxRetries: 6, retryDelay: 1, deadLetterQueue: "mail-dlq" },
      // Full with its ten messages, so it never waits that long; a shorter time could split them, and the good ones would succeed.
      orders: { ...settings, maxBatchTimeout: 5, maxBatchSize: 10, maxRetries: 2, retryDelay: 1 },
      later: { ...settings, maxRetries: 3, deadLetterQueue: "later-dlq" },
    },
  },
]);
try {
  const shop = await mf.getWorker("shop");
  const { status } = await shop.fetch("http://shop/");
  await sleep(Number(seconds) * 1000);
  console.log(JSON.stringify({ status }));
} finally {
  await mf.dispose();
}
