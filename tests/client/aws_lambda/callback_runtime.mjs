// A runtime like those of Node.js 20 and 22: it passes a callback to every handler, and the context takes answers too.
// It follows what version 3.3.0 of the runtime interface client does, and speaks the Runtime API as the real one does.

import http from "node:http";
import path from "node:path";
import { pathToFileURL } from "node:url";

const { _HANDLER: name, LAMBDA_TASK_ROOT: root, AWS_LAMBDA_RUNTIME_API: api } = process.env;
const WHEN_EMPTY = Symbol.for("aws.lambda.beforeExit");
const none = () => {};

function call(method, route, body) {
  return new Promise((resolve, reject) => {
    const request = http.request(`http://${api}/2018-06-01/runtime/invocation/${route}`, { method, agent: false }, (answer) => {
      const parts = [];
      answer.on("data", (part) => parts.push(part)).on("end", () => resolve([answer.headers, Buffer.concat(parts)]));
    });
    request.on("error", reject).end(body);
  });
}

async function next(handler) {
  const [headers, event] = await call("GET", "next");
  const id = headers["lambda-runtime-aws-request-id"];
  const post = (kind, body) => {
    globalThis[WHEN_EMPTY] = none;
    void call("POST", `${id}/${kind}`, JSON.stringify(body ?? null)).then(() => next(handler));
  };
  const postError = (error) => post("error", { errorType: error?.name ?? "handled", errorMessage: String(error?.message) });
  failed = (error) => postError(error);
  globalThis[WHEN_EMPTY] = () => post("response", null);
  let answered = false;
  const once = (action) => (...args) => {
    if (answered) return;
    answered = true;
    action(...args);
  };
  const done = (error, result) => (error === undefined || error === null ? post("response", result) : postError(error));
  const context = {
    awsRequestId: id,
    callbackWaitsForEmptyEventLoop: true,
    getRemainingTimeInMillis: () => Number(headers["lambda-runtime-deadline-ms"]) - Date.now(),
    succeed: once((result) => done(null, result)),
    fail: once((error) => done(error ?? "handled")),
    done: once(done),
  };
  const callback = once((error, result) => {
    if (error === undefined || error === null) {
      if (context.callbackWaitsForEmptyEventLoop) globalThis[WHEN_EMPTY] = () => post("response", result);
      else post("response", result);
    } else postError(error);
  });
  try {
    const result = handler(JSON.parse(event), context, callback);
    if (typeof result?.then === "function") result.then(context.succeed, context.fail);
  } catch (error) {
    callback(error);
  }
}

let failed = none;
globalThis[WHEN_EMPTY] = none;
process.on("beforeExit", () => globalThis[WHEN_EMPTY]());
process.on("uncaughtException", (error) => failed(error));
const [file, key] = name.split(/\.(?=[^.]*$)/);
const found = ["mjs", "cjs"].map((extension) => path.resolve(root, `${file}.${extension}`));
const module = await import(pathToFileURL(found[0]).href).catch(() => import(pathToFileURL(found[1]).href));
void next(module[key]);
