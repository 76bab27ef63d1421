"""Read which Lambda functions consume which queue, and their timeouts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, Final

from sources.sqs.doctor.settings import LambdaConsumer

_UNQUALIFIED_PARTS: Final = 7
"""`arn:aws:lambda:region:account:function:name`; a version or alias adds one part."""


class Consumers:
    """Reads event source mappings and function timeouts with a boto3 client of Lambda."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def read(self) -> Mapping[str, list[LambdaConsumer]]:
        """Return queue ARN → its consumers; disabled mappings are left out. Raises botocore's errors."""
        mappings = [m for m in self._mappings() if ":sqs:" in str(m.get("EventSourceArn")) and m.get("State") != "Disabled"]
        timeouts = self._timeouts({str(m["FunctionArn"]) for m in mappings})
        found: dict[str, list[LambdaConsumer]] = defaultdict(list)
        for mapping in mappings:
            arn = str(mapping["FunctionArn"])
            found[str(mapping["EventSourceArn"])].append(
                LambdaConsumer(
                    function=arn.rpartition(":function:")[2],
                    timeout_s=timeouts.get(arn),
                    batch_size=mapping.get("BatchSize"),
                    batching_window_s=mapping.get("MaximumBatchingWindowInSeconds") or 0,
                    reports_item_failures="ReportBatchItemFailures" in (mapping.get("FunctionResponseTypes") or ()),
                )
            )
        return found

    def _mappings(self) -> Iterator[dict[str, Any]]:
        for page in self._client.get_paginator("list_event_source_mappings").paginate():
            yield from page.get("EventSourceMappings", ())

    def _timeouts(self, functions: set[str]) -> dict[str, float]:
        """Return timeouts from the list, fifty per call, as Lambda allows few calls a second; it lacks versions and aliases."""
        if not functions:
            return {}
        found: dict[str, float] = {}
        for page in self._client.get_paginator("list_functions").paginate():
            found |= {str(f["FunctionArn"]): float(f["Timeout"]) for f in page.get("Functions", ()) if "Timeout" in f}
        for arn in functions:
            if len(arn.split(":")) > _UNQUALIFIED_PARTS:
                try:
                    found[arn] = float(self._client.get_function_configuration(FunctionName=arn)["Timeout"])
                except self._client.exceptions.ResourceNotFoundException:
                    # A mapping outlives its function.
                    continue
        return found
