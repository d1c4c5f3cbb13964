"""The protocols that are spoken here: of each exchange in the registry, its module's `DIALECT`."""

from importlib import import_module
from typing import Final

from onebook.exchanges import NAMES
from onebook.simulator.kit.board import Dialect

DIALECTS: Final[dict[str, type[Dialect]]] = {
    name: import_module(f"onebook.simulator.{name}").DIALECT for name in NAMES
}
