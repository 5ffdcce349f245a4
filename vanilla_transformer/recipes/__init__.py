"""Recipes: what to train, and on which pairs."""
