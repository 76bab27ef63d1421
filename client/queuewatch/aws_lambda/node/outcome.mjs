// The outcome of a batch in the event source mapping, derived from how its invocation ended. Pure. The rules are those of the AWS
// Lambda developer guide, "Handling errors for an SQS event source".

export const MAX_RESPONSE_BYTES = 6_291_556;

export const RETURNED = Object.freeze({ reason: "returned", whole: false, back: new Set() });

const whole = (reason) => ({ reason, whole: true, back: new Set() });

/** The outcome of a failed handler: every message comes back. The error's message may contain message data. */
export function failed(error) {
  return whole(`raised ${nameOf(error)}`);
}

function nameOf(error) {
  try {
    return error instanceof Error ? `${error.name}` : typeof error;
  } catch {
    return "Error"; // a name that is no text, or a getter that throws: the runtime must get the function's own error
  }
}

export const timedOut = () => whole("timed out");

/** The outcome of a handler that returned `result`, which the runtime posts as JSON. */
export function returned(result, messageIds, reportsFailures) {
  if (result === undefined || result === null) return RETURNED;
  let text;
  try {
    text = JSON.stringify(result);
  } catch {
    return whole("response cannot be serialized");
  }
  if (text === undefined) return RETURNED;
  if (Buffer.byteLength(text) > MAX_RESPONSE_BYTES) return whole("response too large");
  if (!reportsFailures) return RETURNED;
  const answer = JSON.parse(text);
  const failures = answer !== null && typeof answer === "object" && !Array.isArray(answer) ? answer.batchItemFailures : undefined;
  if (failures === undefined || failures === null) return RETURNED;
  if (!Array.isArray(failures)) return whole("invalid batchItemFailures");
  if (failures.length === 0) return RETURNED;
  const known = new Set(messageIds);
  const back = new Set();
  for (const entry of failures) {
    const identifier = entry?.itemIdentifier;
    if (typeof identifier !== "string" || !known.has(identifier)) return whole("invalid batchItemFailures");
    back.add(identifier);
  }
  return { reason: "named in batchItemFailures", whole: false, back };
}
