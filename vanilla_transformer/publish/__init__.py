"""From a directory with a model to the Hub."""
