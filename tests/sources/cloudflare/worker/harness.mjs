/** What the scripts beside this one share: Workers in miniflare, and a receiver of their telemetry. */

import { readFileSync, readdirSync } from "node:fs";
import { createServer } from "node:http";
import { Writable } from "node:stream";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { Log, LogLevel, Miniflare } from "miniflare";

const HERE = dirname(fileURLToPath(import.meta.url));
const PUBLISHED = join(HERE, "../../../../sources/cloudflare/worker");

export const FLAG = "queue_consumer_no_wait_for_wait_until";
export const SYSTEM_DATE = "2026-04-01";

const devNull = () => new Writable({ write: (chunk, encoding, done) => done() });

/** A miniflare of these Workers. Warnings of the runtime about calls that have no effect are not shown. */
export function start(workers) {
  return new Miniflare({
    cf: false,
    log: new Log(LogLevel.NONE),
    handleRuntimeStdio: (stdout, stderr) => {
      stdout.resume();
      stderr.pipe(process.env.SHOW_RUNTIME ? process.stderr : devNull());
    },
    workers,
  });
}

/**
 * The modules of a Worker: its own files, the module under test in `queuewatch/`, and generated ones.
 *
 * @param {string[]} files beside this script, the entry first
 * @param {Record<string, string>} generated name -> source
 */
export function modules(files, generated = {}) {
  const module = (path, contents) => ({ type: "ESModule", path: join("/", path), contents });
  return {
    modulesRoot: "/",
    modules: [
      ...files.map((name) => module(name, readFileSync(join(HERE, name), "utf8"))),
      ...Object.entries(generated).map(([name, contents]) => module(name, contents)),
      ...readdirSync(PUBLISHED)
        .filter((name) => name.endsWith(".mjs"))
        .map((name) => module(join("queuewatch", name), readFileSync(join(PUBLISHED, name), "utf8"))),
    ],
  };
}

/**
 * An HTTP server on a free port of the loopback interface. `answer(request, response, body)` sees each
 * request; the default keeps events and answers 202.
 */
export async function receiver(answer) {
  const events = [];
  const requests = [];
  const server = createServer((request, response) => {
    let body = "";
    request.on("data", (chunk) => (body += chunk));
    request.on("end", () => {
      requests.push({ method: request.method, path: request.url, headers: request.headers });
      if (answer) return answer(request, response, body);
      events.push(...JSON.parse(body));
      response.writeHead(202).end();
    });
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    url: `http://127.0.0.1:${server.address().port}`,
    events,
    requests,
    async close() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Wait until `ready()` is true. @returns whether it became so */
export async function until(ready, withinMs = 5_000) {
  const deadline = Date.now() + withinMs;
  while (Date.now() < deadline) {
    if (await ready()) return true;
    await sleep(20);
  }
  return false;
}

export function quantile(values, share) {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))];
}
