"""A section of the settings, and where a node keeps its files by default."""

import os
from pathlib import Path

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A table of the settings file: frozen, and nothing unknown in it."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


def data_dir() -> Path:
    """Folder of the database and the secrets, where no setting names another."""
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "onebook"
