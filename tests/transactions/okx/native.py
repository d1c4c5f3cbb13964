"""Rows as OKX sends them, and recorded bodies."""

import os
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

from msgspec import json

from onebook.transactions.markets import Markets
from onebook.transactions.okx.instruments import guess, listed
from onebook.transactions.okx.rows import BillContext

CONTEXT = BillContext("mainnet", Markets(listed, guess))
DECODER = json.Decoder(float_hook=Decimal)
AT_MS = 1_695_033_476_167


def samples() -> Path | None:
    """The folder of recorded bodies, if this machine has it."""
    root = Path(__file__).resolve().parents[3]
    folder = Path(os.environ.get("ONEBOOK_SAMPLES") or root.parent / "shared" / "samples")
    return folder / "okx" if (folder / "okx").is_dir() else None


@cache
def body(name: str) -> Any:
    folder = samples()
    assert folder is not None
    return DECODER.decode((folder / name).read_bytes())


def trading(**fields: Any) -> dict[str, Any]:
    """A bill of the trading account."""
    base = {
        "bal": "10", "balChg": "1", "billId": "623950854533513219", "ccy": "USDT", "clOrdId": "",
        "execType": "", "fee": "0", "fillTime": "", "from": "", "instId": "", "instType": "",
        "interest": "0", "mgnMode": "", "notes": "", "ordId": "", "pnl": "0", "posBal": "0",
        "posBalChg": "0", "px": "", "subType": "", "sz": "", "tag": "", "to": "", "tradeId": "",
        "ts": str(AT_MS), "type": "1",
    }  # fmt: skip
    return base | fields


def funding(**fields: Any) -> dict[str, Any]:
    """A bill of the funding account."""
    base = {
        "billId": "12344", "ccy": "BTC", "clientId": "", "balChg": "2", "bal": "12", "type": "1",
        "ts": str(AT_MS), "notes": "",
    }  # fmt: skip
    return base | fields
