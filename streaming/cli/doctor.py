"""`queuewatch doctor`: reports misconfigured queues, with the fix. It changes nothing and receives no message."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from sources.doctor import Examination

from streaming.cli.options import ConfigFile

app = typer.Typer(
    help="Report misconfigured queues (sqs, activemq, cloudflare), with the fix; read-only.",
    no_args_is_help=True,
)


class FailOn(StrEnum):
    """The lowest severity of a finding that sets the exit code to 1."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
FailOnOption = Annotated[FailOn, typer.Option("--fail-on", help="Exit with 1 if there is a finding of this severity or higher.")]


@app.command("sqs")
def sqs(
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", help="A configuration file; its section collect.sqs selects queues and credentials."),
    ] = None,
    profile: Annotated[str | None, typer.Option(help="An AWS profile.")] = None,
    region: Annotated[list[str] | None, typer.Option(help="An AWS region; can be given several times.")] = None,
    prefix: Annotated[
        list[str] | None, typer.Option(help="Only queues whose names start with this prefix; can be given several times.")
    ] = None,
    plan: Annotated[
        list[Path] | None,
        typer.Option(help="Check a Terraform plan instead of an account, in the format of `terraform show -json PLAN`."),
    ] = None,
    template: Annotated[
        list[Path] | None, typer.Option(help="Check a CloudFormation or SAM template (YAML or JSON) instead of an account.")
    ] = None,
    processing: Annotated[
        list[str] | None,
        typer.Option(help="Usual processing time of messages, to check visibility timeouts: 'orders-*=45s'."),
    ] = None,
    use_lambda: Annotated[
        bool, typer.Option("--lambda/--no-lambda", help="Also check the Lambda functions that consume the queues.")
    ] = True,
    as_json: AsJson = False,
    fail_on: FailOnOption = FailOn.WARNING,
) -> None:
    """Check every SQS queue of an account, or of a Terraform plan or CloudFormation template before it is deployed."""
    from sources.collect import CollectorRefused
    from sources.sqs.doctor import examine_account, examine_files
    from sources.sqs.doctor.files import UnreadableFile
    from streaming.cli.errors import UnusableConfig

    processing_s = _processing(processing or [])
    files = [*(plan or []), *(template or [])]
    if files and (config or profile or region or prefix):
        raise typer.BadParameter("files are checked instead of an account: remove --config, --profile, --region and --prefix")
    try:
        if files:
            examination = examine_files(files, processing_s=processing_s)
        else:
            section = _sqs_section(config, profile, region or [], prefix or [])
            examination = examine_account(section, processing_s=processing_s, with_lambda=use_lambda)
    except UnreadableFile as error:
        raise UnusableConfig(f"{'--plan' if error.path in (plan or []) else '--template'} {error}") from error
    except CollectorRefused as error:
        raise UnusableConfig(str(error)) from error
    _report(examination, as_json, fail_on)


@app.command("activemq")
def activemq(config: ConfigFile, as_json: AsJson = False, fail_on: FailOnOption = FailOn.WARNING) -> None:
    """Check the broker of collect.activemq: which advisories it does not send yet, with the XML to add."""
    from sources.activemq.doctor import examine

    _report(examine(_section(config, "activemq")), as_json, fail_on)


@app.command("cloudflare")
def cloudflare(config: ConfigFile, as_json: AsJson = False, fail_on: FailOnOption = FailOn.WARNING) -> None:
    """Check the queues of the account in collect.cloudflare, and the Wrangler files listed there."""
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
    from sinks.explain.formatting import printable
    from sources.doctor import as_json as to_json
    from sources.doctor import as_text

    if as_json:
        typer.echo(to_json(examination))
    else:
        for line in as_text(examination).splitlines():
            typer.echo(printable(line))
    raise typer.Exit(1 if examination.fails(fail_on.value) else 0)
