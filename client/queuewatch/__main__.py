"""`python -m queuewatch`: shows which parts are installed."""

from importlib import metadata

_TEXT = """\
queuewatch {version}, the application's library: it sends telemetry of SQS calls to a queuewatch service.

In code:    from queuewatch import watch; watch(boto3.client("sqs"), to="kafka://broker:9092/queuewatch-events")

The service, with `queuewatch run`, `demo`, `doctor` and the rest, is the distribution queuewatch-service: {service}."""


def main() -> None:
    """Print the version and whether the service is installed too."""
    print(_TEXT.format(version=metadata.version("queuewatch"), service=_service()))


def _service() -> str:
    try:
        return f"{metadata.version('queuewatch-service')} is installed here"
    except metadata.PackageNotFoundError:
        return "not installed here, and not needed with an application"


if __name__ == "__main__":
    main()
