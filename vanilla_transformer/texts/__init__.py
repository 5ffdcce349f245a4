"""What texts look like, whatever reads or translates them."""
