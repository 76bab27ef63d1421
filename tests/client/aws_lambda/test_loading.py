"""A function that cannot be loaded fails in the log as it does without the wrapper."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from awslambdaric import bootstrap

import queuewatch.aws_lambda
from queuewatch.aws_lambda.original import HANDLER_VARIABLE

_BROKEN = {
    "an attribute error": "import os\n\nos.no_such_name\n",
    "an attribute error of its own": "class NoTable(AttributeError):\n    pass\n\n\nraise NoTable('orders', 3)\n",
    "another error": "raise KeyError('TABLE')\n",
    "no handler": "",
    "an import error": "import no_such_module_anywhere\n",
    "broken source": "def handler(:\n",
}


@pytest.mark.parametrize("source", _BROKEN.values(), ids=_BROKEN)
def test_a_function_that_cannot_be_loaded_fails_as_without_the_wrapper(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The runtime takes an AttributeError for a missing handler, and would hide which line of the function failed."""
    (tmp_path / "broken_app.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv(HANDLER_VARIABLE, "broken_app.handler")
    monkeypatch.delitem(vars(queuewatch.aws_lambda), "handler", raising=False)
    direct, wrapped = _failure("broken_app.handler"), _failure("queuewatch.aws_lambda.handler")
    assert wrapped[:2] == direct[:2]
    assert [line for line in wrapped[2] if "broken_app.py" in line] == [line for line in direct[2] if "broken_app.py" in line]


def _failure(handler: str) -> tuple[str, str, list[str]]:
    """Return type, message and trace of the error that the runtime logs and posts."""
    sys.modules.pop("broken_app", None)
    result: Any
    try:
        bootstrap._get_handler(handler)
    except bootstrap.FaultException as error:
        result = bootstrap.make_error(error.msg, error.exception_type, error.trace)
    except Exception:
        result = bootstrap.build_fault_result(sys.exc_info(), None)
    return result["errorType"], result["errorMessage"], result["stackTrace"] or []
