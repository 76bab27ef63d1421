"""A sidecar proxy for SQS: telemetry of applications in any language, without a change to them.

The application's SDK is pointed at the proxy (`AWS_ENDPOINT_URL_SQS`); the proxy signs each call anew, forwards it to
SQS, and reports what happened to which message. Needs the extra `queuewatch[proxy]`.
"""
