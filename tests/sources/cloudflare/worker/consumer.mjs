/**
 * A Worker that does with a batch what its messages say, and remembers each delivery. Wrapped when there are
 * options.
 */

import { BEHAVIOURS } from "./behaviours.mjs";
import options from "./options.mjs";
import { watch } from "./queuewatch/queuewatch.mjs";

const deliveries = [];

const consumer = {
  async fetch(request, env) {
    const { pathname } = new URL(request.url);
    if (pathname === "/deliveries") return Response.json(deliveries);
    await env[pathname.slice(1)].sendBatch((await request.json()).map((body) => ({ body })));
    return new Response(null, { status: 204 });
  },
  queue(batch, env, ctx) {
    const { behaviour } = batch.messages[0].body;
    const delivery = {
      queue: batch.queue,
      atMs: Date.now(),
      messages: batch.messages.map(({ id, body, attempts }) => ({ id, label: body.label, attempts })),
      notes: null,
    };
    deliveries.push(delivery);
    const { always, handle } = BEHAVIOURS[behaviour];
    if (batch.queue.startsWith("dlq-")) return undefined;
    if (!always && batch.messages[0].attempts > 1) return undefined;
    const result = handle(batch, env, ctx);
    delivery.notes = result?.notes ?? null;
    return result;
  },
};

export default options === null ? consumer : watch(consumer, options);
