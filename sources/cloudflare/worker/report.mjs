/** A batch and its verdict as telemetry events. No clock, no runtime: what happened in, plain objects out. */

/** @typedef {import("./outbox.mjs").Event} Event */
/** @typedef {import("./verdict.mjs").Verdict} Verdict */
/**
 * @typedef {object} Delivery One message as it was delivered
 * @property {string} id the runtime's id
 * @property {string} messageId the id reported: the runtime's, or the application's own
 * @property {number} sentAtMs
 * @property {number} attempts deliveries so far, this one included
 */
/**
 * @typedef {object} BatchFacts
 * @property {string} queue
 * @property {string} batchId
 * @property {Delivery[]} deliveries
 * @property {number} startedAtMs
 * @property {string} [scope]
 * @property {string} [consumer]
 * @property {import("./settings.mjs").QueueSettings} settings what is known of the queue's consumer settings
 */
/** @typedef {{ failed: false } | { failed: true, reason: string }} Outcome */

export const SYSTEM = "cloudflare_queues";
/** A consumer invocation may run this long, so a delivery of which nothing more is heard is over by then. */
export const LONGEST_INVOCATION_MS = 15 * 60_000;
/** The longest delay the platform takes, in seconds. */
export const LONGEST_DELAY_S = 86_400;

/**
 * One `received` event per message.
 *
 * @param {BatchFacts} batch
 * @returns {Event[]}
 */
export function receivedEvents(batch) {
  return batch.deliveries.map((delivery) => ({
    ...about(batch, "received", batch.startedAtMs),
    message_id: delivery.messageId,
    sent_at: delivery.sentAtMs,
    receive_count: delivery.attempts,
    invisible_until: batch.startedAtMs + LONGEST_INVOCATION_MS,
    batch_id: batch.batchId,
  }));
}

/**
 * What became of each message, then of the batch: `acked + retried + failed` is its size. `failed` counts
 * messages that go back because the batch failed as a whole, `retried` those the handler gave back.
 *
 * @param {BatchFacts} batch
 * @param {Verdict} verdict
 * @param {Outcome} outcome
 * @param {number} endedAtMs
 * @param {number} dropped telemetry events given up since the last batch
 * @returns {Event[]}
 */
export function outcomeEvents(batch, verdict, outcome, endedAtMs, dropped) {
  const counts = { size: batch.deliveries.length, failed: 0, acked: 0, retried: 0 };
  /** @type {Event[]} */
  const events = batch.deliveries.map((delivery) => {
    const fate = verdict.of(delivery.id, outcome.failed);
    counts[fate.acked ? "acked" : fate.explicit ? "retried" : "failed"] += 1;
    const common = {
      message_id: delivery.messageId,
      receive_count: delivery.attempts,
      batch_id: batch.batchId,
    };
    if (fate.acked) {
      return {
        ...about(batch, "deleted", endedAtMs),
        ...common,
        reason: fate.explicit ? "ack" : "implicit ack",
      };
    }
    const why = fate.explicit || !outcome.failed ? "retry" : outcome.reason;
    return { ...given(batch, delivery, fate.delayS, why, endedAtMs), ...common };
  });
  events.push({
    ...about(batch, "batch", endedAtMs),
    batch_id: batch.batchId,
    ...(outcome.failed ? { reason: outcome.reason } : {}),
    attributes: dropped > 0 ? { ...counts, telemetry_dropped: dropped } : counts,
  });
  return events;
}

/**
 * A message that was not acknowledged: it comes again, or this was its last delivery.
 *
 * @param {BatchFacts} batch
 * @param {Delivery} delivery
 * @param {number | undefined} delayS
 * @param {string} why
 * @param {number} atMs
 * @returns {Event}
 */
function given(batch, delivery, delayS, why, atMs) {
  const { maxRetries, deadLetterQueue, retryDelaySeconds } = batch.settings;
  if (maxRetries !== undefined && delivery.attempts > maxRetries && deadLetterQueue !== undefined) {
    const reason = `${why}; delivery ${delivery.attempts} of ${maxRetries + 1}`;
    return deadLetterQueue === null
      ? { ...about(batch, "dropped", atMs), reason }
      : { ...about(batch, "dead_lettered", atMs), to_queue: deadLetterQueue, reason };
  }
  const waitS = delayS ?? retryDelaySeconds;
  return {
    ...about(batch, "released", atMs),
    ...(waitS === undefined ? {} : { visible_at: atMs + Math.max(0, waitS) * 1000 }),
    reason:
      waitS !== undefined && waitS > LONGEST_DELAY_S ? `${why}; delay of ${waitS} s is over the limit` : why,
  };
}

/**
 * @param {{ scope?: string, consumer?: string, queue: string }} subject
 * @param {string} type
 * @param {number} atMs
 * @returns {Event}
 */
export function about(subject, type, atMs) {
  /** @type {Event} */
  const event = { v: 1, type, at: atMs, system: SYSTEM };
  if (subject.scope) event.scope = subject.scope;
  event.queue = subject.queue;
  if (subject.consumer) event.consumer = subject.consumer;
  return event;
}
