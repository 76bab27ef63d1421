"""The wrappers' settings: an unusable name costs no event."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from queuewatch import aws_lambda as layer
from queuewatch.aws_lambda.settings import settings_from
from queuewatch.environment import CONSUMER_VARIABLE
from tests.services.node import find_node
from tests.services.provider import Services

MODULE = Path(layer.__file__).parent / "node/settings.mjs"
NAMES = {CONSUMER_VARIABLE: "\U0001f4e6" * 600, "QUEUEWATCH_SCOPE": "s" * 600}
CUT = ["\U0001f4e6" * 512, "s" * 512]


def test_the_python_wrapper_cuts_names_that_the_service_refuses(caplog: pytest.LogCaptureFixture) -> None:
    """The service refuses each event with a name of more than 512 characters."""
    found = settings_from(NAMES)
    assert [found.consumer, found.scope] == CUT
    assert [message.split()[1] for message in caplog.messages] == [*NAMES]


def test_the_node_wrapper_cuts_names_that_the_service_refuses(services: Services) -> None:
    """The service refuses each event with a name of more than 512 characters."""
    script = f"""
        import {{ settingsFrom }} from {json.dumps(MODULE.as_uri())};
        const logged = [];
        const {{ consumer, scope }} = settingsFrom({json.dumps(NAMES)}, (text) => logged.push(text.split(" ")[1]));
        console.log(JSON.stringify([consumer, scope, logged]));
    """
    command = [services.found(find_node).executable, "--input-type=module", "--eval", script]
    found = json.loads(subprocess.run(command, capture_output=True, check=True, timeout=30).stdout)
    assert found == [*CUT, [*NAMES]]
