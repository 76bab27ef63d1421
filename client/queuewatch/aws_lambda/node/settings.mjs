// The wrapper's settings, all from the environment. An invalid value never prevents the function from running.

const NO = new Set(["", "0", "false", "no", "off"]);

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
  const reports = environment.QUEUEWATCH_LAMBDA_REPORT_BATCH_ITEM_FAILURES;
  return {
    to: off ? undefined : environment.QUEUEWATCH_TO || undefined,
    consumer: environment.QUEUEWATCH_CONSUMER || environment.AWS_LAMBDA_FUNCTION_NAME || "lambda",
    scope: environment.QUEUEWATCH_SCOPE || undefined,
    sendMs: number("QUEUEWATCH_LAMBDA_SEND_MS", 50),
    earlyMs: number("QUEUEWATCH_LAMBDA_EARLY_MS", 1000),
    timeoutMarginMs: number("QUEUEWATCH_LAMBDA_TIMEOUT_MARGIN_MS", 200),
    visibilityTimeoutS: number("QUEUEWATCH_LAMBDA_VISIBILITY_TIMEOUT_S", undefined),
    reportsFailures: reports === undefined || reports === "" || !NO.has(reports.toLowerCase()),
  };
}
