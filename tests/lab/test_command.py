"""The laboratory's command line."""

from __future__ import annotations

import pytest

from lab.__main__ import main


@pytest.mark.parametrize("command", ["matrix", "incidents", "detect"])
def test_a_name_that_no_scenario_has_is_refused(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With a typo nothing would run, and `--strict` would pass."""
    with pytest.raises(SystemExit) as ended:
        main([command, "--only", "healthy", "hungry_consumers"])
    assert ended.value.code == 2
    assert "--only hungry_consumers: no scenario has this in its name; there are " in capsys.readouterr().err
