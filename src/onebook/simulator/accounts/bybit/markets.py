"""The markets of the simulated account, with their price and size steps and their fees."""

from datetime import UTC, datetime
from typing import Final

from onebook.simulator.accounts.amounts import UNIT
from onebook.simulator.accounts.bybit.facts import SimulatedMarket

SPOT_RATE, LINEAR_RATE, INVERSE_RATE = "0.001", "0.00055", "0.0006"
RATES: Final = {
    "spot": UNIT // 1_000,
    "linear": UNIT * 55 // 100_000,
    "inverse": UNIT * 6 // 10_000,
}
RATE_TEXTS: Final = {"spot": SPOT_RATE, "linear": LINEAR_RATE, "inverse": INVERSE_RATE}
MAKER_REBATE: Final = UNIT // 10_000
GST: Final = UNIT * 18 // 100

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
WEIGHTS: Final = (22, 14, 5, 9, 24, 14, 5, 7)  # how often each market is traded


def dated_markets(expires_ms: int) -> tuple[SimulatedMarket, SimulatedMarket]:
    """A linear and an inverse contract that expire on a date."""
    day = datetime.fromtimestamp(expires_ms / 1_000, UTC)
    linear = f"ETHUSDT-{day:%d%b%y}".upper()
    inverse = f"BTCUSD{'FGHJKMNQUVXZ'[day.month - 1]}{day:%y}"
    return (
        SimulatedMarket("linear", linear, "ETH", "USDT", "USDT", 3_000 * UNIT, CENT, CENT),
        SimulatedMarket("inverse", inverse, "BTC", "USD", "BTC", 60_000 * UNIT, TENTH, UNIT),
    )
