"""Read queues of a CloudFormation or SAM template, JSON or YAML; `cdk synth` writes one, too.

Intrinsic functions are evaluated where the template itself gives their value: references to its own resources, parameters
with a default, text with substitutions. Everything else is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from queuewatch.places import place_of_arn
from sources.sqs.doctor.settings import LAMBDA_TIMEOUT_S, LambdaConsumer, Queues, QueueSettings, Redrive, RedriveAllow, finite

Json = Mapping[str, Any]

# AWS's defaults where a template sets nothing.
_VISIBILITY_S: Final = 30.0
_RETENTION_S: Final = 345_600.0
_LAMBDA_BATCH: Final = 10

_FUNCTION: Final = "AWS::Lambda::Function"
_SAM_FUNCTION: Final = "AWS::Serverless::Function"
_MOST_STEPS: Final = 3
"""From a mapping over an alias to a function; a template with a circle is not followed for ever."""

_VARIABLE: Final = re.compile(r"\$\{([^!}][^}]*)\}")


class MalformedTemplate(Exception):
    """A template with a value that CloudFormation would refuse; the message names its resource."""


class Unknown:
    """A value that the template does not state."""


UNKNOWN: Final = Unknown()


@dataclass(frozen=True, slots=True)
class Reference:
    """A value that refers to a resource of the template."""

    logical_id: str


def is_template(document: object) -> bool:
    """Whether a document is a template."""
    return isinstance(document, dict) and isinstance(document.get("Resources"), dict)


def read_template(document: Json, file: str) -> Queues:
    """Return the queues a template declares. `file` is its name in findings."""
    template = _Template(document)
    settings = {name: _settings(name, properties, template, file) for name, properties in template.of_type("AWS::SQS::Queue")}
    for queue, consumer in (*_mappings(template), *_sam_events(template)):
        if queue in settings:
            settings[queue] = replace(settings[queue], consumers=(*settings[queue].consumers, consumer))
    return Queues.of(settings.values())


class _Template:
    def __init__(self, document: Json) -> None:
        self.document = document
        self.resources: dict[str, Json] = {
            str(name): found for name, found in document["Resources"].items() if isinstance(found, dict)
        }

    def of_type(self, type_: str) -> Iterator[tuple[str, Json]]:
        """Yield logical id and properties of each resource of a type."""
        for name, found in self.resources.items():
            if found.get("Type") == type_:
                yield name, self.properties(name)

    def type_of(self, logical_id: str) -> object:
        """Return the type of a resource."""
        return self.resources[logical_id].get("Type")

    def properties(self, logical_id: str) -> Json:
        """Return a resource's properties as written. Raises `MalformedTemplate`."""
        return _mapping(self.resources[logical_id], "Properties", f"resource {logical_id}")

    def value(self, written: Any) -> Any:
        """Return text, number, list or mapping as written; `Reference`; or `UNKNOWN`."""
        if not isinstance(written, dict) or len(written) != 1:
            return written
        [(function, argument)] = written.items()
        if function == "Ref":
            return self._named(str(argument))
        if function == "Fn::GetAtt":
            parts = argument if isinstance(argument, list) else str(argument).split(".")
            return Reference(str(parts[0])) if parts and parts[0] in self.resources else UNKNOWN
        if function == "Fn::Sub":
            return self._substituted(argument)
        if function == "Fn::Join":
            return self._joined(argument)
        return UNKNOWN if function.startswith("Fn::") else written

    def _named(self, name: str) -> Any:
        if name in self.resources:
            return Reference(name)
        parameter = (self.document.get("Parameters") or {}).get(name)
        if isinstance(parameter, dict) and "Default" in parameter:
            return parameter["Default"]
        if name == "AWS::NoValue":
            return None  # As if the property were not set.
        # Account and region are the same throughout the template.
        return f"${{{name}}}" if name.startswith("AWS::") else UNKNOWN

    def _substituted(self, argument: Any) -> Any:
        text, extra = argument if isinstance(argument, list) else (argument, {})
        whole = _VARIABLE.fullmatch(str(text))
        parts: list[Any] = []
        for position, part in enumerate(_VARIABLE.split(str(text))):
            if position % 2 == 0:
                parts.append(part)
            elif part in extra:
                parts.append(self.value(extra[part]))
            else:
                parts.append(self._named(part.split(".")[0]))
        if whole is not None:
            return parts[1]
        return self._text(parts)

    def _joined(self, argument: Any) -> Any:
        if not isinstance(argument, list) or len(argument) != 2 or not isinstance(argument[1], list):
            return UNKNOWN
        found: list[Any] = []
        for part in argument[1]:
            found += [str(argument[0]), self.value(part)]
        return self._text(found[1:])

    def _text(self, parts: list[Any]) -> Any:
        """Join to one text. A resource in it is replaced by its name where that is given, which is how ARNs are built."""
        words = []
        for part in parts:
            if isinstance(part, Reference):
                name = self.name_of(part.logical_id)
                if name is None:
                    return UNKNOWN
                words.append(name)
            elif part is UNKNOWN:
                return UNKNOWN
            else:
                words.append(str(part))
        return "".join(words)

    def name_of(self, logical_id: str) -> str | None:
        """Return a resource's own name, where the template gives it one."""
        properties = self.properties(logical_id)
        name = self.value(properties.get("QueueName", properties.get("FunctionName")))
        return name if isinstance(name, str) else None

    def find(self, written: Any, type_: str) -> str | None:
        """Return the logical id of the resource a value refers to, by reference or by its name in an ARN."""
        value = self.value(written)
        if isinstance(value, Reference):
            return value.logical_id
        if not isinstance(value, str):
            return None
        name = value.split(":")[-1]
        return next((logical for logical, _ in self.of_type(type_) if self.name_of(logical) == name), None)


