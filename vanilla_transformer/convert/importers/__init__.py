"""Importers of other systems' checkpoints: one module per system."""
