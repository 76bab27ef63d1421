/**
 * Where events go, from a Worker's bindings:
 *
 * - QUEUEWATCH_QUEUE, a Queue binding: one text message per parcel, drained by the collector;
 * - QUEUEWATCH_URL, the service's base address: posted to `/api/v1/events`, with QUEUEWATCH_TOKEN as bearer
 *   token when there is one, through the service binding QUEUEWATCH_SERVICE when there is one;
 * - nothing of this, or QUEUEWATCH_OFF set: no target, and the Worker is left alone.
 */

/** @typedef {import("./outbox.mjs").Event} Event */
/** @typedef {import("./outbox.mjs").Answer} Answer */
/** @typedef {import("./outbox.mjs").Target} Target */

const EVENTS_PATH = "/api/v1/events";
/** A queue takes 128 kB per message, its own metadata included. */
const MAX_MESSAGE_BYTES = 100_000;
const OFF = new Set(["1", "true", "yes", "on"]);
/** Answers by which the other side says that these very events cannot be taken. */
const REFUSED = new Set([400, 413, 415, 422]);

/**
 * @param {Record<string, any> | undefined} env
 * @param {number} timeoutMs how long one post may take
 * @returns {Target | undefined}
 */
export function targetFrom(env, timeoutMs) {
  if (!env || OFF.has(String(env.QUEUEWATCH_OFF ?? "").toLowerCase())) return undefined;
  const queue = env.QUEUEWATCH_QUEUE;
  if (queue && typeof queue.send === "function") return { send: (events) => sendToQueue(queue, events) };
  const url = env.QUEUEWATCH_URL;
  if (typeof url !== "string" || url === "") return undefined;
  const request = {
    url: eventsUrl(url),
    token: env.QUEUEWATCH_TOKEN,
    service: env.QUEUEWATCH_SERVICE,
    timeoutMs,
  };
  return { send: (events) => post(request, events) };
}

/** @param {string} base */
function eventsUrl(base) {
  const trimmed = base.replace(/\/+$/, "");
  return trimmed.endsWith(EVENTS_PATH) ? trimmed : trimmed + EVENTS_PATH;
}

/**
 * @param {{ url: string, token: unknown, service: any, timeoutMs: number }} request
 * @param {Event[]} events
 * @returns {Promise<Answer>}
 */
async function post({ url, token, service, timeoutMs }, events) {
  /** @type {Record<string, string>} */
  const headers = { "content-type": "application/json" };
  const bearer = typeof token === "string" ? token.trim() : "";
  // The error of fetch() may show it.
  if (/[^\x20-\x7e]/.test(bearer)) {
    const why = "QUEUEWATCH_TOKEN contains characters that are not allowed in a header";
    return { taken: false, again: true, why };
  }
  if (bearer !== "") headers.authorization = `Bearer ${bearer}`;
  const init = {
    method: "POST",
    headers,
    body: JSON.stringify(events),
    // A redirect would carry the token to wherever it points.
    redirect: /** @type {const} */ ("manual"),
    signal: AbortSignal.timeout(timeoutMs),
  };
  const response = await (service ? service.fetch(url, init) : fetch(url, init));
  // An unread body holds one of the few connections an invocation may have. The status has already said what
  // happened to the events, whatever becomes of the body.
  await response.body?.cancel().catch(() => {});
  if (response.ok) return { taken: true };
  const why = `the service answered ${response.status}`;
  if (REFUSED.has(response.status)) return { taken: false, again: false, why };
  const seconds = Number(response.headers.get("retry-after"));
  return { taken: false, again: true, pauseMs: seconds > 0 ? seconds * 1000 : undefined, why };
}

/**
 * @param {{ send(body: string, options: { contentType: "text" }): Promise<unknown> }} queue
 * @param {Event[]} events
 * @returns {Promise<Answer>}
 */
async function sendToQueue(queue, events) {
  for (const text of textsOf(events)) await queue.send(text, { contentType: "text" });
  return { taken: true };
}

/**
 * JSON arrays that each fit one queue message.
 *
 * @param {Event[]} events
 * @returns {string[]}
 */
export function textsOf(events) {
  const encoder = new TextEncoder();
  const texts = [];
  /** @type {string[]} */
  let pieces = [];
  let bytes = 0;
  for (const event of events) {
    const piece = JSON.stringify(event);
    const size = encoder.encode(piece).length + 1;
    if (pieces.length > 0 && bytes + size > MAX_MESSAGE_BYTES) {
      texts.push(`[${pieces.join(",")}]`);
      pieces = [];
      bytes = 0;
    }
    pieces.push(piece);
    bytes += size;
  }
  if (pieces.length > 0) texts.push(`[${pieces.join(",")}]`);
  return texts;
}
