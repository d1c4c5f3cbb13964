"""Currencies, chains and instruments of the simulated OKX, the words of its bills, and row ids.

Amounts are integers of 10^-16: OKX shows balances of the trading account with 16 decimals. Times
are Unix milliseconds. https://www.okx.com/docs-v5/en/#public-data-rest-api-get-instruments
"""

import hashlib
from datetime import UTC, datetime
from random import Random
from typing import Final, NamedTuple

from onebook.model import DAY_MS

HOUR_MS: Final = 3_600_000
DECIMALS: Final = 16
UNIT: Final = 10**DECIMALS
MILLI, MICRO, NANO8 = UNIT // 1_000, UNIT // 10**6, UNIT // 10**8


def ms_of(date: str) -> int:
    """Return the time of a date, `2024-01-31`, at midnight UTC."""
    return round(datetime.fromisoformat(date).replace(tzinfo=UTC).timestamp()) * 1_000


def times(left: int, right: int) -> int:
    """Multiply two amounts; truncates below 10^-16, towards zero."""
    result = abs(left * right) // UNIT
    return result if (left < 0) == (right < 0) else -result


def per(left: int, right: int) -> int:
    """Divide two amounts; truncates below 10^-16, towards zero."""
    result = abs(left) * UNIT // abs(right)
    return result if (left < 0) == (right < 0) else -result


def cut_to(units: int, step: int) -> int:
    """Round an amount towards zero to a multiple of a step."""
    return abs(units) // step * step * (1 if units >= 0 else -1)


# Instruments ------------------------------------------------------------------------------


