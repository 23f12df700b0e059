"""What a run needs around the algorithm: ranks, seeds, schedules, checkpoints, logs."""
