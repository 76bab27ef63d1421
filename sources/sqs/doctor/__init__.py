"""`queuewatch doctor sqs`: which settings of SQS queues will cause trouble, in an account or in code not yet deployed."""

from sources.sqs.doctor.examine import examine_account, examine_files

__all__ = ["examine_account", "examine_files"]
