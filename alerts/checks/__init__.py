"""The runbook's checks for each queue system, with commands to paste. None of them receives, deletes or moves a message."""
