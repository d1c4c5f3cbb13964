"""Rows as OKX sends them, and recorded bodies."""

from typing import Any

from onebook.transactions.markets import Markets
from onebook.transactions.okx.instruments import guess, listed
from onebook.transactions.okx.rows import BillContext
from transactions.recorded import Samples

SAMPLES = Samples("okx")
CONTEXT = BillContext("mainnet", Markets(listed, guess))
AT_MS = 1_695_033_476_167


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
