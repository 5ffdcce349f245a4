"""Training (Section 5): a recipe in, a run directory out."""
