"""Examine queues: those of an account as they are, or those of code as they will be."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

from botocore.exceptions import BotoCoreError, ClientError

from queuewatch.tls import HTTP_FIX, is_plain_text
from sources.doctor.finding import Examination, Finding
from sources.sqs.attributes import SYSTEM
from sources.sqs.clients import make_clients, make_lambda_clients
from sources.sqs.config import DiscoveryConfig, SqsCollectorConfig
from sources.sqs.doctor.account import POLICY_PAGE, RegionReader
from sources.sqs.doctor.files import read_queues
from sources.sqs.doctor.lambdas import Consumers
from sources.sqs.doctor.permissions import read_only
from sources.sqs.doctor.rules import findings
from sources.sqs.doctor.settings import Queues, QueueSettings
from sources.sqs.problems import is_unanswered

Processing = Mapping[str, float]
"""Shell-style pattern of queue names → the usual processing time of a message in seconds; the first match wins."""


def examine_account(
    config: SqsCollectorConfig, *, processing_s: Processing | None = None, with_lambda: bool = True
) -> Examination:
    """Examine every queue that `config` finds, in each of its regions.

    A region whose queues cannot be listed is a finding, and so is that there is no queue to examine. Raises
    `CollectorRefused` when the profile or the region is missing.
    """
    clients = make_clients(config)
    lambdas = make_lambda_clients(config) if with_lambda and _has_lambda(config) else [None] * len(clients)
    regions = [client.meta.region_name for client in clients]
    examined: list[QueueSettings] = []
    found: list[Finding] = []
    for client, functions in zip(clients, lambdas, strict=True):
        consumers = Consumers(read_only(functions)) if functions is not None else None
        reader = RegionReader(read_only(client), config.discovery, consumers, regions=regions, concurrency=config.concurrency)
        try:
            queues = reader.read()
        except (ClientError, BotoCoreError) as error:
            found.append(_cannot_list(client.meta.region_name, error))
            continue
        found += [*reader.findings, *findings(_with_processing(queues, processing_s))]
        examined += queues.by_key.values()
    if not examined and not found:
        found.append(_no_queue(regions, config.discovery))
    return _examination(examined, found)


def _has_lambda(config: SqsCollectorConfig) -> bool:
    """Whether Lambda can be checked: with a stand-in for SQS, the login's real Lambda functions are unrelated."""
    own = config.endpoint_url or os.environ.get("AWS_ENDPOINT_URL_SQS")
    return own is None or "amazonaws.com" in own or any(os.environ.get(f"AWS_ENDPOINT_URL{s}") for s in ("", "_LAMBDA"))


def examine_files(files: Sequence[Path], *, processing_s: Processing | None = None) -> Examination:
    """Examine the queues of Terraform plans and CloudFormation templates, each file separately. Raises `UnreadableFile`."""
    examined: list[QueueSettings] = []
    found: list[Finding] = []
    for file in files:
        queues = read_queues(file)
        found += findings(_with_processing(queues, processing_s))
        examined += queues.by_key.values()
    return _examination(examined, found)


def _examination(examined: Sequence[QueueSettings], found: Sequence[Finding]) -> Examination:
    concerned = {(finding.scope, finding.queue) for finding in found}
    passed = sorted(queue.name for queue in examined if (queue.scope, queue.name) not in concerned)
    return Examination(system=SYSTEM, passed=passed, findings=found)


def _with_processing(queues: Queues, processing_s: Processing | None) -> Queues:
    if not processing_s:
        return queues
    known = (
        replace(queue, usual_processing_s=next((s for p, s in processing_s.items() if fnmatchcase(queue.name, p)), None))
        for queue in queues.by_key.values()
    )
    return Queues.of(known, queues.missing)


def _no_queue(regions: Sequence[str], discovery: DiscoveryConfig) -> Finding:
    """Return a finding: a mistyped prefix or another account's login must not pass for queues that are all well."""
    filtered = discovery.is_filtered
    prefixes = f" whose name starts with {' or '.join(discovery.prefixes)}" if discovery.prefixes else ""
    return Finding(
        rule="no_queue",
        severity="warning",
        summary=f"There is no queue{prefixes or (' that collect.sqs.discovery selects' if filtered else '')} in "
        f"{' or '.join(regions)}.",
        fix=f"Check {'the filter, ' if filtered else ''}the region, and which account the login is for "
        "(`aws sts get-caller-identity`).",
    )


def _cannot_list(region: str, error: Exception) -> Finding:
    if is_plain_text(error):
        fix = f"{HTTP_FIX[0].upper()}{HTTP_FIX[1:]}, in collect.sqs.endpoint_url or AWS_ENDPOINT_URL_SQS."
    elif is_unanswered(error):
        fix = f"Check the region's name, {region}, the network, and the endpoint's URL where one is configured."
    else:
        fix = f"Log in (`aws sso login`), name a profile with --profile, and allow what {POLICY_PAGE} lists."
    return Finding(
        rule="not_examined",
        severity="critical",
        scope=region,
        summary=f"The queues cannot be listed: {error}",
        fix=fix,
    )
