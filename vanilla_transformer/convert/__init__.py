"""Import of other systems' checkpoints, and export to other formats."""
