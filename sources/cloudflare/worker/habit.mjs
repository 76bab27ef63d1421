/** What a handler was seen to do, and when to stop saying so. No clock: times are passed in. */

/** A habit that was not seen for this long is withdrawn: an earlier deploy may have had it. */
const QUIET_MS = 60 * 60_000;
/**
 * A withdrawal counts from this long before it is made, so that it does not overrule another isolate that still
 * sees the habit: that one repeats it every five minutes, and the service keeps the latest. Less than the ten
 * minutes after which an event is late.
 */
export const WITHDRAWN_BEFORE_MS = 9 * 60_000;

/**
 * One habit of a queue's handler, as one isolate sees it. An isolate that never saw it withdraws it too: the one
 * that reported it may be gone, with the deploy that it ran.
 *
 * @template T
 */
export class Habit {
  /** @type {T | undefined} */
  #value;
  #quietSinceMs;

  /** @param {number} nowMs when the handler is watched for the first time */
  constructor(nowMs) {
    this.#quietSinceMs = nowMs;
  }

  /**
   * @param {T} value
   * @param {number} nowMs
   */
  see(value, nowMs) {
    this.#value = value;
    this.#quietSinceMs = nowMs;
  }

  /**
   * What to report; undefined: nothing. It ends early enough for a withdrawal, dated back, to be the latest report.
   *
   * @param {number} nowMs
   * @returns {T | undefined}
   */
  reported(nowMs) {
    return nowMs - this.#quietSinceMs < QUIET_MS - WITHDRAWN_BEFORE_MS ? this.#value : undefined;
  }

  /**
   * Whether to withdraw the habit now: true once after each hour in which it was not seen.
   *
   * @param {number} nowMs
   */
  takeWithdrawal(nowMs) {
    if (nowMs - this.#quietSinceMs < QUIET_MS) return false;
    this.#value = undefined;
    this.#quietSinceMs = nowMs;
    return true;
  }
}
