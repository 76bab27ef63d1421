// Handlers that answer in every way which the runtimes up to Node.js 22 accept.

const fail = () => {
  throw new RangeError("7");
};
const first = (event) => ({ batchItemFailures: [{ itemIdentifier: event.Records[0].messageId }] });
const stop = (context) => (context.callbackWaitsForEmptyEventLoop = false);
const later = (action) => void setTimeout(action, 50);

exports.callbackDeclared = (event, context, callback) => later(() => callback(null, first(event)));
exports.callbackAtOnce = (event, context, callback) => callback(null, first(event));
exports.callbackInRest = (...args) => later(() => args[2](null, first(args[0])));
exports.callbackWithDefault = (event, context, callback = fail) => callback(null, first(event));
exports.callbackApplied = function () {
  return exports.callbackDeclared.apply(this, arguments);
};
exports.callbackError = (...args) => args[2](new RangeError("7"));
exports.callbackWithoutWaiting = (...args) => {
  stop(args[1]);
  setInterval(() => {}, 1000);
  args[2](null, first(args[0]));
};
exports.callbackTwice = (event, context, callback) => {
  stop(context);
  callback(null, first(event));
  callback(new RangeError("7"));
};
exports.callbackThenThrows = (event, context, callback) => {
  stop(context);
  callback(null, first(event));
  fail();
};
exports.callbackWithOpenHandle = (event, context, callback) => {
  setInterval(() => {}, 1000);
  callback(null, first(event));
};
exports.succeeds = (event, context) => later(() => context.succeed(first(event)));
exports.succeedsDeclaringCallback = (event, context, callback) => later(() => context.succeed({}));
exports.fails = (event, context) => later(() => context.fail(new RangeError("7")));
exports.failsWithNothing = (event, context) => later(() => context.fail());
exports.isDone = (event, context) => later(() => context.done(null, first(event)));
exports.isDoneWithError = (event, context) => later(() => context.done(new RangeError("7")));
exports.failsThenCallsBack = (event, context, callback) => {
  context.fail(new RangeError("7"));
  callback(null, {});
};
exports.succeedsInPromise = async (event, context) => {
  context.succeed(first(event));
  fail();
};
exports.promise = async (event) => first(event);
exports.rejects = async () => fail();
exports.throws = () => fail();
exports.plain = (event) => first(event);
exports.plainThenThrows = () => later(fail);
exports.never = (event, context) => {
  setInterval(() => {}, 1000);
};
