"""Helpers for texts: split sentences, encode targets, find unknown words."""
