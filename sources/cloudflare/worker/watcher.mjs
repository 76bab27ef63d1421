/**
 * What one wrapped Worker keeps between its invocations in one isolate: settings, the outbox, facts about its
 * queues.
 */

import { Habit, WITHDRAWN_BEFORE_MS } from "./habit.mjs";
import { Outbox } from "./outbox.mjs";
import { LONGEST_DELAY_S, about } from "./report.mjs";
import { withDefaults } from "./settings.mjs";
import { targetFrom } from "./target.mjs";

/** @typedef {import("./outbox.mjs").Event} Event */
/** @typedef {import("./report.mjs").BatchFacts} BatchFacts */
/** @typedef {{ throwsOnError: Habit<true>, overCapAtAttempt: Habit<number> }} Habits */
/** @typedef {{ habits?: Habits, backlog?: Event }} Seen `habits`: of a queue that is consumed here */

/** Unchanged settings are reported again after this long, for a reader that was not there. */
const REPEAT_SETTINGS_MS = 5 * 60_000;
/** A backlog is reported at most this often. */
const REPEAT_BACKLOG_MS = 10_000;
const MAX_MESSAGE_ID_CHARS = 512;
const MAX_REASON_CHARS = 200;
/** Half of a surrogate pair, which UTF-8 cannot encode: the service refuses an event that holds one. */
const HALF = /\p{Surrogate}/gu;

export class Watcher {
  /** @type {Map<string, Seen>} */
  #seen = new Map();
  /** @type {Map<string, { text: string, atMs: number }>} */
  #reported = new Map();
  /** @type {string | undefined} */
  #scope;

  /** @param {import("./settings.mjs").Options} options */
  constructor(options) {
    this.settings = withDefaults(options);
    this.#scope = this.settings.scope;
    const { maxPending, timeoutMs } = this.settings;
    this.outbox = new Outbox({ maxEvents: maxPending, lostAfterMs: timeoutMs + 1_000 });
  }

  /**
   * Where to report to; undefined: nowhere.
   *
   * @param {any} env
   */
  target(env) {
    const target = targetFrom(env, this.settings.timeoutMs);
    if (
      target !== undefined &&
      this.settings.scope === undefined &&
      typeof env.QUEUEWATCH_SCOPE === "string"
    ) {
      this.#scope = env.QUEUEWATCH_SCOPE;
    }
    return target;
  }

  /**
   * The subject of an event.
   *
   * @param {string} queue
   */
  subject(queue) {
    return { queue, scope: this.#scope, consumer: this.settings.consumer };
  }

  /**
   * @param {string} queue
   * @param {any[]} messages
   * @returns {BatchFacts}
   */
  batchFacts(queue, messages) {
    return {
      ...this.subject(queue),
      batchId: crypto.randomUUID(),
      startedAtMs: Date.now(),
      settings: this.settings.queues[queue] ?? {},
      deliveries: messages.map((message) => ({
        id: message.id,
        messageId: this.messageIdOf(() => message.body) ?? message.id,
        sentAtMs: message.timestamp.getTime(),
        attempts: message.attempts,
      })),
    };
  }

  /**
   * The application's own id in a message, when it has said how to find it.
   *
   * @param {() => unknown} body
   * @returns {string | undefined}
   */
  messageIdOf(body) {
    if (this.settings.messageId === undefined) return undefined;
    try {
      const id = this.settings.messageId(body());
      const fits = typeof id === "string" && id !== "" && id.length <= MAX_MESSAGE_ID_CHARS;
      return fits && id.search(HALF) < 0 ? id : undefined;
    } catch {
      return undefined;
    }
  }

  /**
   * An error's name; its message may hold what a message held, so it is only reported when asked for.
   *
   * @param {string} what
   * @param {unknown} error
   */
  reasonOf(what, error) {
    try {
      if (!(error instanceof Error)) return `${what}: ${error === null ? "null" : typeof error}`;
      const text = this.settings.errorMessages ? `${error.name}: ${error.message}` : error.name;
      return `${what}: ${text}`.slice(0, MAX_REASON_CHARS).replace(HALF, "\ufffd");
    } catch {
      return what;
    }
  }

  /**
   * Remember what a batch showed about the queue's settings and its handler's habits.
   *
   * @param {BatchFacts} facts
   * @param {import("./verdict.mjs").Verdict} verdict
   * @param {import("./report.mjs").Outcome} outcome
   */
  noteOutcome({ queue, deliveries, settings }, verdict, outcome) {
    const nowMs = Date.now();
    const seen = this.#seenOf(queue);
    seen.habits ??= { throwsOnError: new Habit(nowMs), overCapAtAttempt: new Habit(nowMs) };
    const { throwsOnError, overCapAtAttempt } = seen.habits;
    const { maxRetries = Infinity } = settings;
    for (const { id, attempts } of deliveries) {
      const { acked, explicit, delayS } = verdict.of(id, outcome.failed);
      if (!acked && !explicit) throwsOnError.see(true, nowMs);
      // The delay asked for at the last delivery is never waited.
      if (!acked && delayS !== undefined && delayS > LONGEST_DELAY_S && attempts <= maxRetries) {
        overCapAtAttempt.see(Math.min(overCapAtAttempt.reported(nowMs) ?? attempts, attempts), nowMs);
      }
    }
  }

  /**
   * @param {string} queue
   * @param {{ backlogCount?: unknown, backlogBytes?: unknown, oldestMessageTimestamp?: unknown } | undefined}
   *   metrics the runtime's own best effort, of batches and of what send() answers
   */
  noteBacklog(queue, metrics) {
    if (typeof metrics?.backlogCount !== "number") return;
    const oldestMs = Number(metrics.oldestMessageTimestamp ?? 0);
    this.#seenOf(queue).backlog = {
      visible: metrics.backlogCount,
      ...(typeof metrics.backlogBytes === "number" ? { backlog_bytes: metrics.backlogBytes } : {}),
      ...(oldestMs > 0 ? { oldest_sent_at: oldestMs } : {}),
    };
  }

