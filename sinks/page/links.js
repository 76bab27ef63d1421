// URLs of the views.

/** The URL of a queue's page; `more` may name a message, group or consumer to show. */
export function queueHash({ system, scope, queue }, more = {}) {
  const query = new URLSearchParams({ system, scope, queue });
  for (const [key, value] of Object.entries(more)) if (value) query.set(key, value);
  return `#/queue?${query}`;
}

/** A text that identifies a queue. */
export function queueKey({ system, scope, queue }) {
  return JSON.stringify([system, scope, queue]);
}
