// Finds the function's own handler by the rules of the runtime interface clients: what versions 3 or 4 accept, is accepted.

import { existsSync, statSync } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import { pathToFileURL } from "node:url";

const VARIABLE = "QUEUEWATCH_LAMBDA_HANDLER";

// The error names are those of the runtime, so that alarms on them keep working.
class HandlerError extends Error {
  constructor(name, message) {
    super(message);
    this.name = name;
  }
}

/** Returns the handler named in QUEUEWATCH_LAMBDA_HANDLER, such as `index.handler`; throws the runtime's errors. */
export async function loadOriginal(environment = process.env) {
  const name = (environment[VARIABLE] ?? "").trim();
  if (!name) throw new HandlerError("HandlerNotConfigured", `${VARIABLE} is not set; set it to the function's own handler, such as index.handler`);
  if (name.includes("..")) throw new HandlerError("Runtime.MalformedHandlerName", `'${name}' is not a valid handler name. Use absolute paths when specifying root directories in handler names.`);
  const base = path.basename(name);
  const folder = name.slice(0, name.length - base.length);
  const found = /^([^.]*)\.(.*)$/.exec(base);
  if (!found) throw new HandlerError("Runtime.MalformedHandlerName", `Bad handler '${name}'`);
  const module = await load(environment.LAMBDA_TASK_ROOT ?? process.cwd(), folder, found[1]);
  const handler = find(found[2], module) ?? find(found[2], module?.default);
  if (!handler) throw new HandlerError("Runtime.HandlerNotFound", `${name} is undefined or not exported`);
  if (typeof handler !== "function") throw new HandlerError("Runtime.HandlerNotFound", `${name} is not a function`);
  return handler;
}

async function load(root, folder, module) {
  const file = path.resolve(root, folder, module);
  const require = createRequire(import.meta.url);
  try {
    if (statSync(file, { throwIfNoEntry: false })?.isDirectory()) return require(file);
    for (const extension of ["", ".js", ".mjs", ".cjs"]) {
      if (existsSync(file + extension)) return await import(pathToFileURL(file + extension).href);
    }
    return require(require.resolve(module, { paths: [root, path.join(root, folder)] }));
  } catch (error) {
    if (error instanceof SyntaxError) error.name = "Runtime.UserCodeSyntaxError";
    else if (error?.code === "MODULE_NOT_FOUND") error.name = "Runtime.ImportModuleError";
    throw error;
  }
}

function find(name, module) {
  return name.split(".").reduce((nested, key) => nested?.[key], module);
}
