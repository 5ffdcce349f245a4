"""Publish a model directory on the Hub: checks, card, one commit, demo Space."""

from .publishing import Publication, publish, publish_folder
from .space import publish_space

__all__ = ["Publication", "publish", "publish_folder", "publish_space"]
