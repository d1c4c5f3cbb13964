"""Dependency wiring of a node, its process and its reload by SIGHUP."""

from onebook.app.node import Node
from onebook.app.process import serve
from onebook.app.wiring import running

__all__ = ["Node", "running", "serve"]
