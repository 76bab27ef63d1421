// Sends reports from a function within a time limit; the rest is sent with the next invocation.

const LONGEST_QUIET_MS = 30_000;
const WARN_EVERY_MS = 60_000;
const ENCODED_AHEAD = 1_000;

/**
 * The platform freezes the process between invocations, even while it is sending. A payload is kept until its
 * delivery is confirmed, so it may arrive twice. A destination that keeps failing is tried less and less often.
 */
export class Carrier {
  #transport;
  #maxEvents;
  #log;
  #reports = []; // [count, function that creates the events]
  #lines = [];
  #events = 0;
  #dropped = 0; // since all were sent
  #sending;
  #misses = 0;
  #quietUntil = -Infinity;
  #warnedAt = -Infinity;

  constructor(transport, { maxEvents = 50_000, log = console.error } = {}) {
    this.#transport = transport;
    this.#maxEvents = maxEvents;
    this.#log = log;
  }

  /** Take `count` events, created by `report` later; beyond the limit the oldest reports are dropped. */
  offer(count, report) {
    this.#reports.push([count, report]);
    this.#events += count;
    const droppedBefore = this.#dropped;
    while (this.#events > this.#maxEvents && this.#reports.length > 1) {
      const [dropped] = this.#reports.shift();
      this.#events -= dropped;
      this.#dropped += dropped;
    }
    if (this.#dropped > 0 && droppedBefore === 0) {
      this.#log(`queuewatch: more than ${this.#maxEvents} events wait to be sent: the oldest are dropped`);
    }
  }

  /** Start sending without waiting; returns undefined if there is nothing to wait for. */
  start() {
    if (!this.#sending && this.#events > 0 && performance.now() >= this.#quietUntil) {
      this.#sending = this.#send().finally(() => (this.#sending = undefined));
    }
    return this.#sending;
  }

  /** Send pending reports; returns whether all were sent within `withinMs`. Sending continues while the process runs. */
  async deliver(withinMs) {
    const end = performance.now() + withinMs;
    while (this.#events > 0) {
      const sending = this.start();
      const left = end - performance.now();
      if (!sending || performance.now() < this.#quietUntil) break;
      if (left <= 0 || !(await within(sending, left))) {
        this.#missed();
        break;
      }
      if (this.#misses > 0) break;
    }
    return this.#events === 0;
  }

  // Back off from the second failure on, twice as long each time.
  #missed() {
    this.#misses += 1;
    if (this.#misses >= 2) {
      this.#quietUntil = performance.now() + Math.min(LONGEST_QUIET_MS, 1000 * 2 ** Math.min(this.#misses - 2, 10));
    }
  }

  async #send() {
    try {
      while (this.#events > 0) {
        this.#encode();
        if (this.#lines.length === 0) break;
        await this.#sendPayload();
      }
      this.#misses = 0;
      this.#quietUntil = -Infinity;
      const dropped = this.#dropped;
      this.#dropped = 0;
      if (dropped > 0) this.#log(`queuewatch: telemetry is sent again; ${dropped} events were dropped meanwhile`);
    } catch (error) {
      this.#missed();
      this.#warn(error);
    }
  }

  #encode() {
    while (this.#lines.length < ENCODED_AHEAD && this.#reports.length > 0) {
      const [count, report] = this.#reports.shift();
      let made = [];
      try {
        made = report().map((event) => Buffer.from(`${JSON.stringify(event)}\n`));
      } catch (error) {
        this.#warn(error);
      }
      for (const line of made) this.#lines.push(line);
      this.#events += made.length - count;
    }
  }

  async #sendPayload() {
    let size = 0;
    let taken = 0;
    for (const line of this.#lines) {
      if (taken > 0 && size + line.length > this.#transport.maxBytes) break;
      size += line.length;
      taken += 1;
    }
    for (;;) {
      try {
        await this.#transport.send(Buffer.concat(this.#lines.slice(0, taken)));
        this.#forget(taken);
        return;
      } catch (error) {
        if (error.tooLarge && taken > 1) {
          taken = Math.floor(taken / 2);
          continue;
        }
        if (error.retry !== false) throw error;
        this.#warn(error);
        this.#forget(taken);
        return;
      }
    }
  }

  #forget(taken) {
    this.#lines.splice(0, taken);
    this.#events -= taken;
  }

  #warn(error) {
    const now = performance.now();
    if (now - this.#warnedAt < WARN_EVERY_MS) return;
    this.#warnedAt = now;
    this.#log(`queuewatch: telemetry is not sent: ${error.message}`);
  }
}

async function within(promise, ms) {
  let timer;
  const late = new Promise((resolve) => (timer = setTimeout(resolve, ms, false)));
  try {
    return await Promise.race([promise.then(() => true), late]);
  } finally {
    clearTimeout(timer);
  }
}
