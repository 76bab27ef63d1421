import assert from "node:assert/strict";
import { test } from "node:test";

import { Watcher } from "../../../../sources/cloudflare/worker/watcher.mjs";

/** What JSON.stringify makes of half a surrogate pair: the service refuses the event as text that is not UTF-8. */
const HALF_A_PAIR = /\\ud[89a-f]/;

test("an error's text is cut between characters, not inside one", () => {
  const watcher = new Watcher({ errorMessages: true });
  for (const before of [170, 171, 172, 173, 174, 175, 176]) {
    const reason = watcher.reasonOf("exception", new Error("x".repeat(before) + "🔥".repeat(20)));
    assert.doesNotMatch(JSON.stringify(reason), HALF_A_PAIR, `after ${before} characters`);
    assert.match(reason, /x🔥/u);
  }
});

test("half a character in an error's text is replaced", () => {
  const watcher = new Watcher({ errorMessages: true });
  assert.equal(watcher.reasonOf("exception", new Error("cut \ud83d")), "exception: Error: cut \ufffd");
});

test("an application's id with half a character is not used", () => {
  const watcher = new Watcher({ messageId: (body) => body.id });
  assert.equal(watcher.messageIdOf(() => ({ id: "order 🔥" })), "order 🔥");
  assert.equal(watcher.messageIdOf(() => ({ id: "order \ud83d" })), undefined);
});
