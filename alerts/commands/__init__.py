"""Commands a runbook reader can paste, per queue system. None of them receives, deletes or moves a message."""
