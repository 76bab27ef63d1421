/**
 * queuewatch for Cloudflare Workers: what really becomes of each message of a Queue.
 *
 *     import { watch } from "./queuewatch.mjs";
 *
 *     export default watch({
 *       async queue(batch, env, ctx) { … },
 *     }, { queues: { orders: { maxRetries: 3, deadLetterQueue: "orders-dlq" } } });
 *
 * A Worker wrapped so behaves as it does bare: its deliveries, its verdicts, its errors. Telemetry that
 * cannot be delivered is kept for a while, then dropped and counted.
 */

import { watchBatch } from "./batch.mjs";
import { watchProducers } from "./producer.mjs";
import { Watcher } from "./watcher.mjs";

/** Handlers of a Worker, each called with (what happened, env, ctx). */
const HANDLERS = ["fetch", "scheduled", "email", "tail", "trace", "test"];
/** Sends of one invocation leave together. */
const GATHER_MS = 50;

/**
 * Wrap the default export of a Worker, or a class it exports.
 *
 * @template {object} Handler
 * @param {Handler} handler an object with handlers, or a class (WorkerEntrypoint, DurableObject…)
 * @param {import("./settings.mjs").Options} [options]
 * @returns {Handler}
 */
export function watch(handler, options = {}) {
  const watcher = new Watcher(options);
  return /** @type {Handler} */ (
    typeof handler === "function" ? watchClass(watcher, handler) : watchObject(watcher, handler)
  );
}

/**
 * @param {Watcher} watcher
 * @param {any} handler
 */
function watchObject(watcher, handler) {
  // Everything else the object has is inherited; handlers are called on the object itself, as its private
  // parts are.
  const watched = Object.create(handler);
  const define = (/** @type {string} */ name, /** @type {Function} */ value) =>
    Object.defineProperty(watched, name, { value, enumerable: true, configurable: true, writable: true });
  // Apart, because sends in a batch are reported with the batch.
  /** @type {import("./producer.mjs").Known} */
  const inBatches = new WeakMap();
  /** @type {import("./producer.mjs").Known} */
  const elsewhere = new WeakMap();
  if (typeof handler.queue === "function") {
    define("queue", (/** @type {any} */ batch, /** @type {any} */ env, /** @type {any} */ ctx) => {
      const watchedEnv = watchProducers(watcher, env, batchFlusher(watcher, env, ctx), inBatches);
      return watchBatch(watcher, batch, env, ctx, () => handler.queue(batch, watchedEnv, ctx));
    });
  }
  for (const name of HANDLERS) {
    if (typeof handler[name] !== "function") continue;
    define(name, (/** @type {any} */ event, /** @type {any} */ env, /** @type {any} */ ctx) =>
      handler[name](event, watchProducers(watcher, env, flusher(watcher, env, ctx), elsewhere), ctx),
    );
  }
  return watched;
}

/**
 * @param {Watcher} watcher
 * @param {any} handler
 */
function watchClass(watcher, handler) {
  /**
   * What an instance does when one of its sends has something to report. @type {WeakMap<object, () => void>}
   */
  const onReport = new WeakMap();
  /** @this {any} @param {Function} queue @param {any} batch @param {any[]} rest */
  function run(queue, batch, rest) {
    onReport.set(this, batchFlusher(watcher, this.env, this.ctx));
    return watchBatch(watcher, batch, this.env, this.ctx, () => queue.call(this, batch, ...rest));
  }
  const watched = class extends handler {
    /** @param {any} ctx @param {any} env @param {any[]} rest */
    constructor(ctx, env, ...rest) {
      /** @type {() => void} */
      let report = flusher(watcher, env, ctx);
      super(
        ctx,
        watchProducers(watcher, env, () => report()),
        ...rest,
      );
      const direct = report;
      report = () => (onReport.get(this) ?? direct)();
      // A handler may be a field of the instance; it hides the method of the prototype.
      const field = Object.hasOwn(this, "queue") && this.queue;
      if (typeof field === "function") {
        this.queue = (/** @type {any} */ batch, /** @type {any[]} */ ...args) =>
          run.call(this, field, batch, args);
      }
    }
  };
  const method = handler.prototype?.queue;
  if (typeof method === "function") {
    Object.defineProperty(watched.prototype, "queue", {
      configurable: true,
      writable: true,
      value: /** @this {any} */ function queue(/** @type {any} */ batch, /** @type {any[]} */ ...args) {
        return run.call(this, method, batch, args);
      },
    });
  }
  Object.defineProperty(watched, "name", { value: handler.name, configurable: true });
  return watched;
}

/**
 * In a batch the runtime may wait for whatever is given to waitUntil(); then sends are reported with the
 * batch.
 *
 * @param {Watcher} watcher
 * @param {any} env
 * @param {any} ctx
 * @returns {() => void}
 */
function batchFlusher(watcher, env, ctx) {
  return watcher.settings.noWait ? flusher(watcher, env, ctx) : () => {};
}

/**
 * @param {Watcher} watcher
 * @param {any} env
 * @param {any} ctx
 * @returns {() => void} flushes soon, once for all calls until then
 */
function flusher(watcher, env, ctx) {
  let due = false;
  return () => {
    const target = due ? undefined : watcher.target(env);
    if (target === undefined) return;
    due = true;
    ctx.waitUntil(
      new Promise((resolve) => setTimeout(resolve, GATHER_MS)).then(() => {
        due = false;
        return watcher.outbox.flush(target);
      }),
    );
  };
}
