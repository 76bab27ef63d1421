// How a handler answers the runtimes up to Node.js 22: through the callback, the context or a promise.

import { RETURNED, failed } from "./outcome.mjs";

// Where these runtimes keep what they do when the event loop is empty.
const WHEN_EMPTY = Symbol.for("aws.lambda.beforeExit");

const isError = (error) => error !== undefined && error !== null;

/** The first answer of a handler ends the invocation, and is then passed on to the runtime, which ignores all others. */
export class Answer {
  #invocation;
  #context;
  #given; // settles when the first answer has been passed on
  #passedOn = false;

  /** Replaces `succeed`, `fail` and `done` of the context; `callback` is for the handler. */
  constructor(invocation, context, callback) {
    this.#invocation = invocation;
    this.#context = context;
    this.callback = (error, result) => {
      if (isError(error)) void this.fail(error, () => callback(error, result));
      else if (context?.callbackWaitsForEmptyEventLoop) this.#succeedWhenEmpty(result, () => callback(error, result));
      else void this.succeed(result, () => callback(error, result));
    };
    this.#replace("succeed", (passOn, result) => this.succeed(result, passOn));
    this.#replace("fail", (passOn, error) => this.fail(error, passOn));
    this.#replace("done", (passOn, error, result) => (isError(error) ? this.fail(error, passOn) : this.succeed(result, passOn)));
  }

  succeed(result, passOn) {
    return this.#give(() => this.#invocation.endWith(result), passOn);
  }

  fail(error, passOn) {
    return this.#give(() => this.#invocation.end(failed(error)), passOn);
  }

  /** The handler returned no promise: unless it answers later, the runtime responds with null once the event loop is empty. */
  awaitEmptyLoop() {
    if (!this.#given) whenEmpty(() => this.#invocation.end(RETURNED));
  }

  #succeedWhenEmpty(result, passOn) {
    if (this.#given) return;
    this.#given = Promise.resolve();
    this.#passedOn = true;
    passOn();
    whenEmpty(() => this.#invocation.endWith(result));
  }

  // After the first answer, calls come from the runtime too: it answers with the result of the handler's promise.
  #give(end, passOn) {
    if (this.#passedOn) return passOn?.();
    this.#given ??= end().then(() => {
      this.#passedOn = true;
      passOn?.();
    });
    return this.#given;
  }

  #replace(name, answer) {
    const original = this.#context?.[name];
    if (typeof original !== "function") return;
    Reflect.set(this.#context, name, (...args) => void answer(() => original(...args), ...args));
  }
}

/** Run `action` when the event loop is empty, and then what the runtime does at that time. */
function whenEmpty(action) {
  const next = globalThis[WHEN_EMPTY];
  globalThis[WHEN_EMPTY] = () => void action().then(next);
}
