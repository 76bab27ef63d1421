// Transports for a function: one keep-alive connection, and no SDK import at a cold start.

import { createHash, createHmac } from "node:crypto";
import { readFileSync } from "node:fs";
import http from "node:http";
import https from "node:https";

// About the payload itself. All others are retried: even a wrong token or path may be corrected meanwhile.
const NEVER_RETRIED = new Set([400, 413, 415, 422]);
const REGION_IN_URL =
  /^https?:\/\/(?:(?:[^/]*\.)?sqs(?:-fips)?\.([a-z]{2,4}(?:-[a-z0-9]+)+-\d+)\.|([a-z]{2,4}(?:-[a-z0-9]+)+-\d+)\.queue\.)/;
// The domains of AWS' partitions by the beginning of their regions' names; of all others it is amazonaws.com.
const DOMAINS = {
  "cn-": "amazonaws.com.cn",
  "eusc-": "amazonaws.eu",
  "us-iso-": "c2s.ic.gov",
  "us-isob-": "sc2s.sgov.gov",
  "us-isof-": "csp.hci.ic.gov",
  "eu-isoe-": "cloud.adc-e.uk",
};
const TIMEOUT_MS = 2000; // for one request; the invocation waits much less
const MAX_ANSWER_BYTES = 65_536; // both destinations answer with less; of another's body, only the start is read
const MAX_SHOWN = 300;

// OpenSSL's words for an answer that is not TLS; which of them depends on its release.
const NO_TLS = /wrong version number|record layer failure|packet length too long/i;
const HTTP_FIX = "this port does not speak TLS: use http:// instead of https://, or correct the port";

export class SendError extends Error {
  constructor(message, { retry, tooLarge = false }) {
    super(message);
    this.retry = retry;
    this.tooLarge = tooLarge;
  }
}

/** Returns the transport for a value of QUEUEWATCH_TO; throws if it is invalid. */
export function transportFor(to, environment = process.env) {
  if (/^https?:\/\//.test(to)) return new HttpPoster(to, environment);
  if (to.startsWith("sqs:")) return new QueuePoster(to, environment);
  throw new Error("a function sends to http(s)://host:9400/api/v1/events or to sqs:<queue>");
}

class Connection {
  #client;
  #options;

  constructor(url) {
    this.#client = url.protocol === "https:" ? https : http;
    const agent = new this.#client.Agent({ keepAlive: true, maxSockets: 1 });
    this.#options = { protocol: url.protocol, hostname: url.hostname.replace(/^\[|\]$/g, ""), port: url.port, path: url.pathname + url.search, method: "POST", agent };
  }

  async post(payload, headers) {
    try {
      return await this.#post(payload, headers);
    } catch (error) {
      // The other side may have closed an idle connection: try a new one. Events that arrive twice are counted once.
      if (!error.reusedSocket) throw error;
      return this.#post(payload, headers);
    }
  }

  #post(payload, headers) {
    return new Promise((resolve, reject) => {
      let answered; // the status has already said what happened to the events, whatever becomes of the body
      const options = { ...this.#options, headers: { ...headers, "Content-Length": payload.length } };
      const request = this.#client.request(options, (answer) => {
        const parts = [];
        let size = 0;
        const done = (answered = () => resolve({ status: answer.statusCode, body: Buffer.concat(parts) }));
        answer.on("data", (part) => {
          parts.push(part);
          size += part.length;
          if (size <= MAX_ANSWER_BYTES) return;
          done();
          request.destroy();
        });
        answer.on("error", done);
        answer.on("end", done);
      });
      const timer = setTimeout(() => request.destroy(new Error("no answer in time")), TIMEOUT_MS);
      timer.unref();
      // A callback-style function ends when the event loop is empty; telemetry must not keep it running.
      request.on("socket", (socket) => socket.unref?.());
      request.on("error", (error) => (answered ? answered() : reject(Object.assign(error, { reusedSocket: request.reusedSocket }))));
      request.on("close", () => clearTimeout(timer));
      request.end(payload);
    });
  }
}

async function post(name, connection, payload, headers) {
  try {
    return await connection.post(payload, headers);
  } catch (error) {
    if (NO_TLS.test(error.message)) throw new SendError(`${name}: ${HTTP_FIX}`, { retry: true });
    throw new SendError(`${name} does not answer: ${error.code ?? error.message}`, { retry: true });
  }
}

export class HttpPoster {
  maxBytes = 1_000_000;

  constructor(to, environment) {
    const url = new URL(to);
    if (url.username || url.password) throw new Error("a password does not belong in the URL; set QUEUEWATCH_TOKEN instead");
    if (url.pathname === "/") url.pathname = "/api/v1/events";
    this.name = url.origin + url.pathname; // shown, and a query may hold a secret
    this.environment = environment;
    this.connection = new Connection(url);
  }

  async send(payload) {
    const headers = { "Content-Type": "application/x-ndjson", "User-Agent": "queuewatch" };
    const token = this.#token();
    if (token && /[^\x20-\x7e]/.test(token)) {
      throw new SendError("QUEUEWATCH_TOKEN contains characters that are not allowed in a header", { retry: true });
    }
    if (token) headers.Authorization = `Bearer ${token}`;
    const { status, body } = await post(this.name, this.connection, payload, headers);
    if (status >= 200 && status < 300) return;
    // A wrong token or address is usually corrected later, so events wait as during an outage.
    throw new SendError(`${this.name} answered ${status}${explained(body)}`, { retry: !NEVER_RETRIED.has(status), tooLarge: status === 413 });
  }

