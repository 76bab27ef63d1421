/** A Worker with three queues and their troubles: one bad message each in `mail` and `orders`, and a slow `later`. */

import { watch } from "./queuewatch/queuewatch.mjs";

const QUEUES = {
  mail: { maxRetries: 6, deadLetterQueue: "mail-dlq", retryDelaySeconds: 1 },
  orders: { maxRetries: 2, deadLetterQueue: null, retryDelaySeconds: 1, maxBatchSize: 100 },
  later: { maxRetries: 3, deadLetterQueue: "later-dlq" },
};

const consume = {
  /** Each message by itself. */
  mail(batch) {
    for (const message of batch.messages) message.body.bad ? message.retry() : message.ack();
  },
  /** One bad message fails all. */
  orders(batch) {
    if (batch.messages.some(({ body }) => body.bad)) throw new TypeError("bad order");
  },
  /** Held back, not stuck. */
  later(batch) {
    batch.retryAll({ delaySeconds: 600 });
  },
};

const shop = {
  async fetch(request, env) {
    const bodies = (count, bad) => Array.from({ length: count }, (_, n) => ({ body: { n, bad: n === bad } }));
    await env.MAIL.sendBatch(bodies(5, 2));
    await env.ORDERS.sendBatch(bodies(10, 7));
    await env.LATER.send({ id: "parcel-1" });
    await env.LATER.send({ id: "parcel-2" }, { delaySeconds: 900 });
    return new Response(null, { status: 204 });
  },
  queue: (batch) => consume[batch.queue](batch),
};

export default watch(shop, {
  scope: "account-1",
  consumer: "shop",
  queues: QUEUES,
  producers: { LATER: "later" },
  messageId: (body) => body.id,
});
