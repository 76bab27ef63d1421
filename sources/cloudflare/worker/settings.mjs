/** Options with their defaults. */

/**
 * @typedef {object} QueueSettings A consumer's settings, which a Worker cannot ask for
 * @property {number} [maxRetries]
 * @property {string | null} [deadLetterQueue] null: there is none, and exhausted messages are deleted
 * @property {number} [retryDelaySeconds]
 * @property {number} [maxBatchSize]
 */
/**
 * @typedef {object} Options
 * @property {string} [scope] what makes queue names unique: the account id; else the binding QUEUEWATCH_SCOPE
 * @property {string} [consumer] the name of this Worker
 * @property {Record<string, QueueSettings>} [queues] by queue name
 * @property {Record<string, string>} [producers] Queue binding name -> queue name
 * @property {boolean} [backlog] report the backlog that the runtime gives with each batch and each send
 * @property {(body: any) => string | undefined} [messageId] the application's own id in a message's body;
 *   must be the same in the producer and the consumer
 * @property {boolean} [errorMessages] report the message of an error, not only its name
 * @property {boolean} [noWaitForWaitUntil] whether queue_consumer_no_wait_for_wait_until is on, where the
 *   runtime does not say
 * @property {number} [waitMs] without that flag: how long a batch may wait for its own telemetry
 * @property {number} [timeoutMs] how long one post may take
 * @property {number} [maxPending] events kept while they cannot be delivered
 * @property {number} [earlyMs] a handler that runs longer than this has its deliveries reported while it runs
 */

const FLAG = "queue_consumer_no_wait_for_wait_until";

/** @param {Options} options */
export function withDefaults(options) {
  return {
    ...options,
    queues: options.queues ?? {},
    producers: options.producers ?? {},
    backlog: options.backlog ?? false,
    noWait: options.noWaitForWaitUntil ?? runtimeDoesNotWait(),
    waitMs: options.waitMs ?? 0,
    timeoutMs: options.timeoutMs ?? 5_000,
    maxPending: options.maxPending ?? 2_000,
    earlyMs: options.earlyMs ?? 1_000,
  };
}

/** @typedef {ReturnType<typeof withDefaults>} Settings */

/**
 * Whether a batch is done when its handler is, whatever ctx.waitUntil() still has. Old runtimes do not say:
 * they wait.
 */
function runtimeDoesNotWait() {
  const runtime = /** @type {{ Cloudflare?: { compatibilityFlags?: Record<string, boolean> } }} */ (
    globalThis
  );
  return runtime.Cloudflare?.compatibilityFlags?.[FLAG] === true;
}