def _settings(logical_id: str, properties: Json, template: _Template, file: str) -> QueueSettings:
    name = template.name_of(logical_id)
    fifo = template.value(properties.get("FifoQueue"))
    key = template.value(properties.get("KmsMasterKeyId"))
    managed = template.value(properties.get("SqsManagedSseEnabled"))
    return QueueSettings(
        key=logical_id,
        name=name or logical_id,
        scope=file,
        kind="fifo" if fifo in (True, "true") or (name or "").endswith(".fifo") else "standard",
        visibility_timeout_s=_number(template, properties, "VisibilityTimeout", _VISIBILITY_S),
        retention_s=_number(template, properties, "MessageRetentionPeriod", _RETENTION_S),
        redrive=_redrive(properties.get("RedrivePolicy"), template),
        redrive_allow=_allow(properties.get("RedriveAllowPolicy"), template),
        encrypted=True if key else False if managed in (False, "false") else None,
        deduplication_scope=_word(template, properties, "DeduplicationScope"),
        throughput_limit=_word(template, properties, "FifoThroughputLimit"),
    )


def _redrive(written: Any, template: _Template) -> Redrive | None:
    policy = template.value(written)
    if policy is None:
        return None
    if not isinstance(policy, dict):
        return Redrive()
    target = policy.get("deadLetterTargetArn")
    found = template.find(target, "AWS::SQS::Queue")
    arn = template.value(target)
    count = template.value(policy.get("maxReceiveCount"))
    return Redrive(
        target=found or (arn if isinstance(arn, str) and place_of_arn(arn).scope else None),
        max_receive_count=int(count) if str(count).isdigit() else None,
    )


