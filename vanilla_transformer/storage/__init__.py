"""Read and write files: saved models, metrics and outputs."""
