"""Pictures (Figures 3-5)."""
