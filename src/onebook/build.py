"""What this installation was built with: compiled extensions or their pure-Python versions."""

import logging
import platform
from collections.abc import Mapping
from typing import Any, Final

from onebook import __version__, core
from onebook.gateway import direct
from onebook.metrics import BUILD

log = logging.getLogger("onebook.app")

COMPILABLE: Final[Mapping[str, Any]] = {
    "core": core,
    "last step to clients": direct,
}


def missing_extensions() -> list[str]:
    """The extensions that were not compiled, or were compiled for another picows."""
    return [name for name, module in COMPILABLE.items() if not module.COMPILED]


def warn_of_missing_extensions() -> None:
    """Log which compiled extensions are missing."""
    missing = missing_extensions()
    if missing:
        log.warning(
            "Compiled extensions unavailable (%s); using the slower pure-Python versions. "
            "Reinstall with a C compiler.",
            ", ".join(missing),
        )


def publish_build() -> None:
    """Set the build information metric."""
    compiled = "no" if missing_extensions() else "yes"
    BUILD.info({"version": __version__, "python": platform.python_version(), "compiled": compiled})
