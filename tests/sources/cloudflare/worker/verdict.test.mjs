import assert from "node:assert/strict";
import { test } from "node:test";

import { Verdict, delayOf } from "../../../../sources/cloudflare/worker/verdict.mjs";

/** Calls in order, then the fate of `m` when the handler returned, and when it failed. */
const RULES = [
  ["nobody named it", [], "acked", "retried"],
  ["acked", [["ack", "m"]], "acked", "acked"],
  [
    "the first of ack and retry stands: ack",
    [
      ["ack", "m"],
      ["retry", "m"],
    ],
    "acked",
    "acked",
  ],
  [
    "the first of ack and retry stands: retry",
    [
      ["retry", "m", 5],
      ["ack", "m"],
    ],
    "retried 5",
    "retried 5",
  ],
  [
    "the last delay stands",
    [
      ["retry", "m", 5],
      ["retry", "m", 9],
    ],
    "retried 9",
    "retried 9",
  ],
  [
    "also when it is none",
    [
      ["retry", "m", 5],
      ["retry", "m"],
    ],
    "retried",
    "retried",
  ],
  ["another was retried", [["retry", "other", 5]], "acked", "retried"],
  ["ackAll", [["ackAll"]], "acked", "acked"],
  ["retry before ackAll stands", [["retry", "m", 1], ["ackAll"]], "retried 1", "retried 1"],
  ["retry after ackAll is void", [["ackAll"], ["retry", "m", 1]], "acked", "acked"],
  ["retryAll after ackAll is void", [["ackAll"], ["retryAll", 1]], "acked", "acked"],
  ["ackAll after retryAll is void", [["retryAll"], ["ackAll"]], "retried", "retried"],
  [
    "ack after retryAll is void",
    [
      ["retryAll", 2],
      ["ack", "m"],
    ],
    "retried 2",
    "retried 2",
  ],
  [
    "ack before retryAll stands",
    [
      ["ack", "m"],
      ["retryAll", 2],
    ],
    "acked",
    "acked",
  ],
  [
    "own delay beats retryAll's, given after",
    [
      ["retryAll", 2],
      ["retry", "m", 7],
    ],
    "retried 7",
    "retried 7",
  ],
  [
    "own delay beats retryAll's, given before",
    [
      ["retry", "m", 7],
      ["retryAll", 2],
    ],
    "retried 7",
    "retried 7",
  ],
  [
    "own delay 0 beats retryAll's",
    [
      ["retry", "m", 0],
      ["retryAll", 2],
    ],
    "retried 0",
    "retried 0",
  ],
  [
    "without an own delay retryAll's counts",
    [
      ["retry", "m"],
      ["retryAll", 2],
    ],
    "retried 2",
    "retried 2",
  ],
  ["retryAll keeps an earlier delay", [["retryAll", 2], ["retryAll"]], "retried 2", "retried 2"],
  [
    "retryAll replaces an earlier delay",
    [
      ["retryAll", 2],
      ["retryAll", 0],
    ],
    "retried 0",
    "retried 0",
  ],
];

for (const [why, calls, returned, failed] of RULES) {
  test(why, () => {
    const verdict = new Verdict();
    for (const [name, ...args] of calls) verdict[name](...args);
    const fate = (hasFailed) => {
      const { acked, delayS } = verdict.of("m", hasFailed);
      return acked ? "acked" : delayS === undefined ? "retried" : `retried ${delayS}`;
    };
    assert.equal(fate(false), returned);
    assert.equal(fate(true), failed);
  });
}

test("a delay is read as the runtime reads it", () => {
  const cases = [
    [undefined, undefined],
    [null, undefined],
    [{}, undefined],
    [{ delaySeconds: undefined }, undefined],
    [{ delaySeconds: 5 }, 5],
    [{ delaySeconds: 0 }, 0],
    [{ delaySeconds: null }, 0],
    [{ delaySeconds: "7" }, 7],
    [{ delaySeconds: 1.9 }, 1],
    [{ delaySeconds: -1.9 }, -1],
    [{ delaySeconds: "soon" }, 0],
    [{ delaySeconds: Infinity }, 0],
    [{ delaySeconds: true }, 1],
    [Object.create({ delaySeconds: 3 }), 3],
  ];
  for (const [options, expected] of cases)
    assert.equal(delayOf(options), expected, String(options?.delaySeconds));
});
