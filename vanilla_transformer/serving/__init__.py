"""A server that speaks LibreTranslate's protocol."""
