"""How good translations and models are."""
