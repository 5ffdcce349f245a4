"""Publish a model directory on the Hub: checks, card, one commit, demo Space."""

from .publishing import Publication, publish
from .space import publish_space

__all__ = ["Publication", "publish", "publish_space"]
