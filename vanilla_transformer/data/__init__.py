"""Sentence pairs: read, tokenised, cached and batched (Section 5.1)."""
