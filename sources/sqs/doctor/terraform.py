"""Read queues of a Terraform plan in the format of `terraform show -json PLAN` (also used for a state file).

Values known only after the apply are missing among the planned values. A dead-letter queue's ARN usually is: the queue is then
found by the expression in the configuration that refers to it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from queuewatch.places import place_of_arn
from sources.sqs.doctor.account import redrive_allow
from sources.sqs.doctor.settings import LAMBDA_TIMEOUT_S, LambdaConsumer, Queues, QueueSettings, Redrive, RedriveAllow, finite

Json = Mapping[str, Any]

_INDEX: Final = re.compile(r"\[[^\]]*\]")
_MODULE: Final = re.compile(r"module\.([^.\[]+)(?:\[[^\]]*\])?\.")


def is_plan(document: object) -> bool:
    """Whether a JSON document is a plan or a state."""
    return isinstance(document, dict) and (
        "planned_values" in document or ("values" in document and "format_version" in document)
    )


def read_plan(document: Json, file: str) -> Queues:
    """Return the queues as they will be after the apply. `file` is the plan's name in findings."""
    plan = _Plan(document)
    settings = {address: _settings(resource, plan, file) for address, resource in plan.of_type("aws_sqs_queue").items()}
    for resource in plan.of_type("aws_sqs_queue_redrive_policy").values():
        for address in plan.referenced(resource, "queue_url"):
            settings[address] = replace(settings[address], redrive=_redrive(resource, plan))
    for resource in plan.of_type("aws_sqs_queue_redrive_allow_policy").values():
        for address in plan.referenced(resource, "queue_url"):
            settings[address] = replace(settings[address], redrive_allow=_allow(resource))
    for resource in plan.of_type("aws_lambda_event_source_mapping").values():
        if resource.get("enabled") is False:
            continue
        for address in plan.referenced(resource, "event_source_arn"):
            consumers = (*settings[address].consumers, _consumer(resource, plan))
            settings[address] = replace(settings[address], consumers=consumers)
    return Queues.of(settings.values())


@dataclass(frozen=True)
class _Resource:
    """One resource instance: its planned values, and which attributes are known only after the apply."""

    address: str
    type: str
    values: Json
    unknown: Json
    expressions: Json

    def get(self, name: str) -> Any:
        return self.values.get(name)

    def is_unknown(self, name: str) -> bool:
        """Whether the configuration sets it to something known only after the apply.

        An attribute that it does not set is also unknown in a plan if the provider computes it.
        """
        return self.unknown.get(name) is True and name in self.expressions

    @property
    def modules(self) -> str:
        """`module.a[0].module.b.`, including instance indexes; empty in the root module."""
        return "".join(found[0] for found in _MODULE.finditer(self.address))


@dataclass
class _Plan:
    document: Json
    resources: dict[str, _Resource] = field(default_factory=dict)

    def __post_init__(self) -> None:
        values = self.document.get("planned_values") or self.document.get("values") or {}
        unknown = {c["address"]: (c.get("change") or {}).get("after_unknown") or {} for c in self._changes()}
        for found in _resources(values.get("root_module") or {}):
            if found.get("mode", "managed") == "managed":
                address = str(found["address"])
                expressions = self._configured(address).get("expressions") or {}
                self.resources[address] = _Resource(
                    address, str(found.get("type")), found.get("values") or {}, unknown.get(address, {}), expressions
                )

    def of_type(self, type_: str) -> dict[str, _Resource]:
        return {address: resource for address, resource in self.resources.items() if resource.type == type_}

    def referenced(self, resource: _Resource, attribute: str, type_: str = "aws_sqs_queue") -> list[str]:
        """Return the address of the resource that an attribute's value or expression refers to; empty when unknown."""
        value = resource.get(attribute)
        if isinstance(value, str) and value:
            return self.with_identity(value, type_)
        references = (resource.expressions.get(attribute) or {}).get("references") or ()
        found = self._resolve(_plain(resource.modules), list(references), type_)
        candidates = [a for a, r in self.of_type(type_).items() if _plain(a) in {_plain(f) for f in found}]
        # Prefer the same instance of the module, then the named instance, then the one with the same key.
        candidates = [a for a in candidates if self.resources[a].modules == resource.modules] or candidates
        named = [a for a in candidates if a in {resource.modules + f.removeprefix(_plain(resource.modules)) for f in found}]
        same_key = [a for a in candidates if _index_of(a) and _index_of(a) == _index_of(resource.address)]
        for narrowed in (named, same_key, candidates):
            if len(narrowed) == 1:
                return narrowed
        return []

    def with_identity(self, value: str, type_: str) -> list[str]:
        """Find resources by ARN, URL or name; a policy's text holds the ARN."""
        last = re.split(r"[:/]", value)[-1]
        for address, resource in self.of_type(type_).items():
            arn = resource.get("arn")
            if value.startswith("arn:") and isinstance(arn, str) and arn:
                # The same name in another account or region is another queue.
                if value == arn:
                    return [address]
                continue
            identities = {resource.get(name) for name in ("arn", "id", "url", "name", "function_name")}
            if value in identities or (last and last == (resource.get("name") or resource.get("function_name"))):
                return [address]
        return []

    def _resolve(self, modules: str, references: list[str], type_: str, depth: int = 8) -> set[str]:
        """Return addresses of the resources that references lead to, through variables and outputs of modules."""
        found: set[str] = set()
        if depth == 0:
            return found
        config = self._module(modules)
        for reference in references:
            parts = reference.split(".")
            if parts[0] == type_ and len(parts) >= 2:
                found.add(f"{modules}{parts[0]}.{parts[1]}")
            elif parts[0] == "var" and modules:
                outer, call = _outer(modules)
                calls = self._module(outer).get("module_calls") or {}
                passed = ((calls.get(call) or {}).get("expressions") or {}).get(_plain(parts[1])) or {}
                found |= self._resolve(outer, list(passed.get("references") or ()), type_, depth - 1)
            elif parts[0] == "module" and len(parts) >= 3:
                call = _plain(parts[1])
                inner = ((config.get("module_calls") or {}).get(call) or {}).get("module") or {}
                output = (inner.get("outputs") or {}).get(_plain(parts[2])) or {}
                passed = (output.get("expression") or {}).get("references") or ()
                found |= self._resolve(f"{modules}module.{call}.", list(passed), type_, depth - 1)
        return found

    def _changes(self) -> list[Json]:
        return [c for c in self.document.get("resource_changes") or () if isinstance(c, dict) and "address" in c]

    def _module(self, modules: str) -> Json:
        """Return the configuration of a module by its path without instances."""
        config: Json = (self.document.get("configuration") or {}).get("root_module") or {}
        for name in _MODULE.findall(modules):
            config = ((config.get("module_calls") or {}).get(name) or {}).get("module") or {}
        return config

    def _configured(self, address: str) -> Json:
        plain = _plain(address)
        modules = "".join(found[0] for found in _MODULE.finditer(plain))
        own = plain.removeprefix(modules)
        return next((r for r in self._module(modules).get("resources") or () if r.get("address") == own), {})


