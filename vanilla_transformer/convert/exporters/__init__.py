"""From a trained model to what others run: one module a format, none imported before it is used."""
