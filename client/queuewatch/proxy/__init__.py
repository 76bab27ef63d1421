"""A sidecar proxy for SQS that reports telemetry of applications in any language, without code changes.

The application's SDK is pointed at the proxy (`AWS_ENDPOINT_URL_SQS`); the proxy signs each call again, forwards it to SQS, and
reports what happened to which message. It needs the extra `queuewatch[proxy]`.
"""
