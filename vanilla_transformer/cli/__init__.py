"""The command line: the parser, and one file per group of commands."""

from .parser import main

__all__ = ["main"]
