"""The checks of the runbook, per queue system, with commands to paste. None of them receives, deletes or moves a message."""
