"""`queuewatch doctor sqs`: which settings of SQS queues will hurt, in an account or in code that is not deployed yet."""

from sources.sqs.doctor.examine import examine_account, examine_files

__all__ = ["examine_account", "examine_files"]
