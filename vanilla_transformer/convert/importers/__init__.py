"""Checkpoints of other systems -> this package's model; one file a system."""