def _allow(written: Any, template: _Template) -> RedriveAllow | None:
    policy = template.value(written)
    if not isinstance(policy, dict):
        return None
    permission = template.value(policy.get("redrivePermission", "allowAll"))
    listed = template.value(policy.get("sourceQueueArns"))
    names: set[str] = set()
    for source in listed if isinstance(listed, list) else ():
        found = template.find(source, "AWS::SQS::Queue")
        value = template.value(source)
        if found is None and not isinstance(value, str):
            return RedriveAllow(permission=str(permission))
        names.add((template.name_of(found) or found) if found is not None else place_of_arn(str(value)).queue)
    return RedriveAllow(permission=str(permission), sources=frozenset(names) if isinstance(listed, list) else None)


def _mappings(template: _Template) -> Iterator[tuple[str, LambdaConsumer]]:
    for _, properties in template.of_type("AWS::Lambda::EventSourceMapping"):
        queue = template.find(properties.get("EventSourceArn"), "AWS::SQS::Queue")
        function = _function(properties.get("FunctionName"), template)
        if queue is not None and template.value(properties.get("Enabled")) not in (False, "false"):
            yield queue, _consumer(function, properties, template)


def _function(written: Any, template: _Template) -> str | None:
    """Return the logical id of the function that a value refers to, perhaps through an alias or a version of it."""
    for _ in range(_MOST_STEPS):
        found = template.find(written, _FUNCTION) or template.find(written, _SAM_FUNCTION)
        if found is None or template.type_of(found) not in ("AWS::Lambda::Alias", "AWS::Lambda::Version"):
            return found
        written = template.properties(found).get("FunctionName")
    return None


def _sam_events(template: _Template) -> Iterator[tuple[str, LambdaConsumer]]:
    for logical_id, properties in template.of_type(_SAM_FUNCTION):
        for name, event in _mapping(properties, "Events", f"resource {logical_id}").items():
            if not isinstance(event, dict) or event.get("Type") != "SQS":
                continue
            source = _mapping(event, "Properties", f"event {name} of resource {logical_id}")
            queue = template.find(source.get("Queue"), "AWS::SQS::Queue")
            if queue is not None and template.value(source.get("Enabled")) not in (False, "false"):
                yield queue, _consumer(logical_id, source, template)


def _consumer(function: str | None, mapping: Json, template: _Template) -> LambdaConsumer:
    types = template.value(mapping.get("FunctionResponseTypes"))
    batch = _number(template, mapping, "BatchSize", _LAMBDA_BATCH)
    return LambdaConsumer(
        function=(template.name_of(function) or function) if function is not None else "of another template",
        timeout_s=_timeout(function, template) if function is not None else None,
        batch_size=int(batch) if batch is not None else None,
        batching_window_s=_number(template, mapping, "MaximumBatchingWindowInSeconds", 0.0) or 0.0,
        reports_item_failures=None if types is UNKNOWN else "ReportBatchItemFailures" in (types or ()),
    )


def _timeout(function: str, template: _Template) -> float | None:
    properties = template.properties(function)
    globals_: Json = (template.document.get("Globals") or {}).get("Function") or {}
    is_sam = template.type_of(function) == _SAM_FUNCTION
    if not is_sam and template.type_of(function) != _FUNCTION:
        return None  # a resource of another kind, such as a nested stack, whose output names the function
    default = _number(template, globals_, "Timeout", LAMBDA_TIMEOUT_S) if is_sam else LAMBDA_TIMEOUT_S
    return _number(template, properties, "Timeout", default)


def _mapping(holder: Json, key: str, holder_name: str) -> Json:
    value = holder.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise MalformedTemplate(f"{key} of {holder_name} must be a mapping of names to values")
    return value


def _number(template: _Template, properties: Json, name: str, default: float | None) -> float | None:
    """Return the number of a property, `default` where the template does not set it, None where it is unknown."""
    value = template.value(properties.get(name))
    if value is None:
        return default
    return finite(value) if isinstance(value, int | float | str) else None


def _word(template: _Template, properties: Json, name: str) -> str | None:
    value = template.value(properties.get(name))
    return value if isinstance(value, str) else None
