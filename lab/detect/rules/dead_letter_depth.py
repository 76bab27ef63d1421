"""The usual alarm on a dead-letter queue: any visible message, one datapoint.

https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/dead-letter-queues-alarms-cloudwatch.html: an alarm on
ApproximateNumberOfMessagesVisible, as NumberOfMessagesSent does not count moves.
"""

from __future__ import annotations

from dataclasses import dataclass

from lab.detect.alarms import Alarm, alarms_of
from lab.detect.rules.cloudwatch_alarm import PERIOD_S, firing
from lab.detect.run import Run


@dataclass(frozen=True)
class DeadLetterDepth:
    """Any depth at a minute's sample."""

    name: str = "dead-letter queue depth > 0"
    source: str = "SQS developer guide, Creating alarms for dead-letter queues using Amazon CloudWatch"

    def applies(self, run: Run) -> bool:
        """It applies where there is a dead-letter queue; on other systems an exporter has the same number."""
        return any(run.is_dead_letter_queue(q) for q in run.recording.settings)

    def alarms(self, run: Run) -> list[Alarm]:
        times = run.every(PERIOD_S)
        return [
            alarm
            for queue in run.recording.settings
            if run.is_dead_letter_queue(queue)
            for alarm in alarms_of(queue, "depth", times, firing(run.visible(queue, times), 0, 1, 1))
        ]
