/**
 * Events on their way out of one isolate: bounded, and never in anybody's way.
 *
 * It holds plain data only, as an isolate serves many invocations and what belongs to one (a promise, a
 * response) must not be touched from another. An invocation may end while its post is under way, and then
 * nobody learns what became of it: such events are taken back after a while and sent once more. A reader must
 * expect an event twice.
 */

/** At most this many events leave in one post: about 150 kB of JSON. */
export const MAX_EVENTS_PER_POST = 600;

const FIRST_PAUSE_MS = 1_000;
const LONGEST_PAUSE_MS = 60_000;
const WARN_EVERY_MS = 60_000;

/**
 * @typedef {Record<string, unknown>} Event
 * @typedef {{ unsure: Event[], fresh: Event[], sinceMs: number }} Parcel `unsure` ones are in their second
 *   post
 * @typedef {{ taken: true } | { taken: false, again: boolean, pauseMs?: number, why?: string }} Answer
 *   `again: false` means the other side read the events and will never take them
 * @typedef {{ send(events: Event[]): Promise<Answer> }} Target
 */

export class Outbox {
  /** @type {Event[]} */
  #waiting = [];
  /** Events whose first post was never answered. @type {Event[]} */
  #unsure = [];
  /** @type {Set<Parcel>} */
  #underWay = new Set();
  #failures = 0;
  #notBeforeMs = 0;
  #dropped = 0;
  #warnedMs = -Infinity;
  #maxEvents;
  #lostAfterMs;
  #warn;

  /**
   * @param {{ maxEvents: number, lostAfterMs: number, warn?: (text: string) => void }} options `lostAfterMs` is
   *   how long a post may stay unanswered before its events are sent again
   */
  constructor({ maxEvents, lostAfterMs, warn = (text) => console.warn(text) }) {
    this.#maxEvents = maxEvents;
    this.#lostAfterMs = lostAfterMs;
    this.#warn = warn;
  }

  /** Events given up since the last call: the outbox was full, or the other side refused them. */
  takeDropped() {
    const dropped = this.#dropped;
    this.#dropped = 0;
    return dropped;
  }

  /** How many events wait or are under way. */
  get size() {
    let size = this.#waiting.length + this.#unsure.length;
    for (const parcel of this.#underWay) size += parcel.unsure.length + parcel.fresh.length;
    return size;
  }

  /** @param {Event[]} events */
  add(events) {
    for (const event of events) this.#waiting.push(event);
    this.#trim();
  }

  /**
   * Send what waits, oldest first. Resolves when there is nothing left to do now; never rejects.
   *
   * @param {Target} target
   */
  async flush(target) {
    this.#takeBackLost(Date.now());
    while (this.#unsure.length + this.#waiting.length > 0 && Date.now() >= this.#notBeforeMs) {
      const unsure = this.#unsure.splice(0, MAX_EVENTS_PER_POST / 2);
      const fresh = this.#waiting.splice(0, MAX_EVENTS_PER_POST - unsure.length);
      const parcel = { unsure, fresh, sinceMs: Date.now() };
      const events = [...unsure, ...fresh];
      this.#underWay.add(parcel);
      const answer = await attempt(target, events);
      // Given up meanwhile: whatever the answer is, another post carries these events now.
      if (!this.#underWay.delete(parcel)) return;
      if (!answer.taken) this.#say(answer.why ?? "no answer");
      if (answer.taken) {
        this.#failures = 0;
      } else if (answer.again) {
        this.#waiting.unshift(...events);
        this.#trim();
        this.#pause(answer.pauseMs);
        return;
      } else {
        this.#drop(events);
      }
    }
  }

  /** @param {number | undefined} askedForMs */
  #pause(askedForMs) {
    const grown = FIRST_PAUSE_MS * 2 ** Math.min(this.#failures, 10);
    this.#failures += 1;
    this.#notBeforeMs = Date.now() + Math.min(Math.max(grown, askedForMs ?? 0), LONGEST_PAUSE_MS);
  }

  /**
   * Log why nothing arrives: nobody else can, and a wrong token stays wrong.
   *
   * @param {string} why
   */
  #say(why) {
    const nowMs = Date.now();
    if (nowMs - this.#warnedMs < WARN_EVERY_MS) return;
    this.#warnedMs = nowMs;
    try {
      this.#warn(`queuewatch: telemetry is not sent: ${why}`);
    } catch {
      // The console may be the application's own.
    }
  }

  /** @param {number} nowMs */
  #takeBackLost(nowMs) {
    for (const parcel of this.#underWay) {
      if (nowMs - parcel.sinceMs < this.#lostAfterMs) continue;
      this.#underWay.delete(parcel);
      // Only once more: a handler that is always done before its telemetry is answered would send it for
      // ever.
      this.#unsure.push(...parcel.fresh);
    }
    this.#trim();
  }

  /** The oldest go first: what happens now matters more than what happened. */
  #trim() {
    // What was posted and never answered is not known to be lost, and not counted as dropped.
    for (const parcel of this.#underWay) {
      if (this.size <= 3 * this.#maxEvents) break;
      this.#underWay.delete(parcel);
    }
    this.#unsure.splice(0, Math.max(0, this.#unsure.length - this.#maxEvents));
    const excess = this.#waiting.length - this.#maxEvents;
    if (excess <= 0) return;
    this.#drop(this.#waiting.splice(0, excess));
  }

  /**
   * Count events that are given up, and those that they would have reported as given up.
   *
   * @param {Event[]} events
   */
  #drop(events) {
    for (const { attributes } of events) {
      const { telemetry_dropped = 0 } = /** @type {{ telemetry_dropped?: number }} */ (attributes ?? {});
      this.#dropped += 1 + telemetry_dropped;
    }
  }
}

/**
 * @param {Target} target
 * @param {Event[]} events
 * @returns {Promise<Answer>}
 */
async function attempt(target, events) {
  try {
    return await target.send(events);
  } catch (error) {
    return { taken: false, again: true, why: error instanceof Error ? error.message : undefined };
  }
}
