"""Gateway processes and a feeds process behind one port: `onebook serve --workers`."""

from onebook.workers.group import STARTED as STARTED
from onebook.workers.group import serve as serve
