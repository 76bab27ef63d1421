import assert from "node:assert/strict";
import { mock, test } from "node:test";

import { targetFrom } from "../../../../sources/cloudflare/worker/target.mjs";

/** @param {any} env @param {(url: string, init: any) => Promise<Response>} fetch */
const target = (env, fetch) =>
  targetFrom({ QUEUEWATCH_URL: "https://queuewatch.example.org", QUEUEWATCH_SERVICE: { fetch }, ...env }, 1_000);

test("an answer says what the service answered", async () => {
  const answers = [202, 400, 401, 503];
  const found = [];
  for (const status of answers) {
    const { send } = target({}, async () => new Response("", { status }));
    found.push(await send([{}]));
  }
  assert.deepEqual(
    found.map((answer) => answer.why),
    [undefined, "the service answered 400", "the service answered 401", "the service answered 503"],
  );
});

test("a token that no header can hold is named, and not shown", async () => {
  const fetch = mock.fn(async () => new Response(""));
  for (const token of ["half\nhush", "h\u00fcsh"]) {
    const answer = await target({ QUEUEWATCH_TOKEN: token }, fetch).send([{}]);
    assert.equal(answer.taken, false);
    assert.match(answer.why, /^QUEUEWATCH_TOKEN contains characters/);
  }
  assert.equal(fetch.mock.callCount(), 0);
  await target({ QUEUEWATCH_TOKEN: " hush\n" }, fetch).send([{}]);
  assert.equal(fetch.mock.calls[0].arguments[1].headers.authorization, "Bearer hush");
});

test("events that were taken are not sent again because of the rest of the answer", async () => {
  const cancel = () => Promise.reject(new Error("Network connection lost."));
  const { send } = target({}, async () => new Response(new ReadableStream({ cancel }), { status: 202 }));
  assert.deepEqual(await send([{}]), { taken: true });
});
