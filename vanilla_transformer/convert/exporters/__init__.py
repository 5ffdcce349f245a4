"""Exporters of trained models: one module per format, imported only when used."""
