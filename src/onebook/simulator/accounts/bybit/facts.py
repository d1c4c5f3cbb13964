"""Records of the simulated account's events; amounts are integers of 10^-12."""

from collections import Counter
from datetime import UTC, datetime
from typing import Final, NamedTuple

from onebook.simulator.accounts.history import UNIT


class SimulatedMarket(NamedTuple):
    """A market of the simulation and its steps."""

    category: str
    symbol: str
    base: str
    quote: str
    settle: str
    price: int
    price_step: int
    size_step: int


class ExecutionRow(NamedTuple):
    """A row of `/v5/execution/list`."""

    market: SimulatedMarket
    execution_id: str
    order_id: str
    link_id: str
    side: str
    price: int
    quantity: int
    value: int
    fee: int
    fee_coin: str
    fee_coin_shown: bool
    rate: str
    kind: str
    maker: bool
    closed: int
    left: int
    tax: int = 0  # on the fee, in its coin


class Order:
    """A row of `/v5/order/history`; it changes until it has ended."""

    __slots__ = (
        "closing",
        "created_ms",
        "done",
        "done_value",
        "entry_value",
        "fee",
        "fees",
        "fills",
        "link_id",
        "market",
        "open_fee",
        "order_id",
        "quantity",
        "side",
        "status",
        "updated_ms",
    )  # fmt: skip

    def __init__(
        self,
        market: SimulatedMarket,
        order_id: str,
        link_id: str,
        side: str,
        quantity: int,
        at_ms: int,
    ) -> None:
        self.market = market
        self.order_id = order_id
        self.link_id = link_id
        self.side = side
        self.quantity = quantity
        self.created_ms = at_ms
        self.updated_ms = at_ms
        self.status = "New"
        self.done = 0
        self.done_value = 0
        self.fee = 0
        self.fees: Counter[str] = Counter()
        self.fills = 0
        self.closing = False
        self.entry_value = 0
        self.open_fee = 0


class LedgerLine(NamedTuple):
    """A row of `/v5/account/transaction-log`."""

    line_id: str
    symbol: str
    category: str
    side: str
    kind: str
    quantity: int
    size: int
    coin: str
    price: int
    funding: int | None
    fee: int
    cash: int
    change: int
    balance: int
    rate: str
    trade_id: str
    order_id: str
    link_id: str
    tax: int = 0


class FundLine(NamedTuple):
    """A row of `/v5/asset/fundinghistory`; Bybit's own example shows one without an id."""

    coin: str
    change: int
    balance: int
    kind: str
    text: str
    identified: bool = True


class Closed(NamedTuple):
    """A row of `/v5/position/closed-pnl`."""

    market: SimulatedMarket
    order_id: str
    side: str
    quantity: int
    entry_value: int
    exit_value: int
    open_fee: int
    close_fee: int
    fills: int
    created_ms: int
    updated_ms: int

    @property
    def pnl(self) -> int:
        """The net result: gross of entry and exit, minus both fees."""
        gross = self.exit_value - self.entry_value
        # A long is closed by selling; the value of an inverse contract falls as its price rises.
        long = (self.side == "Sell") != (self.market.category == "inverse")
        return (gross if long else -gross) - self.open_fee - self.close_fee


class Deposit:
    """A row of a deposit list; its status can still change."""

    __slots__ = (
        "amount", "blocked", "coin", "created_ms", "credited_ms", "internal", "status", "tx_id",
    )  # fmt: skip

    def __init__(
        self,
        coin: str,
        amount: int,
        created_ms: int,
        tx_id: str,
        *,
        internal: bool,
        blocked: bool = False,
    ) -> None:
        self.coin = coin
        self.amount = amount
        self.created_ms = created_ms
        self.credited_ms = 0
        self.tx_id = tx_id
        self.internal = internal
        self.blocked = blocked
        self.status = 1


class Withdrawal:
    """A row of `/v5/asset/withdraw/query-record`; its status can still change."""

    __slots__ = (
        "amount", "coin", "created_ms", "fee", "internal", "status", "tax", "tx_id", "updated_ms",
    )  # fmt: skip

    def __init__(
        self, coin: str, amount: int, fee: int, created_ms: int, tx_id: str, *, internal: bool
    ) -> None:
        self.coin = coin
        self.amount = amount
        self.fee = fee
        self.tax = 0
        self.created_ms = created_ms
        self.updated_ms = created_ms
        self.tx_id = tx_id
        self.internal = internal
        self.status = "Pending"


class Moved(NamedTuple):
    """A row of a transfer list."""

    transfer_id: str
    coin: str
    amount: int
    source: str
    target: str
    from_uid: str
    to_uid: str


class Delivered(NamedTuple):
    """A row of `/v5/asset/delivery-record` or `/v5/asset/settlement-record`."""

    market: SimulatedMarket
    side: str
    size: int
    price: int
    realised: int
    fee: int


SPOT_RATE, LINEAR_RATE, INVERSE_RATE = "0.001", "0.00055", "0.0006"
RATES: Final = {
    "spot": UNIT // 1_000,
    "linear": UNIT * 55 // 100_000,
    "inverse": UNIT * 6 // 10_000,
}
RATE_TEXTS: Final = {"spot": SPOT_RATE, "linear": LINEAR_RATE, "inverse": INVERSE_RATE}
TENTH, CENT, MILLI, MICRO = UNIT // 10, UNIT // 100, UNIT // 1_000, UNIT // 1_000_000
TEN_THOUSANDTH, HUNDRED_THOUSANDTH = UNIT // 10_000, UNIT // 100_000
MARKETS: Final = (
    SimulatedMarket("spot", "BTCUSDT", "BTC", "USDT", "", 60_000 * UNIT, CENT, HUNDRED_THOUSANDTH),
    SimulatedMarket("spot", "ETHUSDT", "ETH", "USDT", "", 3_000 * UNIT, CENT, HUNDRED_THOUSANDTH),
    SimulatedMarket("spot", "ETHBTC", "ETH", "BTC", "", UNIT // 20, MICRO, MILLI),
    SimulatedMarket("spot", "XRPUSDT", "XRP", "USDT", "", UNIT // 2, TEN_THOUSANDTH, CENT),
    SimulatedMarket("linear", "BTCUSDT", "BTC", "USDT", "USDT", 60_000 * UNIT, TENTH, MILLI),
    SimulatedMarket("linear", "ETHUSDT", "ETH", "USDT", "USDT", 3_000 * UNIT, CENT, CENT),
    SimulatedMarket("linear", "BTCPERP", "BTC", "USDC", "USDC", 60_000 * UNIT, TENTH, MILLI),
    SimulatedMarket("inverse", "BTCUSD", "BTC", "USD", "BTC", 60_000 * UNIT, TENTH, UNIT),
)
WEIGHTS: Final = (22, 14, 5, 9, 24, 14, 5, 7)  # relative trading frequency of each market


def dated_markets(expires_ms: int) -> tuple[SimulatedMarket, SimulatedMarket]:
    """A linear and an inverse contract that expire on a date."""
    day = datetime.fromtimestamp(expires_ms / 1_000, UTC)
    linear = f"ETHUSDT-{day:%d%b%y}".upper()
    inverse = f"BTCUSD{'FGHJKMNQUVXZ'[day.month - 1]}{day:%y}"
    return (
        SimulatedMarket("linear", linear, "ETH", "USDT", "USDT", 3_000 * UNIT, CENT, CENT),
        SimulatedMarket("inverse", inverse, "BTC", "USD", "BTC", 60_000 * UNIT, TENTH, UNIT),
    )
