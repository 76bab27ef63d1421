/**
 * What becomes of each message of a batch, from the calls its handler made: the runtime's own rules, with no
 * runtime.
 *
 * The four calls do not simply overwrite each other. In the order in which the runtime looks:
 *
 * 1. ackAll() and retryAll() exclude each other: the first one wins.
 * 2. ack() on a message is void after retry() on it, after retryAll() and after ackAll().
 * 3. retry() on a message is void after ack() on it and after ackAll(), and stands after retryAll().
 * 4. A later retry() on the same message replaces the delay of an earlier one, also by no delay; a later
 *    retryAll() without a delay keeps the earlier delay.
 * 5. A retried message waits for its own delay, else for that of retryAll(), else for the consumer's setting.
 * 6. What nobody named is acknowledged when the handler returns, and retried when it failed.
 */
export class Verdict {
  #ackAll = false;
  #retryAll = false;
  /** @type {number | undefined} */
  #retryAllDelayS;
  /** @type {Set<string>} */
  #acked = new Set();
  /** @type {Map<string, number | undefined>} */
  #retried = new Map();

  /** @param {string} id */
  ack(id) {
    if (!this.#ackAll && !this.#retryAll && !this.#retried.has(id)) this.#acked.add(id);
  }

  /**
   * @param {string} id
   * @param {number} [delayS]
   */
  retry(id, delayS) {
    if (!this.#ackAll && !this.#acked.has(id)) this.#retried.set(id, delayS);
  }

  ackAll() {
    if (!this.#retryAll) this.#ackAll = true;
  }

  /** @param {number} [delayS] */
  retryAll(delayS) {
    if (this.#ackAll) return;
    this.#retryAll = true;
    if (delayS !== undefined) this.#retryAllDelayS = delayS;
  }

  /**
   * The fate of one message of the batch.
   *
   * @param {string} id
   * @param {boolean} failed the handler threw, or one of its waitUntil() promises counted and was rejected
   * @returns {{ acked: boolean, explicit: boolean, delayS: number | undefined }} `explicit` distinguishes a call on
   *   the message or the batch from what the runtime did by itself; `delayS` is undefined when the consumer's
   *   own setting applies, which a Worker cannot see.
   */
  of(id, failed) {
    if (this.#retried.has(id)) {
      return { acked: false, explicit: true, delayS: this.#retried.get(id) ?? this.#retryAllDelayS };
    }
    if (this.#ackAll || this.#acked.has(id)) return { acked: true, explicit: true, delayS: undefined };
    if (this.#retryAll) return { acked: false, explicit: true, delayS: this.#retryAllDelayS };
    return { acked: !failed, explicit: false, delayS: undefined };
  }
}

/**
 * The delay of a retry call as the runtime reads it: a 32-bit integer, cut towards zero; what is no number
 * counts as 0. Call it only after the runtime accepted the call.
 *
 * @param {unknown} options the argument of retry() or retryAll()
 * @returns {number | undefined} seconds; undefined when the call named none
 */
export function delayOf(options) {
  if (options === null || (typeof options !== "object" && typeof options !== "function")) return undefined;
  const value = /** @type {{ delaySeconds?: unknown }} */ (options).delaySeconds;
  return value === undefined ? undefined : Number(value) | 0;
}
