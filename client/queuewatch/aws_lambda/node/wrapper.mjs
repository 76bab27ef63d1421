// The wrapped handler: calls the function's own handler and reports the outcome of the batch.

import { Carrier } from "./carrier.mjs";
import { RETURNED, failed, returned, timedOut } from "./outcome.mjs";
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
  const begin = (event, context) => guarded(() => Invocation.of(event, context, settings, carrier));
  // The runtime looks at the number of parameters: with three, it passes a callback.
  if (original.length >= 3) {
    return function handler(event, context, callback) {
      const invocation = begin(event, context);
      return invocation ? withCallback(original, this, event, context, callback, invocation) : original.call(this, event, context, callback);
    };
  }
  return function handler(event, context) {
    const invocation = begin(event, context);
    return invocation ? withPromise(original, this, event, context, invocation, settings) : original.apply(this, arguments);
  };
}

function withPromise(original, self, event, context, invocation, settings) {
  let result;
  try {
    result = original.call(self, event, context);
  } catch (error) {
    return invocation.end(failed(error)).then(() => {
      throw error;
    });
  }
  if (typeof result?.then !== "function") {
    if (settings.ignoresPlainResults) {
      void invocation.end(RETURNED); // the runtime responds with null once the event loop is empty, whatever was returned
      return result;
    }
    return invocation.endWith(result).then(() => result);
  }
  return settled(result, invocation);
}

function withCallback(original, self, event, context, callback, invocation) {
  const answer = (error, result) => {
    const ended = error === undefined || error === null ? invocation.endWith(result) : invocation.end(failed(error));
    void ended.then(() => callback(error, result));
  };
  let result;
  try {
    result = original.call(self, event, context, answer);
  } catch (error) {
    return invocation.end(failed(error)).then(() => {
      throw error;
    });
  }
  return typeof result?.then === "function" ? settled(result, invocation) : result;
}

async function settled(promise, invocation) {
  let result;
  try {
    result = await promise;
  } catch (error) {
    await invocation.end(failed(error));
    throw error;
  }
  await invocation.endWith(result);
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
    if (Number.isFinite(left)) this.#after(Math.max(0, left - settings.timeoutMarginMs), () => this.#nearlyOutOfTime());
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

  // The process may be killed next. If the handler still returns, its outcome is reported too.
  #nearlyOutOfTime() {
    this.#reportReceived();
    this.#timedOut = true;
    this.#report(timedOut());
  }

  #reportReceived() {
    if (this.#received) return;
    this.#received = true;
    this.#carrier.offer(this.#delivery.records.length, () => this.#delivery.received());
  }

  #report(outcome) {
    const at = Date.now();
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
