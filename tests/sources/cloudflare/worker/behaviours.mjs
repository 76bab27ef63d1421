/**
 * What handlers do with a batch of three messages, m0 to m2, on its first delivery. Later deliveries are left
 * alone, and so acknowledged, unless `always` is set.
 *
 * `consumer` overrides the queue's settings (miniflare's names). `local` says where miniflare's broker, not
 * the runtime, departs from what Cloudflare documents; the runtime's own verdict never does. Runs in the
 * Worker and in the test's Node.
 */

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const IGNORES_ACKS = "the broker ignores acks of a batch that failed or was retried as a whole";

export const BEHAVIOURS = {
  // Nothing said.
  returns: { handle() {} },
  "returns a value": { handle: () => 5 },
  "returns a promise": {
    handle: async () => {
      await sleep(5);
    },
  },
  "returns a thenable": {
    handle: () => ({
      then: (resolve) => {
        resolve(1);
      },
    }),
  },

  // One message.
  "acks one": {
    handle(b) {
      b.messages[0].ack();
    },
  },
  "acks each": {
    handle(b) {
      for (const m of b.messages) m.ack();
    },
  },
  "retries one": {
    handle(b) {
      b.messages[1].retry();
    },
  },
  "retries one with a delay": {
    handle(b) {
      b.messages[1].retry({ delaySeconds: 1 });
    },
  },
  "retries each": {
    handle(b) {
      for (const m of b.messages) m.retry();
    },
  },
  "acks, then retries": {
    handle(b) {
      b.messages[0].ack();
      b.messages[0].retry();
    },
  },
  "retries, then acks": {
    handle(b) {
      b.messages[0].retry();
      b.messages[0].ack();
    },
  },
  "acks twice": {
    handle(b) {
      b.messages[0].ack();
      b.messages[0].ack();
    },
  },
  "retries twice: the last delay stands": {
    handle(b) {
      b.messages[0].retry({ delaySeconds: 60 });
      b.messages[0].retry({ delaySeconds: 1 });
    },
  },
  "retries twice: the second without a delay": {
    handle(b) {
      b.messages[0].retry({ delaySeconds: 60 });
      b.messages[0].retry();
    },
  },
  "acks and retries after awaiting": {
    async handle(b) {
      await sleep(5);
      b.messages[0].ack();
      await sleep(5);
      b.messages[1].retry();
    },
  },

  // The whole batch.
  ackAll: {
    handle(b) {
      b.ackAll();
    },
  },
  retryAll: {
    handle(b) {
      b.retryAll();
    },
  },
  "retryAll with a delay": {
    handle(b) {
      b.retryAll({ delaySeconds: 1 });
    },
  },
  "retryAll twice: the second without a delay keeps the first's": {
    handle(b) {
      b.retryAll({ delaySeconds: 1 });
      b.retryAll();
    },
  },
  "retryAll twice: the last delay stands": {
    handle(b) {
      b.retryAll({ delaySeconds: 60 });
      b.retryAll({ delaySeconds: 1 });
    },
  },
  "ackAll, then retryAll": {
    handle(b) {
      b.ackAll();
      b.retryAll();
    },
  },
  "retryAll, then ackAll": {
    handle(b) {
      b.retryAll();
      b.ackAll();
    },
  },

  // One message and the whole batch.
  "retries one, then ackAll": {
    handle(b) {
      b.messages[1].retry();
      b.ackAll();
    },
  },
  "ackAll, then retries one": {
    handle(b) {
      b.ackAll();
      b.messages[1].retry();
    },
  },
  "acks one, then ackAll": {
    handle(b) {
      b.messages[0].ack();
      b.ackAll();
    },
  },
  "retries one, ackAll, retries it again": {
    handle(b) {
      b.messages[0].retry({ delaySeconds: 1 });
      b.ackAll();
      b.messages[0].retry({ delaySeconds: 60 });
    },
  },
  "retryAll, then acks one": {
    handle(b) {
      b.retryAll();
      b.messages[0].ack();
    },
  },
  "acks one, then retryAll": {
    local: IGNORES_ACKS,
    handle(b) {
      b.messages[0].ack();
      b.retryAll();
    },
  },
  "retryAll, then retries one with a delay": {
    handle(b) {
      b.retryAll();
      b.messages[0].retry({ delaySeconds: 1 });
    },
  },
  "retries one with a delay, then retryAll with another": {
    handle(b) {
      b.messages[0].retry({ delaySeconds: 0 });
      b.retryAll({ delaySeconds: 1 });
    },
  },
  "retries one, then retryAll with a delay": {
    handle(b) {
      b.messages[0].retry();
      b.retryAll({ delaySeconds: 1 });
    },
  },
  "acks one, retryAll, retries it": {
    local: IGNORES_ACKS,
    handle(b) {
      b.messages[0].ack();
      b.retryAll({ delaySeconds: 1 });
      b.messages[0].retry();
    },
  },

  // Delays as the runtime reads them.
  "delay as text": {
    handle(b) {
      b.messages[0].retry({ delaySeconds: "1" });
    },
  },
  "delay with a fraction": {
    handle(b) {
      b.messages[0].retry({ delaySeconds: 1.9 });
    },
  },
  "negative delay": {
    handle(b) {
      b.messages[0].retry({ delaySeconds: -5 });
    },
  },
  "delay that is no number": {
    handle(b) {
      b.messages[0].retry({ delaySeconds: "soon" });
    },
  },
  "delay null": {
    handle(b) {
      b.messages[0].retry({ delaySeconds: null });
    },
  },
  "delay undefined": {
    handle(b) {
      b.messages[0].retry({ delaySeconds: undefined });
    },
  },
  "delay Infinity": {
    handle(b) {
      b.messages[0].retry({ delaySeconds: Infinity });
    },
  },
  "options null": {
    handle(b) {
      b.messages[0].retry(null);
    },
  },
  "inherited delay": {
    handle(b) {
      b.messages[0].retry(Object.create({ delaySeconds: 1 }));
    },
  },
  "delay beyond 32 bits throws": {
    handle(b) {
      b.messages[0].retry({ delaySeconds: 1e12 });
    },
  },
  "options of another type throw": {
    handle(b) {
      b.messages[0].retry("soon");
    },
  },
  "delay 0 overrides the consumer's": {
    consumer: { retryDelay: 1 },
    handle(b) {
      b.messages[0].retry({ delaySeconds: 0 });
      b.messages[1].retry();
    },
  },

  // Failing.
  throws: {
    handle() {
      throw new Error("no");
    },
  },
  "throws undefined": {
    handle() {
      throw undefined;
    },
  },
  rejects: {
    async handle() {
      await sleep(5);
      throw new TypeError("no");
    },
  },
  "returns a thenable that rejects": {
    handle: () => ({
      then: (_, reject) => {
        reject(new Error("no"));
      },
    }),
  },
  "throws with a consumer's delay": {
    consumer: { retryDelay: 1 },
    handle() {
      throw new Error("no");
    },
  },
  "acks one, then throws": {
    local: IGNORES_ACKS,
    handle(b) {
      b.messages[0].ack();
      throw new Error("no");
    },
  },
  "acks each, then throws": {
    local: IGNORES_ACKS,
    handle(b) {
      for (const m of b.messages) m.ack();
      throw new Error("no");
    },
  },
  "ackAll, then throws": {
    local: IGNORES_ACKS,
    handle(b) {
      b.ackAll();
      throw new Error("no");
    },
  },
  "retries one with a delay, then throws": {
    handle(b) {
      b.messages[0].retry({ delaySeconds: 1 });
      throw new Error("no");
    },
  },
  "retryAll with a delay, then throws": {
    handle(b) {
      b.retryAll({ delaySeconds: 1 });
      throw new Error("no");
    },
  },
  "acks, fails on the next, catches and retries it": {
    handle(b) {
      b.messages[0].ack();
      try {
        throw new Error("no");
      } catch {
        b.messages[1].retry();
      }
    },
  },

  // waitUntil.
  "waitUntil resolves": {
    handle(b, env, ctx) {
      ctx.waitUntil(sleep(5));
    },
  },
  "waitUntil is rejected": {
    handle(b, env, ctx) {
      ctx.waitUntil(Promise.reject(new Error("no")));
    },
  },
  "waitUntil is rejected late": {
    handle(b, env, ctx) {
      ctx.waitUntil(
        sleep(20).then(() => {
          throw new Error("no");
        }),
      );
    },
  },
  "acks one, waitUntil is rejected": {
    local: IGNORES_ACKS,
    handle(b, env, ctx) {
      b.messages[0].ack();
      ctx.waitUntil(Promise.reject(new Error("no")));
    },
  },
  "waitUntil adds another that is rejected": {
    handle(b, env, ctx) {
      ctx.waitUntil(
        sleep(5).then(() =>
          ctx.waitUntil(
            sleep(5).then(() => {
              throw new Error("no");
            }),
          ),
        ),
      );
    },
  },
  "waitUntil of a thenable that rejects": {
    handle(b, env, ctx) {
      ctx.waitUntil({
        then: (_, reject) => {
          reject(new Error("no"));
        },
      });
    },
  },
  "waitUntil of no promise": {
    handle(b, env, ctx) {
      ctx.waitUntil(5);
    },
  },
  "waitUntil of nothing throws": {
    handle(b, env, ctx) {
      ctx.waitUntil();
    },
  },
  "throws, and waitUntil is rejected": {
    handle(b, env, ctx) {
      ctx.waitUntil(Promise.reject(new Error("no")));
      throw new Error("no");
    },
  },
  "retries in waitUntil, after returning": {
    handle(b, env, ctx) {
      ctx.waitUntil(sleep(20).then(() => b.messages[0].retry()));
    },
  },

  // After returning, with nobody waiting.
  "retries some microtasks after returning": {
    handle(b) {
      (async () => {
        for (let i = 0; i < 50; i += 1) await null;
        b.messages[0].retry();
      })();
    },
  },
  "retries in a timer after returning": {
    handle(b) {
      setTimeout(() => b.messages[0].retry(), 0);
    },
  },

  // Unusual ways to call.
  "detached ack throws": {
    handle(b) {
      const { ack } = b.messages[0];
      ack();
    },
  },
  "detached ack, caught": {
    handle(b) {
      const { ack } = b.messages[0];
      try {
        ack();
      } catch {
        b.messages[0].retry();
      }
    },
  },
  "detached waitUntil throws": {
    handle(b, env, ctx) {
      const { waitUntil } = ctx;
      waitUntil(Promise.resolve());
    },
  },
  "calls ack of one on another": {
    handle(b) {
      b.messages[0].ack.call(b.messages[1]);
      b.messages[1].retry();
    },
  },
  "replaces ack": {
    handle(b) {
      const [m] = b.messages;
      const { ack } = m;
      m.ack = function () {
        ack.call(this);
      };
      m.ack();
      b.messages[0].retry();
    },
  },
  "freezes the messages": {
    handle(b) {
      for (const m of b.messages) Object.freeze(m).retry();
    },
  },
  "takes messages off the list": {
    handle(b) {
      const list = b.messages;
      list.pop().retry();
      list.pop();
    },
  },
  "looks at everything": {
    handle(b, env, ctx) {
      return {
        notes: [
          Object.keys(b),
          Object.keys(b.messages[0]),
          JSON.stringify(b.messages.map((m) => m.body)),
          typeof ctx.waitUntil,
          b.messages[0] === b.messages[0],
          "ack" in b.messages[0],
        ],
      };
    },
  },

  // The last delivery.
  "fails for good with a dead-letter queue": {
    always: true,
    consumer: { maxRetries: 1, deadLetterQueue: true },
    handle() {
      throw new Error("no");
    },
  },
  "fails for good without one": {
    always: true,
    consumer: { maxRetries: 1 },
    handle() {
      throw new Error("no");
    },
  },
  "no retries at all": {
    always: true,
    consumer: { maxRetries: 0, deadLetterQueue: true },
    handle(b) {
      b.retryAll();
    },
  },
  "delays its last retry": {
    always: true,
    consumer: { maxRetries: 1, deadLetterQueue: true },
    handle(b) {
      b.messages[0].retry({ delaySeconds: b.messages[0].attempts > 1 ? 60 : 0 });
    },
  },
  "acks on the last delivery": {
    always: true,
    consumer: { maxRetries: 1, deadLetterQueue: true },
    handle(b) {
      if (b.messages[0].attempts === 1) b.retryAll();
    },
  },
};
