// Converts the records of an SQS invocation, and its outcome, to telemetry events. Pure.

/**
 * Returns the batch in a Lambda event, or undefined if the event is not from SQS. An event source mapping passes
 * `{ Records: […] }`, EventBridge Pipes the list of the same records by itself.
 */
export function deliveryOf(event, { requestId, consumer, beganAt, scope, visibilityTimeoutS }) {
  const found = Array.isArray(event) ? event : event?.Records;
  if (!Array.isArray(found) || found.length === 0) return undefined;
  if (!found.every((record) => record?.eventSource === "aws:sqs" && record.messageId)) return undefined;
  const place = placeOfArn(String(found[0].eventSourceARN ?? ""));
  // Copied, because the handler may change its event.
  const records = found.map((record) => ({ id: record.messageId, said: { ...record.attributes } }));
  const windowMs = visibilityTimeoutS === undefined ? undefined : Math.trunc(visibilityTimeoutS * 1000);
  return new Delivery(requestId, consumer, { ...place, scope: scope ?? place.scope }, records, beganAt, windowMs);
}

class Delivery {
  constructor(requestId, consumer, place, records, beganAt, windowMs) {
    Object.assign(this, { requestId, consumer, place, records, beganAt, windowMs });
  }

  get messageIds() {
    return this.records.map((record) => record.id);
  }

  /** Returns the `received` events, which are the same however the invocation ends. */
  received() {
    return this.records.map((record) => {
      const at = this.#receivedAt(record);
      const { said } = record;
      return this.#about(record, "received", at, {
        batch_id: this.requestId,
        receive_count: integer(said.ApproximateReceiveCount),
        sent_at: integer(said.SentTimestamp),
        first_received_at: integer(said.ApproximateFirstReceiveTimestamp),
        sequence: said.SequenceNumber || undefined,
        from_queue: originOf(said, this.place.queue),
        invisible_until: this.windowMs === undefined ? undefined : at + this.windowMs,
      });
    });
  }

  /**
   * Returns the outcome of each message and of the batch. If the visibility timeout is not known, neither is the time when a
   * message becomes visible again. Then no `released` is reported, and the service itself infers the end of the message's
   * window.
   */
  ended(outcome, at) {
    const events = [];
    let back = 0;
    for (const record of this.records) {
      if (!outcome.whole && !outcome.back.has(record.id)) {
        events.push(this.#about(record, "deleted", at, { reason: "returned" }));
        continue;
      }
      back += 1;
      if (this.windowMs === undefined) continue;
      const visible_at = Math.max(at, this.#receivedAt(record) + this.windowMs);
      events.push(this.#about(record, "released", at, { reason: outcome.reason, visible_at }));
    }
    const size = this.records.length;
    const attributes = { size, failed: outcome.whole ? back : 0, acked: size - back, retried: outcome.whole ? 0 : back };
    events.push(this.#event("batch", at, { consumer: this.consumer, batch_id: this.requestId, reason: outcome.reason, attributes }));
    return events;
  }

  // When the mapping received it: known for a first receive, otherwise at most the start of the invocation.
  #receivedAt({ said }) {
    const first = integer(said.ApproximateFirstReceiveTimestamp);
    if (first !== undefined && integer(said.ApproximateReceiveCount) === 1) return Math.min(first, this.beganAt);
    return this.beganAt;
  }

  #about(record, type, at, more) {
    const group = record.said.MessageGroupId || undefined;
    return this.#event(type, at, { message_id: record.id, consumer: this.consumer, group, ...more });
  }

  #event(type, at, more) {
    return { v: 1, type, at, system: "aws_sqs", scope: this.place.scope, queue: this.place.queue, ...more };
  }
}

function placeOfArn(arn) {
  const parts = arn.split(":");
  return parts.length === 6 ? { scope: `${parts[4]}/${parts[3]}`, queue: parts[5] } : { scope: undefined, queue: arn };
}

// A message that was redriven to the queue it came from may still name it.
function originOf(said, queue) {
  const arn = said.DeadLetterQueueSourceArn;
  const origin = arn ? placeOfArn(String(arn)).queue : undefined;
  return origin === queue ? undefined : origin;
}

function integer(text) {
  const value = text === undefined || text === null ? Number.NaN : Math.trunc(Number(text));
  return Number.isFinite(value) ? value : undefined;
}
