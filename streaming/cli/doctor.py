"""`queuewatch doctor`: what is misconfigured at the queues, with the fix. Nothing is changed, no message is received."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from sources.doctor import Examination

from streaming.cli.options import ConfigFile

app = typer.Typer(
    help="Say what is misconfigured at the queues (sqs, activemq, cloudflare), with the fix; only reads.",
    no_args_is_help=True,
)


class FailOn(StrEnum):
    """From which severity on a finding makes the exit code 1."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


AsJson = Annotated[bool, typer.Option("--json", help="As one JSON object.")]
FailOnOption = Annotated[
    FailOn, typer.Option("--fail-on", help="Exit with 1 when there is a finding of this severity or a worse one.")
]


@app.command("sqs")
def sqs(
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="A configuration file, for the queues and login of collect.sqs.")
    ] = None,
    profile: Annotated[str | None, typer.Option(help="A profile of the AWS configuration.")] = None,
    region: Annotated[list[str] | None, typer.Option(help="An AWS region; may be given several times.")] = None,
    prefix: Annotated[
        list[str] | None, typer.Option(help="Only queues whose names begin so; may be given several times.")
    ] = None,
    plan: Annotated[
        list[Path] | None,
        typer.Option(help="Instead of an account: a Terraform plan, as `terraform show -json PLAN` writes it."),
    ] = None,
    template: Annotated[
        list[Path] | None, typer.Option(help="Instead of an account: a CloudFormation or SAM template, YAML or JSON.")
    ] = None,
    processing: Annotated[
        list[str] | None,
        typer.Option(help="How long messages are usually worked on, to check visibility timeouts: 'orders-*=45s'."),
    ] = None,
    use_lambda: Annotated[
        bool, typer.Option("--lambda/--no-lambda", help="Look at the Lambda functions that consume the queues, too.")
    ] = True,
    as_json: AsJson = False,
    fail_on: FailOnOption = FailOn.WARNING,
) -> None:
    """Examine every SQS queue of an account, or of a Terraform plan or CloudFormation template before it is deployed."""
    from sources.collect import CollectorRefused
    from sources.sqs.doctor import examine_account, examine_files
    from sources.sqs.doctor.files import UnreadableFile
    from streaming.cli.errors import CommandError

    processing_s = _processing(processing or [])
    files = [*(plan or []), *(template or [])]
    if files and (config or profile or region or prefix):
        raise typer.BadParameter("files are examined instead of an account: leave out --config, --profile, --region and --prefix")
    try:
        if files:
            examination = examine_files(files, processing_s=processing_s)
        else:
            section = _sqs_section(config, profile, region or [], prefix or [])
            examination = examine_account(section, processing_s=processing_s, with_lambda=use_lambda)
    except (UnreadableFile, CollectorRefused) as error:
        raise CommandError(str(error)) from error
    _report(examination, as_json, fail_on)


@app.command("activemq")
def activemq(config: ConfigFile, as_json: AsJson = False, fail_on: FailOnOption = FailOn.WARNING) -> None:
    """Examine the broker of collect.activemq: what it does not report yet, with the XML to add."""
    from sources.activemq.doctor import examine

    _report(examine(_section(config, "activemq")), as_json, fail_on)


@app.command("cloudflare")
def cloudflare(config: ConfigFile, as_json: AsJson = False, fail_on: FailOnOption = FailOn.WARNING) -> None:
    """Examine the queues of the account of collect.cloudflare, and the Wrangler files named there."""
    from sources.cloudflare.doctor import examine

    _report(examine(_section(config, "cloudflare")), as_json, fail_on)


def _section(config: Path, kind: str) -> Any:
    from streaming.cli.collecting import section_of
    from streaming.config import load_config

    return section_of(load_config(config), kind)


def _sqs_section(config: Path | None, profile: str | None, regions: list[str], prefixes: list[str]) -> Any:
    from sources.sqs.config import SqsCollectorConfig

    found = _section(config, "sqs") if config is not None else SqsCollectorConfig(concurrency=16)
    values = found.model_dump()
    if profile is not None:
        values["profile"] = profile
    if regions:
        values["regions"] = regions
    if prefixes:
        values["discovery"] = {**values["discovery"], "prefixes": prefixes, "urls": ()}
    return SqsCollectorConfig.model_validate(values)


def _processing(given: list[str]) -> dict[str, float]:
    from streaming.replay.times import parse_duration_ms

    found: dict[str, float] = {}
    for text in given:
        pattern, equals, duration = text.rpartition("=")
        try:
            if not equals or not pattern:
                raise ValueError(f"{text!r} is not PATTERN=DURATION, for example 'orders-*=45s'")
            found[pattern] = parse_duration_ms(duration) / 1000
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--processing") from error
    return found


def _report(examination: Examination, as_json: bool, fail_on: FailOn) -> None:
    from sinks.explain.words import printable
    from sources.doctor import as_json as to_json
    from sources.doctor import as_text

    if as_json:
        typer.echo(to_json(examination))
    else:
        for line in as_text(examination).splitlines():
            typer.echo(printable(line))
    raise typer.Exit(1 if examination.fails(fail_on.value) else 0)
