"""The usual alarm on ApproximateAgeOfOldestMessage: over 300 s in 3 of 5 one-minute datapoints.

Metric: https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-available-cloudwatch-metrics.html.
Datapoints are treated as available at once; in fact they arrive minutes late.
"""

from __future__ import annotations

from dataclasses import dataclass

from lab.detect.alarms import Alarm, alarms_of
from lab.detect.rules.cloudwatch_alarm import PERIOD_S, firing
from lab.detect.run import Run


@dataclass(frozen=True)
class CloudWatchAge:
    """`limit_s` is a common choice; M and N keep a single datapoint from paging."""

    limit_s: float = 300.0
    m: int = 3
    n: int = 5
    name: str = "CloudWatch: age > 5 min, 3 of 5"
    source: str = "AWS/SQS ApproximateAgeOfOldestMessage"

    def applies(self, run: Run) -> bool:
        """CloudWatch has SQS queues only."""
        return run.recording.system == "aws_sqs"

    def alarms(self, run: Run) -> list[Alarm]:
        """Return alarms on the main queue: on a dead-letter queue the age shows only that it holds a message."""
        times = run.every(PERIOD_S)
        fires = firing(run.cloudwatch_age_s(run.main, times), self.limit_s, self.m, self.n)
        return alarms_of(run.main, "age", times, fires)
