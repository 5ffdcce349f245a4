"""Other systems' checkpoints in, ours out in the formats of others, and engines that run them."""
