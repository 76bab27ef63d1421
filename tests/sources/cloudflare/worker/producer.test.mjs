import assert from "node:assert/strict";
import { test } from "node:test";

import { watchProducers } from "../../../../sources/cloudflare/worker/producer.mjs";
import { Watcher } from "../../../../sources/cloudflare/worker/watcher.mjs";

/** @param {Watcher} watcher */
async function sent(watcher) {
  /** @type {any[]} */
  const events = [];
  await watcher.outbox.flush({ send: async (post) => (events.push(...post), { taken: true }) });
  return events.filter(({ type }) => type === "sent");
}

test("a message is reported as it was sent, whatever the application does with it meanwhile", async () => {
  const watcher = new Watcher({ producers: { OUT: "out" }, messageId: (body) => body.id });
  /** @type {(() => void)[]} */
  const answers = [];
  const answer = () => new Promise((resolve) => answers.push(() => resolve(undefined)));
  const bindings = { OUT: { send: answer, sendBatch: answer }, QUEUEWATCH_URL: "http://127.0.0.1:9400" };
  const env = watchProducers(watcher, bindings, () => {});
  const body = { id: "a" };
  const pending = [env.OUT.send(body)];
  body.id = "b";
  const messages = [{ body, delaySeconds: 5 }];
  pending.push(env.OUT.sendBatch(messages));
  body.id = "reused";
  messages.length = 0;
  for (const go of answers) go();
  await Promise.all(pending);
  assert.deepEqual(
    (await sent(watcher)).map((event) => event.message_id),
    ["a", "b"],
  );
});
