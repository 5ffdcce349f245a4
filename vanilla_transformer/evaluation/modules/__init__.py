"""Our measures as modules of `evaluate`, for `evaluate.load(vanilla_transformer.metric(...))`."""
