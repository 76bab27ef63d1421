"""docs/lambda.md: its commands run, and the settings and files that it names exist."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import zipfile
from pathlib import Path

import boto3
import pytest

from queuewatch.aws_lambda.layer import build

_ROOT = Path(__file__).parents[3]
_PAGE = (_ROOT / "docs/lambda.md").read_text()
_COMMANDS = [line for block in re.findall(r"```sh\n(.*?)```", _PAGE, re.DOTALL) for line in block.splitlines()]
_PYTHON = [command for command in _COMMANDS if command.startswith("python ")]
_AWS = [command for command in _COMMANDS if command.startswith("aws ")]


def test_there_are_commands_to_run() -> None:
    """The page has commands of both kinds, and no others."""
    assert len(_PYTHON) == 2
    assert _AWS
    assert len(_PYTHON) + len(_AWS) == len(_COMMANDS)


@pytest.mark.parametrize("command", _PYTHON)
def test_the_layers_are_built_by_the_commands_shown(command: str, tmp_path: Path) -> None:
    """The layers contain the handler that the page sets."""
    words = shlex.split(command)
    subprocess.run([sys.executable, *words[1:]], cwd=tmp_path, check=True, capture_output=True)
    archive = tmp_path / words[-1]
    assert archive.stat().st_size < 1_000_000
    names = zipfile.ZipFile(archive).namelist()
    if "python" in words[-1]:
        assert "python/queuewatch/aws_lambda/__init__.py" in names
        assert "`queuewatch.aws_lambda.handler`" in _PAGE
    else:
        assert "nodejs/node_modules/queuewatch-lambda/handler.mjs" in names
        assert "`/opt/nodejs/node_modules/queuewatch-lambda/handler.handler`" in _PAGE


def test_a_layer_that_cannot_be_written_is_named_in_one_line(tmp_path: Path) -> None:
    """No traceback."""
    (tmp_path / "file").touch()
    out = tmp_path / "file" / "layer.zip"
    command = [sys.executable, "-m", "queuewatch.aws_lambda.layer", "python", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert f"{out} cannot be written:" in line


@pytest.mark.parametrize("command", _AWS)
def test_the_aws_commands_use_existing_api_options(command: str) -> None:
    """The CLI is generated from the same model as boto3: service, operation and options must be in it."""
    _, service, operation, *options = shlex.split(command)
    client = boto3.client(service, region_name="us-east-1")  # type: ignore[call-overload]
    api = client.meta.method_to_api_mapping[operation.replace("-", "_")]
    members = {name.lower() for name in client.meta.service_model.operation_model(api).input_shape.members}
    given = {option.removeprefix("--").replace("-", "") for option in options if option.startswith("--")}
    assert given <= members | {"zipfile"}  # the CLI's own name for a part of Content


def test_the_settings_shown_are_those_that_both_runtimes_read() -> None:
    """The page's table lists the settings of Python and of Node.js."""
    folder = _ROOT / "client/queuewatch/aws_lambda"
    shown = set(re.findall(r"QUEUEWATCH_[A-Z_]+", _PAGE))
    python = {"QUEUEWATCH_TOKEN", "QUEUEWATCH_TOKEN_FILE"}  # read by the transports
    for file in (*folder.glob("*.py"), folder.parent / "environment.py"):
        python |= set(re.findall(r"QUEUEWATCH_[A-Z_]+", file.read_text()))
    node = set()
    for file in (folder / "node").glob("*.mjs"):
        node |= set(re.findall(r"QUEUEWATCH_[A-Z_]+", file.read_text()))
    assert shown == python == node


def test_the_same_files_make_the_same_layer(tmp_path: Path) -> None:
    """Rebuilding from the same files must not look like a change to a deployment."""
    for runtime in ("python", "node"):
        first, second = build(runtime, tmp_path / "1.zip"), build(runtime, tmp_path / "2.zip")
        assert first.read_bytes() == second.read_bytes()


def test_there_is_no_layer_for_other_runtimes(tmp_path: Path) -> None:
    """The error names the supported runtimes."""
    with pytest.raises(ValueError, match="one for python and one for node"):
        build("cobol", tmp_path / "layer.zip")


def test_the_packages_have_one_version() -> None:
    """The Node.js layer and the library have the same version."""
    version = re.search(r'^version = "(.+?)"', (_ROOT / "client/pyproject.toml").read_text(), re.MULTILINE)
    assert version is not None
    assert f'"version": "{version[1]}"' in (_ROOT / "client/queuewatch/aws_lambda/node/package.json").read_text()
