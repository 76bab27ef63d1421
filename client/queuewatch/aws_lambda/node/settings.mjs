// The wrapper's settings, all from the environment. An invalid value never prevents the function from running.

const NO = new Set(["", "0", "false", "no", "off"]);

const LONGEST_NAME = 512; // characters that the service accepts

export function settingsFrom(environment = process.env, log = console.error) {
  const off = !NO.has((environment.QUEUEWATCH_DISABLED ?? "").toLowerCase());
  const number = (name, otherwise) => {
    const text = (environment[name] ?? "").trim();
    if (!text) return otherwise;
    const value = Number(text);
    if (Number.isFinite(value) && value >= 0 && value < 1e9) return value;
    log(`queuewatch: ${name}=${text} is invalid; using ${otherwise}`);
    return otherwise;
  };
  const name = (variable) => {
    const given = [...(environment[variable] ?? "")];
    if (given.length > LONGEST_NAME) log(`queuewatch: ${variable} is longer than ${LONGEST_NAME} characters: it is cut`);
    return given.slice(0, LONGEST_NAME).join("");
  };
  const reports = environment.QUEUEWATCH_LAMBDA_REPORT_BATCH_ITEM_FAILURES;
  return {
    to: off ? undefined : environment.QUEUEWATCH_TO || undefined,
    consumer: name("QUEUEWATCH_CONSUMER") || environment.AWS_LAMBDA_FUNCTION_NAME || "lambda",
    scope: name("QUEUEWATCH_SCOPE") || undefined,
    sendMs: number("QUEUEWATCH_LAMBDA_SEND_MS", 50),
    earlyMs: number("QUEUEWATCH_LAMBDA_EARLY_MS", 1000),
    timeoutMarginMs: number("QUEUEWATCH_LAMBDA_TIMEOUT_MARGIN_MS", 200),
    visibilityTimeoutS: number("QUEUEWATCH_LAMBDA_VISIBILITY_TIMEOUT_S", undefined),
    reportsFailures: reports === undefined || reports === "" || !NO.has(reports.toLowerCase()),
  };
}