def _settings(resource: _Resource, plan: _Plan, file: str) -> QueueSettings:
    name = resource.get("name")
    kind_known = resource.get("fifo_queue")
    arn = resource.get("arn")
    managed = resource.get("sqs_managed_sse_enabled")
    has_key = bool(resource.get("kms_master_key_id")) or resource.is_unknown("kms_master_key_id")
    return QueueSettings(
        key=resource.address,
        arn=arn if isinstance(arn, str) else None,
        name=str(name) if name else resource.address,
        scope=file,
        kind="fifo" if kind_known or str(name or "").endswith(".fifo") else "standard",
        visibility_timeout_s=_number(resource.get("visibility_timeout_seconds")),
        retention_s=_number(resource.get("message_retention_seconds")),
        redrive=_redrive(resource, plan),
        redrive_allow=_allow(resource),
        encrypted=True if has_key else managed if isinstance(managed, bool) else None,
        deduplication_scope=resource.get("deduplication_scope") or None,
        throughput_limit=resource.get("fifo_throughput_limit") or None,
    )


def _redrive(resource: _Resource, plan: _Plan) -> Redrive | None:
    text = resource.get("redrive_policy")
    if not text:
        if not resource.is_unknown("redrive_policy"):
            return None
        return Redrive(target=next(iter(plan.referenced(resource, "redrive_policy")), None))
    policy = _parsed(text)
    arn = str(policy.get("deadLetterTargetArn") or "")
    if not arn:
        return None
    count = str(policy.get("maxReceiveCount") or "")
    targets = plan.with_identity(arn, "aws_sqs_queue")
    return Redrive(target=targets[0] if targets else arn, max_receive_count=int(count) if count.isdigit() else None)


def _allow(resource: _Resource) -> RedriveAllow | None:
    policy = _parsed(resource.get("redrive_allow_policy"))
    return redrive_allow(policy) if policy else None


def _consumer(resource: _Resource, plan: _Plan) -> LambdaConsumer:
    functions = plan.referenced(resource, "function_name", "aws_lambda_function")
    function = plan.resources[functions[0]] if functions else None
    batch = _number(resource.get("batch_size"))
    name = (function.get("function_name") or function.address) if function is not None else resource.get("function_name")
    return LambdaConsumer(
        function=place_of_arn(str(name or resource.address)).queue,
        timeout_s=_number(function.values.get("timeout", LAMBDA_TIMEOUT_S)) if function is not None else None,
        batch_size=int(batch) if batch is not None else None,
        batching_window_s=_number(resource.get("maximum_batching_window_in_seconds")) or 0.0,
        reports_item_failures="ReportBatchItemFailures" in (resource.get("function_response_types") or ()),
    )


def _resources(module: Json) -> Iterator[Json]:
    yield from module.get("resources") or ()
    for child in module.get("child_modules") or ():
        yield from _resources(child)


def _plain(address: str) -> str:
    """Return an address without instance indexes and keys."""
    return _INDEX.sub("", address)


def _outer(modules: str) -> tuple[str, str]:
    """Return the path of the enclosing module, and the name of the call in it."""
    names = _MODULE.findall(modules)
    return "".join(f"module.{name}." for name in names[:-1]), names[-1]


def _index_of(address: str) -> str:
    found = re.search(r"\[[^\]]*\]$", address)
    return found[0] if found else ""


def _number(value: object) -> float | None:
    return finite(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _parsed(text: object) -> dict[str, Any]:
    try:
        policy = json.loads(text) if isinstance(text, str) and text else {}
    except ValueError:
        return {}
    return policy if isinstance(policy, dict) else {}
