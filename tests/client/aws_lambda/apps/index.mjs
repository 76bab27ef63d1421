// The same function for Node.js; see app.py.

import { setTimeout as sleep } from "node:timers/promises";

class ChargeFailed extends Error {
  name = "ChargeFailed";
}

const failures = (ids, key = "itemIdentifier") => ({ batchItemFailures: ids.map((id) => ({ [key]: id })) });
const raise = (error) => {
  throw error;
};
const STRANGER = "11111111-2222-3333-4444-555555555555";

function behaviours(event, ids) {
  return {
    "returns nothing": () => undefined,
    "returns an object": () => ({ ok: true }),
    "returns a string": () => "done",
    "returns an empty object": () => ({}),
    "names none": () => failures([]),
    "names null": () => ({ batchItemFailures: null }),
    "names the first": () => failures([ids[0]]),
    "names the last": () => failures([ids.at(-1)]),
    "names all": () => failures(ids),
    "names one twice": () => failures([ids[1], ids[1]]),
    "names a stranger": () => failures([STRANGER]),
    "names a stranger beside one": () => failures([ids[0], STRANGER]),
    "names an empty id": () => failures([""]),
    "names a null id": () => failures([null]),
    "names a number": () => failures([7]),
    "wrong key": () => failures([ids[0]], "messageId"),
    "plain strings": () => ({ batchItemFailures: [ids[0]] }),
    "not a list": () => ({ batchItemFailures: "everything" }),
    raises: () => raise(new ChargeFailed("the card of Ada Lovelace was refused")),
    "raises without a message": () => raise(new RangeError()),
    "cannot be serialized": () => {
      const circle = {};
      circle.self = circle;
      return circle;
    },
    "too large": () => "x".repeat(6_300_000),
    "times out": () => sleep(60_000),
    "just in time": () => sleep(900),
    "fails just in time": async () => {
      await sleep(900);
      throw new ChargeFailed("late");
    },
    exits: () => process.exit(3),
    "is killed": () => process.kill(process.pid, "SIGKILL"),
    "empties the event": () => void event.Records.splice(0),
    "takes long": () => sleep(600),
  };
}

export async function handler(event) {
  const records = event.Records?.length ? event.Records : [{ body: "returns an object|0" }];
  const bodies = records.map((record) => record.body ?? "returns an object|0");
  const ids = records.map((record) => record.messageId);
  if (bodies[0].startsWith("stops at the first")) return failures(ids.slice(bodies.findIndex((body) => body.endsWith("|bad"))));
  if (bodies[0].startsWith("names bad ones")) return failures(ids.filter((_, i) => bodies[i].endsWith("|bad")));
  const result = await behaviours(event, ids)[bodies[0].split("|")[0]]();
  return result;
}

export const context_of = async (event, context) => ({ id: context.awsRequestId, name: context.functionName, event });

export const nothing = async () => {};

export const plain = (event) => failures([event.Records[0].messageId]);
