"""A node: built from its parts, run as a process, changed by SIGHUP. The one place that wires."""

from onebook.app.node import Node
from onebook.app.process import serve
from onebook.app.wiring import running

__all__ = ["Node", "running", "serve"]
