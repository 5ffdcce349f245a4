"""Import of other systems' checkpoints, export to other formats, and engines that run exports."""
