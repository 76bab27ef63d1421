/**
 * One delivered batch, watched: its handler runs as it would alone, and what it does is written down beside
 * it.
 *
 * Nothing here may change what the runtime decides. The calls of a handler reach the runtime first and
 * unchanged, and are noted only when it accepted them. Whatever goes wrong on this side is swallowed. The
 * handler's result or error goes to the runtime as it is.
 */

import { intercept, isThenable } from "./intercept.mjs";
import { outcomeEvents, receivedEvents } from "./report.mjs";
import { Verdict, delayOf } from "./verdict.mjs";

/** @typedef {import("./report.mjs").Delivery} Delivery */
/** @typedef {import("./watcher.mjs").Watcher} Watcher */
/** @typedef {import("./outbox.mjs").Target} Target */

/**
 * Steps of the microtask queue given to a handler that acts after it returned: the runtime counts those calls
 * too.
 */
const LAST_STEPS = 200;

/** Batches already watched: a handler may be wrapped twice. */
const watched = new WeakSet();

/**
 * Run a handler on a batch and report what became of it.
 *
 * @param {Watcher} watcher
 * @param {any} batch
 * @param {any} env
 * @param {any} ctx
 * @param {() => unknown} handle calls the handler
 * @returns {unknown} what the handler returned
 */
export function watchBatch(watcher, batch, env, ctx, handle) {
  const watch = begin(watcher, batch, env, ctx);
  if (watch === undefined) return handle();
  let result;
  try {
    result = handle();
  } catch (error) {
    watch.end({ failed: true, reason: watcher.reasonOf("exception", error) });
    throw error;
  }
  if (!isThenable(result)) {
    watch.end({ failed: false });
    return result;
  }
  // A promise goes to the runtime as it is. Another thenable is adopted once: asking it twice could run it
  // twice.
  const promise = result instanceof Promise ? result : Promise.resolve(result);
  promise.then(
    () => watch.end({ failed: false }),
    (error) => watch.end({ failed: true, reason: watcher.reasonOf("exception", error) }),
  );
  return promise;
}

/**
 * @param {Watcher} watcher
 * @param {any} batch
 * @param {any} env
 * @param {any} ctx
 * @returns {BatchWatch | undefined} undefined when there is nowhere to report to, or this runtime is not
 *   understood
 */
function begin(watcher, batch, env, ctx) {
  try {
    const target = watcher.target(env);
    if (target === undefined || watched.has(batch)) return undefined;
    watched.add(batch);
    return new BatchWatch(watcher, target, batch, ctx);
  } catch {
    return undefined;
  }
}

class BatchWatch {
  #watcher;
  #target;
  #facts;
  #verdict = new Verdict();
  /** Calls count for the verdict until the runtime has read it. */
  #open = true;
  #reported = false;
  /** @type {Promise<{ failed: boolean, error: unknown }>[]} */
  #waitUntils = [];
  /** @type {ReturnType<typeof setTimeout>} */
  #early;
  /** @type {Promise<void> | undefined} */
  #earlyPost;
  /** @type {() => void} */
  #done = () => {};

  /**
   * @param {Watcher} watcher
   * @param {Target} target
   * @param {any} batch
   * @param {any} ctx
   */
  constructor(watcher, target, batch, ctx) {
    this.#watcher = watcher;
    this.#target = target;
    const messages = batch.messages;
    this.#facts = watcher.batchFacts(batch.queue, messages);
    watcher.noteBacklog(batch.queue, batch.metadata?.metrics);
    this.#listen(batch, messages);
    const { noWait, waitMs, earlyMs } = watcher.settings;
    if (noWait || waitMs > 0) {
      ctx.waitUntil(new Promise((resolve) => (this.#done = () => resolve(undefined))));
    }
    // Only now: this side's own promise must not be waited for as one of the handler's.
    if (!noWait) this.#listenToWaitUntil(ctx);
    // A message that failed before may take the isolate with it this time: its delivery is reported while it can
    // be. The same where telemetry has no time of its own after the handler.
    const urgent = !noWait || this.#facts.deliveries.some((delivery) => delivery.attempts > 1);
    this.#early = setTimeout(() => this.#reportDeliveries(), urgent ? 0 : earlyMs);
  }

  /**
   * The handler is done. Never throws.
   *
   * @param {import("./report.mjs").Outcome} outcome
   */
  end(outcome) {
    this.#finish(outcome)
      .catch(() => {})
      .then(this.#done);
  }

  /** @param {import("./report.mjs").Outcome} outcome */
  async #finish(outcome) {
    const { noWait, waitMs } = this.#watcher.settings;
    if (!noWait) outcome = await this.#afterWaitUntils(outcome);
    for (let step = 0; step < LAST_STEPS; step += 1) await undefined;
    this.#open = false;
    clearTimeout(this.#early);
    const endedAtMs = Date.now();
    // With time of its own, the work below starts when the runtime has its answer.
    if (noWait) await new Promise((resolve) => setTimeout(resolve, 0));
    const events = this.#reported ? [] : receivedEvents(this.#facts);
    const { outbox } = this.#watcher;
    events.push(...outcomeEvents(this.#facts, this.#verdict, outcome, endedAtMs, outbox.takeDropped()));
    this.#watcher.noteOutcome(this.#facts, this.#verdict, outcome);
    events.push(...this.#watcher.stateEvents(this.#facts.queue));
    outbox.add(events);
    const flushed = Promise.all([this.#earlyPost, outbox.flush(this.#target)]);
    await (noWait ? flushed : Promise.race([flushed, new Promise((resolve) => setTimeout(resolve, waitMs))]));
  }

  #reportDeliveries() {
    if (this.#reported || !this.#open) return;
    this.#reported = true;
    this.#watcher.outbox.add(receivedEvents(this.#facts));
    this.#earlyPost = this.#watcher.outbox.flush(this.#target);
  }

  /**
   * @param {any} batch
   * @param {any[]} messages
   */
  #listen(batch, messages) {
    const note = (/** @type {() => void} */ take) => {
      if (this.#open) take();
    };
    const verdict = this.#verdict;
    intercept([batch], "ackAll", () => note(() => verdict.ackAll()));
    intercept([batch], "retryAll", (_, args) => note(() => verdict.retryAll(delayOf(args[0]))));
    intercept(messages, "ack", (message) => note(() => verdict.ack(message.id)));
    intercept(messages, "retry", (message, args) => note(() => verdict.retry(message.id, delayOf(args[0]))));
  }

  /** @param {any} ctx */
  #listenToWaitUntil(ctx) {
    intercept(
      [ctx],
      "waitUntil",
      (_, args) => {
        this.#waitUntils.push(
          Promise.resolve(args[0]).then(
            () => ({ failed: false, error: undefined }),
            (error) => ({ failed: true, error }),
          ),
        );
      },
      (args) => (isThenable(args[0]) && !(args[0] instanceof Promise) ? [Promise.resolve(args[0])] : args),
    );
  }

  /**
   * The runtime waits for every promise, also for those added while it waits, and one rejection fails the
   * batch.
   *
   * @param {import("./report.mjs").Outcome} outcome
   * @returns {Promise<import("./report.mjs").Outcome>}
   */
  async #afterWaitUntils(outcome) {
    for (let next = 0; next < this.#waitUntils.length; next += 1) {
      const { failed, error } = await this.#waitUntils[next];
      if (failed && !outcome.failed) {
        outcome = { failed: true, reason: this.#watcher.reasonOf("waitUntil rejected", error) };
      }
    }
    return outcome;
  }
}
