"""Pairs generated from CLDR, the data of the demo."""
