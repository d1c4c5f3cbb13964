"""`onebook demo`: the whole service on simulated exchanges."""

import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import typer

from onebook import app, config, http
from onebook.accounts.admin import Admin
from onebook.accounts.pepper import load_pepper
from onebook.cli.common import console, reported, run
from onebook.errors import ConfigError
from onebook.model import Tier
from onebook.simulator import SimulatedExchanges
from onebook.simulator.accounts import DEMO_ACCOUNTS
from onebook.store import AuditedChange
from onebook.transactions.credentials import Credentials, Vault, master_keys

USERNAME: Final = "demo"
# Of the demo's key, in percent; invented.
FEES: Final = {"binance": "0.075", "kraken": "0.26", "okx": "0.08", "*": "0.1"}