class OkxInstrument(NamedTuple):
    """An instrument; prices move around `price`, and `weight` is its relative trading frequency."""

    id: str
    kind: str  # SPOT, SWAP, FUTURES or OPTION
    base: str
    settle: str  # the quote of a pair, or the currency of margin and P&L
    price: int
    tick: int
    lot: int
    weight: int = 1
    value: int = 0  # of one contract: in the base, or in dollars if inverse
    multiple: int = UNIT  # of an option
    inverse: bool = False
    since: int = 0
    until: int = 2**63
    strike: int = 0
    option: str = ""  # C or P

    def open(self, at: int) -> bool:
        """Return whether it is traded at a time."""
        return self.since <= at < self.until

    def price_at(self, at: int, random: Random) -> int:
        """Draw a price: within two years it falls from 1.5 to 0.6 of the usual price and rises
        again."""
        wave = abs(at // HOUR_MS % 17_520 - 8_760)
        moved = self.price * (6_000 + wave) // 10_000 * random.randrange(9_950, 10_051) // 10_000
        return max(self.tick, cut_to(moved, self.tick))

    def worth(self, contracts: int, price: int) -> int:
        """Return the value of contracts in the settlement currency."""
        if self.inverse:
            return per(times(contracts, self.value), price)
        return times(times(times(contracts, self.value), self.multiple), price)


def _pair(
    id_: str, price: int, tick: int, lot: int, weight: int, settle: str = "", since: int = 0,
    until: int = 2**63,
) -> OkxInstrument:  # fmt: skip
    base, quote = id_.split("-")
    return OkxInstrument(
        id_, "SPOT", base, settle or quote, price, tick, lot, weight, since=since, until=until
    )


def _swap(id_: str, price: int, tick: int, value: int, weight: int) -> OkxInstrument:
    base, quote, _ = id_.split("-")
    inverse = quote == "USD"
    settle = base if inverse else quote
    lot = UNIT if inverse else UNIT // 100
    return OkxInstrument(
        id_, "SWAP", base, settle, price, tick, lot, weight, value, inverse=inverse
    )


CENT: Final = UNIT // 100
TENTH: Final = UNIT // 10
MATIC_ENDED: Final = ms_of("2024-09-10")
UNIFIED: Final = ms_of("2025-08-20")  # order books in dollars that several currencies can pay
PAIRS: Final = {
    each.id: each
    for each in (
        _pair("BTC-USDT", 55_000 * UNIT, TENTH, NANO8, 24),
        _pair("ETH-USDT", 2_800 * UNIT, CENT, MICRO, 18),
        _pair("SOL-USDT", 100 * UNIT, CENT, MICRO, 8),
        _pair("ETH-BTC", 52 * MILLI, 10 * MICRO, MICRO, 8),
        _pair("XRP-USDT", 55 * CENT, 10 * MICRO, MICRO, 5),
        _pair("DOGE-USDT", 12 * CENT, 10 * MICRO, MICRO, 5),
        _pair("OKB-USDT", 45 * UNIT, 10 * MILLI, MICRO, 4),
        _pair("LTC-USDT", 90 * UNIT, CENT, MICRO, 4),
        _pair("BTC-USDC", 55_000 * UNIT, TENTH, NANO8, 4),
        _pair("BTC-EUR", 50_000 * UNIT, TENTH, NANO8, 4, since=ms_of("2023-11-01")),
        _pair("USDC-USDT", UNIT, UNIT // 10_000, MICRO, 3),
        _pair("MATIC-USDT", 80 * CENT, UNIT // 10_000, MICRO, 3, until=MATIC_ENDED),
        _pair("BTC-USD", 55_000 * UNIT, TENTH, NANO8, 6, settle="USDC", since=UNIFIED),
    )
}
SWAPS: Final = {
    each.id: each
    for each in (
        _swap("BTC-USDT-SWAP", 55_000 * UNIT, TENTH, CENT, 8),
        _swap("ETH-USDT-SWAP", 2_800 * UNIT, CENT, TENTH, 6),
        _swap("SOL-USDT-SWAP", 100 * UNIT, CENT, UNIT, 3),
        _swap("BTC-USD-SWAP", 55_000 * UNIT, TENTH, 100 * UNIT, 3),
        _swap("ETH-USD-SWAP", 2_800 * UNIT, CENT, 10 * UNIT, 2),
    )
}
SPOT_MARKETS, SPOT_WEIGHTS = tuple(PAIRS.values()), tuple(each.weight for each in PAIRS.values())
SWAP_MARKETS, SWAP_WEIGHTS = tuple(SWAPS.values()), tuple(each.weight for each in SWAPS.values())
SETTLED_DAILY: Final = ms_of("2025-01-01")  # dated contracts, since then
EXPIRY_HOUR: Final = 8  # of a day, UTC


def expiry_after(at: int, days: int) -> int:
    """Return an expiry some days after a time: 08:00 UTC."""
    return (at // DAY_MS + days) * DAY_MS + EXPIRY_HOUR * HOUR_MS


def dated(base: str, expiry: int) -> OkxInstrument:
    """Return the contract on a coin that is delivered at a time."""
    swap, day = SWAPS[f"{base}-USD-SWAP"], datetime.fromtimestamp(expiry // 1_000, UTC)
    return swap._replace(id=f"{base}-USD-{day:%y%m%d}", kind="FUTURES", until=expiry)


def option(base: str, expiry: int, strike: int, kind: str) -> OkxInstrument:
    """Return an option, settled in its coin; its price is a fraction of a coin."""
    day = datetime.fromtimestamp(expiry // 1_000, UTC)
    return OkxInstrument(
        f"{base}-USD-{day:%y%m%d}-{strike // UNIT}-{kind}", "OPTION", base, base, 4 * CENT,
        UNIT // 10_000, UNIT, 1, UNIT, CENT, until=expiry, strike=strike, option=kind,
    )  # fmt: skip


# Chains -----------------------------------------------------------------------------------


class OkxChain(NamedTuple):
    """A chain of a currency; `apart` charges the fee in a separate bill."""

    id: str
    size: int  # of a usual deposit
    fee: int
    decimals: int = 8
    apart: bool = False

    @property
    def ccy(self) -> str:
        """Its currency."""
        return self.id.split("-")[0]


CHAINS: Final = (
    OkxChain("BTC-Bitcoin", UNIT // 4, UNIT * 4 // 10_000),
    OkxChain("BTC-Lightning", UNIT // 100, UNIT // 100_000, apart=True),
    OkxChain("ETH-ERC20", 4 * UNIT, UNIT * 35 // 10_000),
    OkxChain("ETH-Arbitrum One", 2 * UNIT, UNIT // 10_000),
    OkxChain("USDT-TRC20", 5_000 * UNIT, 4 * UNIT // 5, 6),
    OkxChain("USDT-ERC20", 9_000 * UNIT, 3 * UNIT, 6),
    OkxChain("USDC-ERC20", 4_000 * UNIT, 2 * UNIT, 6),
    OkxChain("SOL-Solana", 60 * UNIT, UNIT // 100),
    OkxChain("XRP-Ripple", 4_000 * UNIT, UNIT // 5, 6),
    OkxChain("DOGE-Dogecoin", 20_000 * UNIT, 4 * UNIT),
    OkxChain("OKB-X Layer", 80 * UNIT, UNIT // 100),
)
MASTER: Final = "44705892343619584"  # the id of the account
SUB_ACCOUNT: Final = "hahatest1"


# Words ------------------------------------------------------------------------------------

# Bill types of the trading account and their subtypes, as account/subtypes lists them.
BILL_WORDS: Final[dict[str, tuple[str, dict[str, str]]]] = {
    "1": ("Transfer", {"11": "Transfer in", "12": "Transfer out", "290": "Crypto dust out"}),
    "2": ("Trade", {"1": "Buy", "2": "Sell", "3": "Open long", "4": "Open short",
                    "5": "Close long", "6": "Close short"}),
    "3": ("Delivery", {"112": "Delivery long", "113": "Delivery short", "170": "Exercised",
                       "171": "Counterparty exercised", "172": "Expired OTM"}),
    "4": ("Forced repayment", {"114": "Forced repayment buy", "115": "Forced repayment sell"}),
    "5": ("Liquidation", {"100": "Partial liquidation close long",
                          "101": "Partial liquidation close short", "104": "Liquidation long",
                          "105": "Liquidation short", "109": "Liquidation fee",
                          "110": "Liquidation transfer in", "111": "Liquidation transfer out"}),
    "6": ("Margin transfer", {"160": "Manual margin increase", "161": "Manual margin decrease",
                              "162": "Auto margin increase"}),
    "7": ("Interest deduction", {"9": "Interest deduction for Market loans",
                                 "14": "Interest deduction for VIP loans"}),
    "8": ("Funding fee", {"173": "Funding fee expense", "174": "Funding fee income"}),
    "9": ("ADL", {"125": "ADL close long", "126": "ADL close short", "127": "ADL buy",
                  "128": "ADL sell"}),
    "10": ("Clawback", {"108": "Clawback", "117": "Delivery clawback"}),
    "11": ("System token conversion", {"118": "System token conversion transfer in",
                                       "119": "System token conversion transfer out"}),
    "12": ("Strategy transfer", {"200": "System transfer in", "201": "Manually transfer in",
                                 "202": "System transfer out", "203": "Manually transfer out"}),
    "13": ("DDH", {"131": "ddh buy", "132": "ddh sell"}),
    "14": ("Block trade", {"204": "Block trade buy", "205": "Block trade sell",
                           "206": "Block trade open long", "207": "Block trade open short",
                           "208": "Block trade close long", "209": "Block trade close short"}),
    "15": ("Quick Margin", {"210": "Manual Borrowing", "211": "Manual Repayment",
                            "212": "Auto borrow", "213": "Auto repay"}),
    "16": ("Borrowing", {"306": "Manual borrow", "307": "Auto borrow"}),
    "18": ("Profit sharing", {"280": "SPOT profit sharing expenses",
                              "281": "SPOT profit sharing refund",
                              "282": "Spot profit share income"}),
    "22": ("Repay", {"308": "Manual repay", "309": "Auto repay", "312": "Auto offset"}),
    "24": ("Spread trading", {"270": "Spread trading buy", "271": "Spread trading sell",
                              "272": "Spread trading open long",
                              "273": "Spread trading open short",
                              "274": "Spread trading close long",
                              "275": "Spread trading close short"}),
    "26": ("Structured products", {"296": "From structured order placements",
                                   "297": "To structured order placements",
                                   "298": "From structured settlements",
                                   "299": "To structured settlements"}),
    "27": ("Convert", {"318": "Convert in", "319": "Convert out"}),
    "28": ("Easy convert", {"236": "Easy convert in", "237": "Easy convert out"}),
    "29": ("One-click repay", {"224": "Repayment transfer in", "225": "Repayment transfer out"}),
    "30": ("Simple trade", {"320": "Simple buy", "321": "Simple sell"}),
    "32": ("Move position", {"324": "Move position buy", "325": "Move position sell"}),
    "34": ("Settlement", {"355": "Settlement PnL"}),
    "250": ("Copy trader profit sharing expenses", {"250": "Profit sharing expenses"}),
    "251": ("Copy trader profit sharing refund", {"251": "Profit sharing refund"}),
    "381": ("Auto earn", {"381": "Auto earn (auto lend)"}),
}  # fmt: skip


# Ids --------------------------------------------------------------------------------------

# An id of the trading system consists of the milliseconds since an epoch and bits of a counter;
# both epochs are New Year in Hong Kong, and can be derived from recorded ids.
IDS_CHANGED: Final = ms_of("2024-06-01")
_OLD: Final = (ms_of("2019-01-01") - 8 * HOUR_MS, 22)
_NEW: Final = (ms_of("2023-01-01") - 8 * HOUR_MS, 25)
FUNDING_IDS: Final = (20_000_000, 3)


def trading_id(time: int, seq: int) -> int:
    """Derive the id of a bill, order or position; ids rise with places."""
    epoch, bits = _OLD if time < IDS_CHANGED else _NEW
    return (time - epoch) << bits | seq


def trading_place(id_: int) -> tuple[float, float]:
    """Return the place of an id, which need not belong to a row."""
    old = id_ < trading_id(IDS_CHANGED, 0)
    epoch, bits = _OLD if old else _NEW
    time = (id_ >> bits) + epoch
    return (
        (IDS_CHANGED - 1, float("inf")) if old and time >= IDS_CHANGED
        else (time, id_ & (1 << bits) - 1)
    )  # fmt: skip


def funding_bill_id(seq: int) -> int:
    """Derive the id of a funding bill."""
    return FUNDING_IDS[0] + seq * FUNDING_IDS[1]


def funding_seq(id_: int) -> tuple[int, bool]:
    """Return the number of the last funding bill up to an id, and whether it has that id."""
    seq, rest = divmod(id_ - FUNDING_IDS[0], FUNDING_IDS[1])
    return seq, not rest


def digest_of(kind: str, number: int) -> str:
    """Derive a hash from a number, such as that of a transaction on a chain."""
    return hashlib.sha256(f"okx {kind} {number}".encode()).hexdigest()
