"""Base class of the sections, and the default data folder."""

import os
from pathlib import Path

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A table of the settings file: immutable, without unknown names."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


def data_dir() -> Path:
    """Default folder of the database and the secrets."""
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "onebook"
