/**
 * A Worker with many queues. A message in any of them is retried each time; what was delivered a third time is remembered, and
 * comes back late from then on: it is to be suspect for as long as somebody looks.
 */

import names from "./names.mjs";
import { watch } from "./queuewatch/queuewatch.mjs";

const SUSPECT_AT = 3;
const settings = { maxRetries: 20, deadLetterQueue: null, retryDelaySeconds: 1 };
const suspects = {};

const shop = {
  async fetch(request, env) {
    const number = new URL(request.url).pathname.slice(1);
    if (request.method === "POST") await env[`MAIL_${number}`].send({ number });
    return Response.json(suspects[`mail-${number}`] ?? null);
  },
  queue(batch) {
    for (const message of batch.messages) {
      if (message.attempts === SUSPECT_AT) suspects[batch.queue] = { queue: batch.queue, id: message.id, at: Date.now() };
      message.retry({ delaySeconds: message.attempts < SUSPECT_AT ? 1 : 600 });
    }
  },
};

export default watch(shop, {
  scope: "account-1",
  consumer: "mail-worker",
  queues: Object.fromEntries(names.map((name) => [name, settings])),
});
