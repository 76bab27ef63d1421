/** Listening to calls without being in their way. */

/**
 * Put a listener behind a method of objects that share it. The method is called first, as it was called, and
 * its result or error is the caller's; the listener hears of calls that were accepted.
 *
 * @param {any[]} objects
 * @param {string} name
 * @param {(self: any, args: any[]) => void} listener
 * @param {(args: any[]) => any[]} [adopt] changes the arguments for both
 */
export function intercept(objects, name, listener, adopt = (args) => args) {
  /** @type {unknown} */
  let native;
  /** @type {PropertyDescriptor | undefined} */
  let descriptor;
  for (const object of objects) {
    const own = object[name];
    if (descriptor === undefined || own !== native) {
      native = own;
      descriptor = {
        configurable: true,
        writable: true,
        enumerable: false,
        value: listening(own, listener, adopt),
      };
    }
    Object.defineProperty(object, name, descriptor);
  }
}

/**
 * @param {Function} method
 * @param {(self: any, args: any[]) => void} listener
 * @param {(args: any[]) => any[]} adopt
 */
function listening(method, listener, adopt) {
  return /** @this {any} */ function (/** @type {any[]} */ ...given) {
    const args = adopt(given);
    const result = method.apply(this, args);
    try {
      listener(this, args);
    } catch {
      // The call was made; only its record is lost.
    }
    return result;
  };
}

/**
 * @param {unknown} value
 * @returns {value is PromiseLike<unknown>}
 */
export function isThenable(value) {
  return (
    value !== null &&
    (typeof value === "object" || typeof value === "function") &&
    typeof (/** @type {any} */ (value).then) === "function"
  );
}
