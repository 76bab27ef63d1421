/** What a Worker cannot ask for about a queue it consumes. */
export interface QueueSettings {
    /** Deliveries after the first; the platform's default is 3. */
    maxRetries?: number;
    /** `null`: there is none, and a message whose retries are exhausted is deleted. */
    deadLetterQueue?: string | null;
    /** The consumer's `retry_delay`. */
    retryDelaySeconds?: number;
    maxBatchSize?: number;
}

export interface Options {
    /** What makes queue names unique: the account id. Default: the binding `QUEUEWATCH_SCOPE`. */
    scope?: string;
    /** The name of this Worker, reported as the consumer. */
    consumer?: string;
    /** Consumer settings by queue name. */
    queues?: Record<string, QueueSettings>;
    /** Queue binding name to queue name, for what this Worker sends. */
    producers?: Record<string, string>;
    /**
     * The application's own id in a message's body, the same on both sides. Without it `sent` cannot be
     * reported.
     */
    messageId?: (body: any) => string | undefined;
    /** Report the backlog the runtime gives with each batch and each send. Default: false. */
    backlog?: boolean;
    /** Report an error's message beside its name. Default: false, as it may hold what the message held. */
    errorMessages?: boolean;
    /** Whether `queue_consumer_no_wait_for_wait_until` is on. Default: what the runtime says. */
    noWaitForWaitUntil?: boolean;
    /** Without that flag: how long a batch may wait for its own telemetry, in milliseconds. Default: 0. */
    waitMs?: number;
    /** How long one post may take, in milliseconds. Default: 5000. */
    timeoutMs?: number;
    /** How many events are kept while they cannot be delivered. Default: 2000. */
    maxPending?: number;
    /** A handler that runs longer has its deliveries reported while it runs, in milliseconds. Default: 1000. */
    earlyMs?: number;
}

/**
 * Wrap the default export of a Worker, or a class it exports. The result is used in its place.
 *
 * Bindings read from `env`: `QUEUEWATCH_QUEUE` (a Queue), or `QUEUEWATCH_URL` with `QUEUEWATCH_TOKEN` and
 * `QUEUEWATCH_SERVICE` (a service to post through); `QUEUEWATCH_SCOPE`; `QUEUEWATCH_OFF`.
 */
export function watch<Handler extends object>(handler: Handler, options?: Options): Handler;
