"""The health of the job itself: progress, losses, and whether it hangs."""
