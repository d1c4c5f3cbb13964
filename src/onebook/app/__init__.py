"""Wiring of a node, its process, and its reload by SIGHUP."""

from onebook.app.node import Node, running
from onebook.app.process import serve

__all__ = ["Node", "running", "serve"]
