/**
 * Workers written in different styles, each exported under its name; the generated `main.mjs` makes one the
 * default.
 */

import { DurableObject, WorkerEntrypoint, waitUntil } from "cloudflare:workers";
import { watch } from "./queuewatch/queuewatch.mjs";

const options = { consumer: "style", queues: { q: { maxRetries: 3, deadLetterQueue: "q-dlq" } } };
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

const backOff = (batch) => {
  for (const m of batch.messages) m.retry({ delaySeconds: 30 ** m.attempts });
};

class Instance {
  #secret = 7;
  constructor() {
    this.helper = () => this.#secret;
  }
  queue(batch) {
    if (this.helper() === 7) batch.messages[0].retry();
  }
  fetch() {
    return new Response(String(this.#secret));
  }
}

class Entrypoint extends WorkerEntrypoint {
  async queue(batch) {
    await sleep(1);
    if (this.env.QUEUEWATCH_URL && this.ctx) batch.messages[0].retry();
  }
  fetch() {
    return new Response(this.constructor.name);
  }
  add(a, b) {
    return a + b;
  }
}

class Failing extends WorkerEntrypoint {
  queue(batch) {
    this.ctx.waitUntil(Promise.reject(new Error("no")));
    batch.messages[0].ack();
  }
}

class Field extends WorkerEntrypoint {
  queue = (batch) => {
    batch.messages[0].retry();
  };
}

class Plain extends WorkerEntrypoint {
  fetch() {
    return new Response(String("queue" in this));
  }
}

const sender = {
  async fetch(request, env) {
    const answer = await env.OUT.send({ id: "a1" }, { delaySeconds: 30 });
    await env.OUT.send({ id: "a2" });
    await env.OUT.send({ other: 1 });
    await env.OUT.sendBatch([{ body: { id: "b1" }, delaySeconds: 5 }, { body: { id: "b2" } }], {
      delaySeconds: 9,
    });
    await env.OUT.sendBatch(
      (function* () {
        yield { body: { id: "c1" }, delaySeconds: 0 };
      })(),
    );
    const failure = await env.OUT.send({ id: "refused" }, { delaySeconds: 1e6 }).catch(String);
    const metrics = await env.OUT.metrics();
    return Response.json({
      answer,
      failure: failure.split(":")[0],
      metrics: Object.keys(metrics),
      keys: Object.keys(env).sort(),
    });
  },
  async queue(batch, env) {
    for (const message of batch.messages) await env.OUT.send({ id: `from-${message.body.id}` });
  },
};
const environments = new Set();
const caching = {
  async fetch(request, env) {
    environments.add(env);
    const { pathname, searchParams } = new URL(request.url);
    await sleep(Number(searchParams.get("afterMs")));
    await env.OUT.send({ id: pathname.slice(1) });
    return new Response(String(environments.size));
  },
};
const sending = {
  consumer: "sender",
  producers: { OUT: "out" },
  messageId: (body) => body.id,
  backlog: true,
};

export const STYLES = {
  object: watch(
    {
      queue: (batch) => {
        batch.messages[0].retry();
      },
      fetch: () => new Response("fetched"),
    },
    options,
  ),
  frozen: watch(
    Object.freeze({
      queue: (batch) => {
        batch.messages[0].retry();
      },
    }),
    options,
  ),
  instance: watch(new Instance(), options),
  twice: watch(watch(new Instance(), options), options),
  entrypoint: watch(Entrypoint, options),
  failing: watch(Failing, options),
  field: watch(Field, options),
  plain: watch(Plain, options),
  sender: watch(sender, sending),
  bareSender: sender,
  caching: watch(caching, sending),
  bareCaching: caching,
  classSender: watch(
    class extends WorkerEntrypoint {
      async fetch() {
        await this.env.OUT.send({ id: "k1" });
        return new Response("sent");
      }
      async queue() {
        await this.env.OUT.send({ id: "k2" });
      }
    },
    sending,
  ),
  slow: watch({ queue: () => sleep(1_500) }, { ...options, earlyMs: 50 }),
  hanging: watch({ queue: () => new Promise(() => {}) }, { ...options, earlyMs: 0 }),
  bareHanging: { queue: () => new Promise(() => {}) },
  unseen: watch(
    {
      queue(batch) {
        waitUntil(Promise.reject(new Error("no")));
        const [message] = batch.messages;
        Object.getPrototypeOf(message).retry.call(message);
      },
    },
    options,
  ),
  broken: watch(
    {
      queue: (batch) => {
        batch.messages[0].retry();
      },
    },
    {
      ...options,
      messageId: () => {
        throw new Error("no");
      },
    },
  ),
  talkative: watch(
    {
      queue() {
        throw new TypeError("order 7 is odd");
      },
    },
    { ...options, errorMessages: true },
  ),
  backoff: watch({ queue: backOff }, options),
  longBackoff: watch(
    { queue: backOff },
    {
      ...options,
      queues: { q: { maxRetries: 9, deadLetterQueue: null } },
    },
  ),
};
export class Counter extends DurableObject {}
