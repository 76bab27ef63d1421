/**
 * Queue bindings that report what is sent through them. A binding gives no message id, so a `sent` event is
 * written only where the application has an id of its own (option `messageId`); with option `backlog` the
 * answer's backlog is reported.
 */

import { about } from "./report.mjs";
import { delayOf } from "./verdict.mjs";

/** @typedef {import("./watcher.mjs").Watcher} Watcher */
/** @typedef {WeakMap<object, { env: Record<string, any>, onReport: () => void }>} Known */

/**
 * The environment with the producers of the options watched; the same object when there is nothing to watch.
 *
 * @template {Record<string, any>} Env
 * @param {Watcher} watcher
 * @param {Env} env
 * @param {() => void} onReport called when there is something to flush; of several calls with one `env`, that
 *     of the latest: the runtime's waitUntil() extends whichever invocation calls it
 * @param {Known} [known] what was made of each `env` before; the handler gets the same again, as it may keep
 *     something for it
 * @returns {Env}
 */
export function watchProducers(watcher, env, onReport, known = new WeakMap()) {
  try {
    const names = Object.keys(watcher.settings.producers).filter(
      (name) => typeof env?.[name]?.send === "function",
    );
    if (names.length === 0 || watcher.target(env) === undefined) return env;
    const before = known.get(env);
    if (before !== undefined) {
      before.onReport = onReport;
      return /** @type {Env} */ (before.env);
    }
    /** @type {{ env: Record<string, any>, onReport: () => void }} */
    const made = { env: { ...env }, onReport };
    for (const name of names) {
      const queue = watcher.settings.producers[name];
      made.env[name] = watchQueue(watcher, env[name], queue, () => made.onReport());
    }
    known.set(env, made);
    return /** @type {Env} */ (made.env);
  } catch {
    return env;
  }
}

/**
 * @param {Watcher} watcher
 * @param {any} queue the binding
 * @param {string} name of the queue
 * @param {() => void} onReport
 */
function watchQueue(watcher, queue, name, onReport) {
  // Ids and delays are read when the runtime has taken the messages: until it answers, the application may
  // change them.
  /** @param {any} body @param {number | undefined} delayS */
  const taken = (body, delayS) => ({ id: watcher.messageIdOf(() => body), delayS });
  /** @param {Promise<any>} answer @param {ReturnType<typeof taken>[]} messages */
  const note = (answer, messages) => {
    Promise.resolve(answer)
      .then((result) => {
        watcher.noteBacklog(name, result?.metadata?.metrics);
        const events = sentEvents(watcher, name, messages, Date.now());
        events.push(...watcher.stateEvents(name));
        if (events.length === 0) return;
        watcher.outbox.add(events);
        onReport();
      })
      .catch(() => {});
    return answer;
  };
  const methods = {
    send: (/** @type {any[]} */ ...args) =>
      note(queue.send(...args), [taken(args[0], safeDelay(args[1]))]),
    sendBatch: (/** @type {any[]} */ ...args) => {
      /** @type {any[]} */
      const passed = [];
      const [messages, ...rest] = args;
      const answer = queue.sendBatch(args.length === 0 ? messages : recording(messages, passed), ...rest);
      const forAll = safeDelay(rest[0]);
      // The runtime has read the messages by the time it returns; their delays are read once it has accepted
      // them.
      return note(
        answer,
        passed.map((message) => taken(message?.body, safeDelay(message) ?? forAll)),
      );
    },
  };
  return new Proxy(queue, {
    get(target, key) {
      if (key === "send" || key === "sendBatch") return methods[key];
      const value = Reflect.get(target, key, target);
      return typeof value === "function" ? value.bind(target) : value;
    },
  });
}

/**
 * @param {Watcher} watcher
 * @param {string} queue
 * @param {{ id: string | undefined, delayS: number | undefined }[]} messages
 * @param {number} atMs
 */
function sentEvents(watcher, queue, messages, atMs) {
  /** @type {import("./outbox.mjs").Event[]} */
  const events = [];
  for (const { id, delayS } of messages) {
    if (id === undefined) continue;
    /** @type {import("./outbox.mjs").Event} */
    const event = { ...about(watcher.subject(queue), "sent", atMs), message_id: id, sent_at: atMs };
    // Zero too, for the queue may have a delay of its own.
    if (delayS !== undefined && delayS >= 0) event.visible_at = atMs + delayS * 1000;
    events.push(event);
  }
  return events;
}

/**
 * The same messages, each noted as it is taken: an iterable may be readable only once.
 *
 * @param {any} messages
 * @param {any[]} passed
 */
function recording(messages, passed) {
  if (Array.isArray(messages)) {
    passed.push(...messages);
    return messages;
  }
  if (typeof messages?.[Symbol.iterator] !== "function") return messages;
  return {
    *[Symbol.iterator]() {
      for (const message of messages) {
        passed.push(message);
        yield message;
      }
    },
  };
}

/** @param {unknown} options */
function safeDelay(options) {
  try {
    return delayOf(options);
  } catch {
    return undefined;
  }
}
