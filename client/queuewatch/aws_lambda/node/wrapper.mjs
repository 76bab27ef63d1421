// The wrapped handler: calls the function's own handler and reports the outcome of the batch.

import { Answer } from "./answer.mjs";
import { Carrier } from "./carrier.mjs";
import { failed, returned, timedOut } from "./outcome.mjs";
import { transportFor } from "./posting.mjs";
import { deliveryOf } from "./records.mjs";
import { settingsFrom } from "./settings.mjs";

const STREAMING = Symbol.for("aws.lambda.runtime.handler.streaming");

/**
 * Returns the handler for the runtime, or `original` itself if telemetry is off or has no usable destination. Results and
 * errors pass through unchanged; the wrapper itself throws nothing.
 */
export function wrap(original, settings = settingsFrom()) {
  if (!settings.to || original[STREAMING]) return original;
  let carrier;
  try {
    carrier = new Carrier(transportFor(settings.to));
  } catch (error) {
    // A typo in a deployment must not prevent the function from running.
    console.error(`queuewatch: QUEUEWATCH_TO: ${error.message}; no telemetry is sent`);
    return original;
  }
  const handler = function (event, context, callback) {
    const invocation = guarded(() => Invocation.of(event, context, settings, carrier));
    if (!invocation) return original.apply(this, arguments);
    if (typeof callback === "function") return withCallback(original, this, event, context, callback, invocation);
    return withPromise(original, this, event, context, invocation);
  };
  // The runtimes from Node.js 24 on refuse a handler that declares a callback.
  return Object.defineProperty(handler, "length", { value: original.length });
}

/** Up to Node.js 22 the runtime passes a callback to every handler, and ignores a result that is not a promise. */
function withCallback(original, self, event, context, callback, invocation) {
  const answer = new Answer(invocation, context, callback);
  let result;
  try {
    result = original.call(self, event, context, answer.callback);
  } catch (error) {
    answer.callback(error);
    return undefined;
  }
  if (typeof result?.then === "function") return settled(result, answer);
  answer.awaitEmptyLoop();
  return result;
}

/** From Node.js 24 on the runtime posts what the handler returns, and knows no other answer. */
function withPromise(original, self, event, context, invocation) {
  const answer = { succeed: (result) => invocation.endWith(result), fail: (error) => invocation.end(failed(error)) };
  let result;
  try {
    result = original.call(self, event, context);
  } catch (error) {
    result = Promise.reject(error);
  }
  return settled(result, answer);
}

async function settled(promise, answer) {
  let result;
  try {
    result = await promise;
  } catch (error) {
    await answer.fail(error);
    throw error;
  }
  await answer.succeed(result);
  return result;
}

/** One batch in progress. None of its steps throws. */
class Invocation {
  #delivery;
  #settings;
  #carrier;
  #timers = [];
  #received = false;
  #timedOut = false;
  #ended = false;
  #deadline = 0;

  static of(event, context, settings, carrier) {
    const { consumer, scope, visibilityTimeoutS } = settings;
    const requestId = String(context?.awsRequestId ?? "");
    const delivery = deliveryOf(event, { requestId, consumer, scope, visibilityTimeoutS, beganAt: Date.now() });
    return delivery && new Invocation(delivery, context, settings, carrier);
  }

  constructor(delivery, context, settings, carrier) {
    this.#delivery = delivery;
    this.#settings = settings;
    this.#carrier = carrier;
    this.#after(settings.earlyMs, () => this.#reportReceived());
    const left = context?.getRemainingTimeInMillis?.();
    if (!Number.isFinite(left)) return;
    this.#deadline = Date.now() + Math.trunc(left);
    this.#after(Math.max(0, left - settings.timeoutMarginMs), () => this.#nearlyOutOfTime());
  }

  endWith(result) {
    return this.end(guarded(() => returned(result, this.#delivery.messageIds, this.#settings.reportsFailures)));
  }

  /** Report the outcome, and wait for the report within the time limit. */
  async end(outcome) {
    if (this.#ended) return;
    this.#ended = true;
    for (const timer of this.#timers) clearTimeout(timer);
    try {
      this.#reportReceived();
      if (outcome && !(this.#timedOut && outcome.whole)) this.#report(outcome);
      await this.#carrier.deliver(this.#settings.sendMs);
    } catch (error) {
      lost(error);
    }
  }

  #after(ms, action) {
    const timer = setTimeout(() => {
      guarded(action);
      void this.#carrier.start();
    }, ms);
    timer.unref();
    this.#timers.push(timer);
  }

  // The process may be killed next. If the handler still returns, its outcome is reported too: a timeout that is dated at the
  // deadline comes after that, in whatever order they arrive.
  #nearlyOutOfTime() {
    this.#reportReceived();
    this.#timedOut = true;
    this.#report(timedOut(), this.#deadline);
  }

  #reportReceived() {
    if (this.#received) return;
    this.#received = true;
    this.#carrier.offer(this.#delivery.records.length, () => this.#delivery.received());
  }

  #report(outcome, notBefore = 0) {
    const at = Math.max(Date.now(), notBefore);
    this.#carrier.offer(this.#delivery.records.length + 1, () => this.#delivery.ended(outcome, at));
  }
}

function guarded(action) {
  try {
    return action();
  } catch (error) {
    lost(error);
    return undefined;
  }
}

function lost(error) {
  console.error(`queuewatch: telemetry of an invocation is lost, the invocation is not affected: ${error?.message}`);
}