  #token() {
    if (this.environment.QUEUEWATCH_TOKEN) return this.environment.QUEUEWATCH_TOKEN.trim();
    const file = this.environment.QUEUEWATCH_TOKEN_FILE;
    if (!file) return undefined;
    try {
      return readFileSync(file, "utf8").trim();
    } catch (error) {
      throw new SendError(`QUEUEWATCH_TOKEN_FILE: cannot read ${file}: ${error.code}`, { retry: true });
    }
  }
}

export class QueuePoster {
  maxBytes = 250_000; // a queue's MaximumMessageSize may be 256 KiB

  constructor(to, environment) {
    const [queue, options = ""] = to.slice("sqs:".length).replace(/^\/\//, "").split("?");
    const shown = `sqs:${queue.replace(/^.*@/, "***@")}`; // whatever follows the "?" may be a secret
    if (!queue.replaceAll("/", "")) throw new Error(`${shown} names no queue`);
    const given = new URLSearchParams(options);
    const unknown = [...given.keys()].find((name) => name !== "region");
    if (unknown !== undefined) throw new Error(`${shown}: unknown option ${unknown}; known is region`);
    this.name = `sqs:${queue}`;
    this.environment = environment;
    this.queue = queue;
    const [, inHost, inLegacyHost] = REGION_IN_URL.exec(queue) ?? [];
    const named = given.get("region") || inHost || inLegacyHost;
    this.region = named || environment.AWS_REGION || environment.AWS_DEFAULT_REGION || "us-east-1";
    this.url = queue.includes("/") ? queue : undefined;
    this.endpoint = new URL(environment.AWS_ENDPOINT_URL_SQS || environment.AWS_ENDPOINT_URL || this.#origin());
    this.connection = new Connection(this.endpoint);
  }

  async send(payload) {
    this.url ??= (await this.#call("GetQueueUrl", { QueueName: this.queue })).QueueUrl;
    const body = payload.toString("utf8").replaceAll("\ufffe", "\\ufffe").replaceAll("\uffff", "\\uffff"); // forbidden in SQS
    await this.#call("SendMessage", { QueueUrl: this.url, MessageBody: body });
  }

  #origin() {
    if (this.url) return new URL(this.url).origin;
    const partition = Object.keys(DOMAINS).find((prefix) => this.region.startsWith(prefix));
    return `https://sqs.${this.region}.${DOMAINS[partition] ?? "amazonaws.com"}/`;
  }

  async #call(action, given) {
    const payload = Buffer.from(JSON.stringify(given));
    const headers = {
      "Content-Type": "application/x-amz-json-1.0",
      Host: this.endpoint.host,
      "X-Amz-Date": new Date().toISOString().replace(/[-:]|\.\d+/g, ""),
      "X-Amz-Target": `AmazonSQS.${action}`,
    };
    const { AWS_SESSION_TOKEN: token, AWS_ACCESS_KEY_ID: key = "", AWS_SECRET_ACCESS_KEY: secret = "" } = this.environment;
    if (token) headers["X-Amz-Security-Token"] = token;
    headers.Authorization = authorization(payload, headers, this.endpoint.pathname, this.region, key, secret);
    const { status, body } = await post(this.name, this.connection, payload, headers);
    if (status === 200) return JSON.parse(body);
    const code = errorCode(body);
    const tooLarge = ["InvalidParameterValue", "MessageTooLong", "InvalidMessageContents"].includes(code);
    throw new SendError(`${this.name}: ${action} answered ${status} ${code}`, { retry: !tooLarge, tooLarge });
  }
}

/** Returns the Authorization header (AWS Signature Version 4) for a POST to SQS without a query. */
export function authorization(payload, headers, path, region, key, secret) {
  const names = Object.keys(headers).sort((a, b) => (a.toLowerCase() < b.toLowerCase() ? -1 : 1));
  const signed = names.map((name) => name.toLowerCase()).join(";");
  const lines = names.map((name) => `${name.toLowerCase()}:${headers[name].trim()}\n`).join("");
  const request = `POST\n${path}\n\n${lines}\n${signed}\n${sha256(payload)}`;
  const stamp = headers["X-Amz-Date"];
  const scope = `${stamp.slice(0, 8)}/${region}/sqs/aws4_request`;
  const signing = scope.split("/").reduce((last, part) => createHmac("sha256", last).update(part).digest(), `AWS4${secret}`);
  const text = `AWS4-HMAC-SHA256\n${stamp}\n${scope}\n${sha256(request)}`;
  const signature = createHmac("sha256", signing).update(text).digest("hex");
  return `AWS4-HMAC-SHA256 Credential=${key}/${scope}, SignedHeaders=${signed}, Signature=${signature}`;
}

const sha256 = (data) => createHash("sha256").update(data).digest("hex");

/** Returns what the service says is wrong and how to fix it, as the end of a message; empty if something else answered. */
function explained(body) {
  try {
    const { message, fix } = JSON.parse(body).error;
    if (message === undefined || fix === undefined) return "";
    return `: ${`${message}; ${fix}`.replace(/[\s\p{C}]+/gu, " ").trim().slice(0, MAX_SHOWN)}`;
  } catch {
    return "";
  }
}

/** Returns the code of an error; SQS adds an ending to some that SDKs do not show: `…#InvalidParameterValueException`. */
function errorCode(body) {
  try {
    return String(JSON.parse(body).__type ?? "").split("#").pop().replace(/Exception$/, "");
  } catch {
    return "";
  }
}
