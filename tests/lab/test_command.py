"""The laboratory's command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.__main__ import main


@pytest.mark.parametrize("command", ["matrix", "incidents", "detect"])
def test_a_name_that_no_scenario_has_is_refused(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With a typo nothing would run, and `--strict` would pass."""
    with pytest.raises(SystemExit) as ended:
        main([command, "--only", "healthy", "hungry_consumers"])
    assert ended.value.code == 2
    assert "--only hungry_consumers: no scenario has this in its name; there are " in capsys.readouterr().err


@pytest.mark.simulation
def test_the_folder_of_the_results_is_made(tmp_path: Path) -> None:
    """`build/`, which the documentation names, does not exist in a new clone."""
    file = tmp_path / "build" / "new" / "matrix.json"
    assert (
        main(
            [
                "matrix",
                "--only",
                "healthy_idle",
                "--kind",
                "standard",
                "--basis",
                "attributes",
                "--jobs",
                "1",
                "--json",
                str(file),
            ]
        )
        == 0
    )
    assert file.read_text().startswith("[")


def test_results_that_cannot_be_written_are_refused_before_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SystemExit) as ended:
        main(["detect", "--json", str(tmp_path / "file" / "detect.json")])
    assert ended.value.code == 2
    assert "detect.json: cannot be written: " in capsys.readouterr().err


@pytest.mark.parametrize("command", ["incidents", "detect"])
def test_options_with_which_nothing_runs_are_an_error(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """ActiveMQ has no FIFO queues, so all of none would hold."""
    assert main([command, "--only", "mq_slow", "--kind", "fifo"]) == 2
    assert "no scenario" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("scenario", "kind", "other"), [("look_ahead_saturated", "standard", "fifo"), ("mq_gone", "fifo", "standard")]
)
def test_a_scenario_is_not_recorded_on_a_queue_where_it_cannot_happen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], scenario: str, kind: str, other: str
) -> None:
    """The fault of its labels would be in none of its events."""
    assert main(["record", scenario, "--kind", kind, "--out", str(tmp_path / "out")]) == 2
    assert f"{scenario} cannot happen in a {kind} queue: use --kind {other}" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["week", "--hours", "-1"], "--hours: -1 is not a positive number"),
        (["week", "--trigger", "nan"], "--trigger: nan is not a positive number"),
        (["incidents", "--jobs", "0"], "--jobs: 0 is not 1 or more"),
    ],
)
def test_a_number_with_which_nothing_can_run_is_refused(
    capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    """Of a week of less than no time, all would hold."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err
