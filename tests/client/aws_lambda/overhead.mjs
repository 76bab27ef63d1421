// The Node.js half of overhead.py: prints the milliseconds of each call, bare and wrapped.

import http from "node:http";
import { pathToFileURL } from "node:url";

const { wrap } = await import(pathToFileURL(process.argv[2]).href);

const nothing = async () => {};
const wrapped = wrap(nothing);
const context = { awsRequestId: "5fea7756-0ea4-451a-a703-a558b933e274", getRemainingTimeInMillis: () => 30_000 };

function event(number) {
  const now = String(Date.now());
  const attributes = { ApproximateReceiveCount: "1", SentTimestamp: now, ApproximateFirstReceiveTimestamp: now };
  const record = { body: "x".repeat(500), attributes, eventSource: "aws:sqs", eventSourceARN: "arn:aws:sqs:eu-west-1:123456789012:orders" };
  return { Records: Array.from({ length: 10 }, (_, i) => ({ messageId: `${number}-0ea4-451a-a703-a558b933e27${i}`, ...record })) };
}

const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
const payload = `{"v":1,"type":"heartbeat","consumer":"${"x".repeat(130)}"}\n`.repeat(21);

function post() {
  return new Promise((resolve, reject) => {
    const headers = { "content-type": "application/x-ndjson", "content-length": payload.length };
    const request = http.request(process.env.QUEUEWATCH_TO, { method: "POST", agent, headers }, (answer) => {
      answer.resume();
      answer.on("end", resolve);
    });
    request.on("error", reject);
    request.end(payload);
  });
}

const found = { bare: [], wrapped: [], post: [], late: 0, cpu: 0 };
for (let i = 0; i < Number(process.env.CALLS); i++) {
  const given = event(i);
  const sent = performance.now();
  await post();
  found.post.push(performance.now() - sent);
  for (const [name, handler] of [["bare", nothing], ["wrapped", wrapped]]) {
    const cpu = process.cpuUsage();
    const began = performance.now();
    await handler(given, context);
    found[name].push(performance.now() - began);
    const { user, system } = process.cpuUsage(cpu);
    found.cpu += (user + system) / 1000;
  }
}
found.late = found.wrapped.filter((ms) => ms >= 50).length;
console.log(JSON.stringify(found));
agent.destroy();
