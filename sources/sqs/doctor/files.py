"""Read the queues in a file, whose kind is recognised by its content."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import yaml

from sources.sqs.doctor.cloudformation import MalformedTemplate, is_template, read_template
from sources.sqs.doctor.settings import Queues
from sources.sqs.doctor.terraform import is_plan, read_plan

_BINARY_PLAN: Final = b"PK\x03\x04"
AS_JSON: Final = "terraform show -json FILE > plan.json"
_GIVE: Final = f"give a Terraform plan as JSON ({AS_JSON}) or a CloudFormation template"


class UnreadableFile(Exception):
    """A file that is neither a plan nor a template; the message begins with its path and names the remedy."""

    def __init__(self, path: Path, words: str) -> None:
        self.path = path
        super().__init__(f"{path}{words}")


class _Loader(yaml.SafeLoader):
    """YAML with CloudFormation's short forms, `!GetAtt a.b` for `Fn::GetAtt: a.b`."""


def _short_form(loader: _Loader, suffix: str, node: yaml.Node) -> Any:
    value: Any
    if isinstance(node, yaml.ScalarNode):
        value = loader.construct_scalar(node)
    elif isinstance(node, yaml.SequenceNode):
        value = loader.construct_sequence(node, deep=True)
    else:
        assert isinstance(node, yaml.MappingNode)
        value = loader.construct_mapping(node, deep=True)
    return {suffix if suffix in ("Ref", "Condition") else f"Fn::{suffix}": value}


_Loader.add_multi_constructor("!", _short_form)


def read_queues(path: Path) -> Queues:
    """Read the queues of a Terraform plan or a CloudFormation template. Raises `UnreadableFile`."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UnreadableFile(path, f": {error.strerror}; {_GIVE}") from error
    if content.startswith(_BINARY_PLAN):
        raise UnreadableFile(
            path, f" is a Terraform plan in its binary form; write it as JSON: {AS_JSON.replace('FILE', str(path))}"
        )
    document = _parsed(path, content)
    try:
        if is_plan(document):
            return read_plan(document, str(path))
        if is_template(document):
            return read_template(document, str(path))
    except MalformedTemplate as error:
        raise UnreadableFile(path, f": {error}") from error
    except (AttributeError, TypeError, KeyError, ValueError, RecursionError) as error:
        # For example a list instead of a mapping: Terraform or CloudFormation would refuse it, too.
        raise UnreadableFile(path, f" has not the shape of a plan or template ({type(error).__name__}: {error})") from error
    raise UnreadableFile(
        path,
        f" is neither a Terraform plan as JSON ({AS_JSON}) nor a CloudFormation template: it has no planned_values and "
        "no Resources",
    )


def _parsed(path: Path, content: bytes) -> Any:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UnreadableFile(path, " is not text: name a Terraform plan as JSON or a CloudFormation template") from None
    try:
        return _loaded(text)
    except RecursionError:
        raise UnreadableFile(
            path, " is nested too deeply: it is neither a Terraform plan nor a CloudFormation template"
        ) from None
    except (yaml.YAMLError, ValueError) as error:
        # A date that does not exist is a plain ValueError.
        raise UnreadableFile(path, f" is neither JSON nor YAML: {' '.join(str(error).split())}") from error


def _loaded(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return yaml.load(text, Loader=_Loader)  # noqa: S506 -- a safe loader with CloudFormation's tags
