"""The command line: the parser, and one file for each group of commands."""

from .parser import main

__all__ = ["main"]