  /**
   * What is known of a queue, as far as it is news or was reported long ago.
   *
   * @param {string} queue
   * @returns {Event[]}
   */
  stateEvents(queue) {
    const backlog = this.settings.backlog ? this.#seenOf(queue).backlog : undefined;
    return [
      ...this.#stateEvent(queue, "settings", this.#configured(queue)),
      ...this.#withdrawals(queue),
      ...this.#stateEvent(queue, "backlog", backlog ?? {}),
    ];
  }

  /**
   * The habits of the queue's handler that are over, as far as this isolate can tell.
   *
   * @param {string} queue
   * @returns {Event[]}
   */
  #withdrawals(queue) {
    const { habits } = this.#seenOf(queue);
    if (habits === undefined) return [];
    const nowMs = Date.now();
    /** @type {Event} */
    const attributes = {};
    if (habits.throwsOnError.takeWithdrawal(nowMs)) attributes.throws_on_error = false;
    if (habits.overCapAtAttempt.takeWithdrawal(nowMs)) attributes.backoff_cap_exceeded_at_attempt = null;
    if (Object.keys(attributes).length === 0) return [];
    return [{ ...about(this.subject(queue), "queue_state", nowMs - WITHDRAWN_BEFORE_MS), attributes }];
  }

  /**
   * @param {string} queue
   * @param {"settings" | "backlog"} part
   * @param {Event} attributes
   * @returns {Event[]}
   */
  #stateEvent(queue, part, attributes) {
    const text = JSON.stringify(attributes);
    if (text === "{}") return [];
    const nowMs = Date.now();
    const key = `${part} ${queue}`;
    const last = this.#reported.get(key);
    const sinceMs = last === undefined ? Infinity : nowMs - last.atMs;
    const isNews = part === "settings" && last?.text !== text;
    if (!isNews && sinceMs < (part === "settings" ? REPEAT_SETTINGS_MS : REPEAT_BACKLOG_MS)) return [];
    this.#reported.set(key, { text, atMs: nowMs });
    return [{ ...about(this.subject(queue), "queue_state", nowMs), attributes }];
  }

  /** @param {string} queue */
  #configured(queue) {
    const { maxRetries, deadLetterQueue, retryDelaySeconds, maxBatchSize } =
      this.settings.queues[queue] ?? {};
    const { habits } = this.#seenOf(queue);
    const nowMs = Date.now();
    const throwsOnError = habits?.throwsOnError.reported(nowMs);
    const overCapAtAttempt = habits?.overCapAtAttempt.reported(nowMs);
    /** @type {Event} */
    const attributes = {};
    if (maxRetries !== undefined)
      Object.assign(attributes, { max_retries: maxRetries, max_receive_count: maxRetries + 1 });
    if (deadLetterQueue !== undefined) {
      // An empty name: known not to be there.
      attributes.dead_letter_queue = deadLetterQueue ?? "";
      attributes.has_dead_letter_queue = deadLetterQueue !== null;
    }
    if (retryDelaySeconds !== undefined) attributes.retry_delay_s = retryDelaySeconds;
    if (maxBatchSize !== undefined) attributes.max_batch_size = maxBatchSize;
    if (throwsOnError) attributes.throws_on_error = true;
    if (overCapAtAttempt !== undefined) attributes.backoff_cap_exceeded_at_attempt = overCapAtAttempt;
    return attributes;
  }

  /**
   * @param {string} queue
   * @returns {Seen}
   */
  #seenOf(queue) {
    let seen = this.#seen.get(queue);
    if (seen === undefined) this.#seen.set(queue, (seen = {}));
    return seen;
  }
}
