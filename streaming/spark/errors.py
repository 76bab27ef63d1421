"""What can keep the job from starting or going on."""

from __future__ import annotations


class JobError(RuntimeError):
    """`problem` says what is wrong and names it, `fix` what to do about it."""

    def __init__(self, problem: str, fix: str) -> None:
        self.problem = problem
        self.fix = fix
        super().__init__(f"{problem}. {fix}")


class SourceUnavailable(JobError):
    """A source of telemetry does not answer, or is not there."""


class CheckpointMismatch(JobError):
    """The configuration does not fit the checkpoint it names."""


class CheckpointInUse(JobError):
    """Another job works on the checkpoint."""


class QueryFailed(JobError):
    """The streaming query failed more often in a row than the configuration allows."""


class SparkDied(JobError):
    """Spark's Java process is gone."""
