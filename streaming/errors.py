"""Errors that keep the job from starting or continuing."""

from __future__ import annotations


class JobError(RuntimeError):
    """An error with its remedy: `problem` says what is wrong and where, `fix` how to correct it."""

    def __init__(self, problem: str, fix: str) -> None:
        self.problem = problem
        self.fix = fix
        super().__init__(f"{problem}. {fix}")


class SourceUnavailable(JobError):
    """A source of telemetry does not answer or does not exist."""


class CheckpointMismatch(JobError):
    """The configuration does not fit the checkpoint it names."""


class CheckpointInUse(JobError):
    """Another job uses the checkpoint."""


class CheckpointUnwritable(JobError):
    """The folder of the checkpoint cannot be created, locked or written."""


class QueryFailed(JobError):
    """The streaming query failed more often in a row than the configuration allows."""


class SparkDied(JobError):
    """Spark's Java process has ended."""
