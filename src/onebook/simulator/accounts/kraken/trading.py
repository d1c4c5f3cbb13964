"""Spot trading of the simulated Kraken account: orders and fills, margin positions, conversions.

A fill is one row of TradesHistory and, under its id, two ledger rows: base and quote, with the fee
in the quote, in the base, or in fee credits, which add a third row. A leg that rounds to zero is
missing. A margin position has rows of type margin, rollover and settled instead. Trades made with
the Buy button (spend and receive) are missing from the list of trades.
"""

from typing import Final

from onebook.simulator.accounts.blocks import Acts
from onebook.simulator.accounts.history import UNIT, product, quotient
from onebook.simulator.accounts.kraken.facts import (
    SEVEN_DECIMALS,
    TRADESPOT,
    BookedRow,
    ClosedPosition,
    SpotOrder,
    SpotTrade,
)
from onebook.simulator.accounts.kraken.generator import BlockBooks
from onebook.simulator.accounts.kraken.names import (
    ASSETS,
    HOUR_TICKS,
    LOT_DECIMALS,
    MARKETS,
    MS_TICKS,
    PAIRS,
    TICKS,
    TOKENS,
    WEIGHTS,
    ListedPair,
    cut,
    nearest,
)

MAKER_RATE, TAKER_RATE = UNIT * 16 // 10_000, UNIT * 26 // 10_000
MARGIN_RATE: Final = UNIT * 2 // 10_000
TOKEN_RATE: Final = UNIT // 1_000
LEAST_LOT: Final = UNIT // 100_000
CREDITS_A_QUOTE: Final = 100  # fee credits per unit of the quote, as for a dollar


class SpotTrading:
    """Generates orders, fills, margin positions and conversions, and books them."""

    def __init__(self, books: BlockBooks) -> None:
        self._books = books
        self._random = books.random

    def acts(self) -> Acts:
        """Return the possible events, by name."""
        return {
            "order": self.order,
            "dust trade": self.dust_trade,
            "margin position": self.open_position,
            "rollover": self.roll_over,
            "position end": self.end_position,
            "conversion": self.convert,
            "conversion with two fees": lambda at: self.convert(at, fees=2),
            "sale": lambda at: self.convert(at, types=("sale", "sale")),
            "native conversion": lambda at: self.convert(at, types=("conversion", "conversion")),
            "token trade": self.trade_token,
        }

    # Orders ---------------------------------------------------------------------------------

    def order(self, at: int) -> None:
        """Place an order with one to three fills, or one that is cancelled."""
        pair = self._random.choices(MARKETS, cum_weights=WEIGHTS)[0]
        if not pair.open(at):
            return
        price = pair.price_at(at, self._random)
        side = self._random.choice(("buy", "sell"))
        volume = self._affordable(pair, side, price)
        if volume < LEAST_LOT:
            side = "sell" if side == "buy" else "buy"
            volume = self._affordable(pair, side, price)
            if volume < LEAST_LOT:
                return
        maker = self._random.random() < 0.5
        ordertype = "limit" if maker or self._random.random() < 0.4 else "market"
        mode = self._fee_mode()
        oflags = "fcib" if mode == "base" else "fciq"
        order = self._books.number("order")
        if self._random.random() < 0.04:
            opened = at - self._random.randrange(TICKS, 20 * TICKS)
            at = self._books.moment(at)
            self._close(order, pair, side, ordertype, price, volume, opened, at, [], oflags)
            return
        parts = self._random.choice((1, 1, 1, 2, 3))
        fills: list[SpotTrade] = []
        opened, left = at - self._random.randrange(TICKS), volume
        for part in range(parts):
            size = left if part == parts - 1 else cut(left // (parts - part), LOT_DECIMALS)
            left -= size
            fills.append(self._fill(at, order, pair, side, ordertype, price, size, mode, maker))
            at += self._random.choice((0, 0, 1_000, 11_000, TICKS // 2))
        self._close(
            order, pair, side, ordertype, price, volume, opened, fills[-1].time, fills, oflags
        )

    def _affordable(self, pair: ListedPair, side: str, price: int) -> int:
        """Return a volume worth up to four percent of the balance that pays for it."""
        share, parts = self._random.randrange(1, 40), max(1_000, self._books.history.rows // 10)
        if side == "sell":
            return cut(self._books.held(pair.base) * share // parts, LOT_DECIMALS)
        worth = self._books.held(pair.quote) * share // parts
        return cut(worth * UNIT // price, LOT_DECIMALS)

    def _fee_mode(self) -> str:
        drawn = self._random.random()
        if drawn < 0.1:
            return "base"
        return "credits" if drawn < 0.2 and self._books.held("KFEE") else "quote"

    def _fill(
        self,
        at: int,
        order: int,
        pair: ListedPair,
        side: str,
        ordertype: str,
        price: int,
        volume: int,
        mode: str,
        maker: bool,
    ) -> SpotTrade:
        cost = nearest(product(price, volume), pair.cost_decimals)
        rate = MAKER_RATE if maker else TAKER_RATE
        fee = nearest(product(cost, rate), pair.cost_decimals)
        at, number = self._time(at), self._books.number("trade")
        rows = self._book_fill(at, number, pair, side, cost, volume, fee, mode, rate)
        trade = SpotTrade(
            at, number, pair, side, ordertype, price, cost, fee, volume, order, maker,
            tuple(row.seq for row in rows),
        )  # fmt: skip
        self._books.block.trades.append(trade)
        self._books.done("trade", ("T", number), rows)
        return trade

    def _time(self, at: int) -> int:
        """Return the time of a fill, with the decimals that Kraken used at that time."""
        return self._books.moment(at if at >= SEVEN_DECIMALS else at // 1_000 * 1_000)

    def _book_fill(
        self,
        at: int,
        number: int,
        pair: ListedPair,
        side: str,
        cost: int,
        volume: int,
        fee: int,
        mode: str,
        rate: int,
    ) -> list[BookedRow]:
        """Book the legs of a fill, in a random order of rows and times."""
        sign = 1 if side == "buy" else -1
        base, quote = ASSETS[pair.base].decimals, ASSETS[pair.quote].decimals
        fees = {"base": 0, "quote": nearest(fee, quote), "credits": 0}
        if mode == "base" and side == "buy":
            fees |= {"base": cut(product(volume, rate), base), "quote": 0}
        elif mode == "credits":
            due = nearest(fee * CREDITS_A_QUOTE, 2)
            fees["credits"] = min(due, self._books.held("KFEE"))
            left = (due - fees["credits"]) // CREDITS_A_QUOTE
            fees["quote"] = nearest(left, quote)
        legs = [
            (pair.base, sign * cut(volume, base), fees["base"]),
            (pair.quote, -sign * nearest(cost, quote), fees["quote"]),
        ]
        if fees["credits"]:
            legs.append(("KFEE", 0, fees["credits"]))
        if self._random.random() < 0.5:
            legs.reverse()
        kind, reference = ("tradespot" if at >= TRADESPOT else ""), ("T", number)
        rows = []
        for asset, amount, charged in legs:
            if amount or charged:
                rows.append(
                    self._books.row(
                        at, "trade", asset, amount, reference, fee=charged, subtype=kind
                    )
                )
            at += self._random.choice((0, 0, 5_000))
        return rows

    def _close(
        self,
        order: int,
        pair: ListedPair,
        side: str,
        ordertype: str,
        price: int,
        volume: int,
        opened: int,
        closed: int,
        fills: list[SpotTrade],
        oflags: str,
    ) -> None:
        self._books.block.orders.append(
            SpotOrder(
                closed, order, pair, side, ordertype, price, volume,
                sum(each.volume for each in fills), sum(each.cost for each in fills),
                sum(each.fee for each in fills), opened, tuple(each.seq for each in fills), oflags,
            )
        )  # fmt: skip

    def dust_trade(self, at: int) -> None:
        """Sell so little that the quote rounds to zero: the ledger then has one leg."""
        pair, volume = PAIRS["XDGEUR"], UNIT // 100_000
        if self._books.held(pair.base) < volume:
            return
        price, order = pair.price_at(at, self._random), self._books.number("order")
        fill = self._fill(at, order, pair, "sell", "market", price, volume, "quote", False)
        self._close(order, pair, "sell", "market", price, volume, at, fill.time, [fill], "fciq")

    # Margin positions -----------------------------------------------------------------------

    def open_position(self, at: int) -> None:
        """Open a position, which is rolled over and then closed, liquidated or settled."""
        pair = PAIRS[self._random.choice(("XXBTZUSD", "XXBTZEUR", "XETHZEUR"))]
        price, side = pair.price_at(at, self._random), self._random.choice(("buy", "sell"))
        volume = self._affordable(pair, "buy", price)
        if volume < LEAST_LOT:
            return
        trade = self._margin_trade(at, pair, side, "limit", price, volume, self._leverage())
        row = self._books.row(
            trade.time, "margin", pair.quote, 0, ("T", trade.seq),
            fee=nearest(trade.fee, ASSETS[pair.quote].decimals),
        )  # fmt: skip
        self._finish(trade, [row], "margin opening")
        self._books.state.margin[trade.seq] = trade
        for hours in range(4, 4 * self._random.randrange(2, 7), 4):
            self._books.later(trade.time + hours * HOUR_TICKS, "rollover", trade.seq)
        end = trade.time + self._random.randrange(4, 30) * HOUR_TICKS + 7 * TICKS
        self._books.later(end, "position end", trade.seq)

    def _leverage(self) -> int:
        return self._random.randrange(2, 6)

    def _margin_trade(
        self,
        at: int,
        pair: ListedPair,
        side: str,
        ordertype: str,
        price: int,
        volume: int,
        leverage: int,
        opened: int = 0,
    ) -> SpotTrade:
        cost = nearest(product(price, volume), pair.cost_decimals)
        margin = cut(cost // leverage, pair.cost_decimals)
        fee = nearest(product(cost, TAKER_RATE), pair.cost_decimals)
        return SpotTrade(
            self._time(at), self._books.number("trade"), pair, side, ordertype, price, cost, fee,
            volume, self._books.number("order"), False, (), margin, leverage,
            "closing" if opened else "", opened,
        )  # fmt: skip

    def _finish(self, trade: SpotTrade, rows: list[BookedRow], kind: str) -> None:
        trade = trade._replace(ledger=tuple(row.seq for row in rows))
        self._books.block.trades.append(trade)
        self._books.done(kind, ("T", trade.seq), rows)
        self._close(
            trade.order, trade.pair, trade.side, trade.ordertype, trade.price, trade.volume,
            trade.time - TICKS, trade.time, [trade], "fciq",
        )  # fmt: skip

    def roll_over(self, at: int, number: int) -> None:
        """Charge the fee for four more hours."""
        trade = self._books.state.margin.get(number)
        if trade is None:
            return
        asset = trade.pair.quote
        fee = nearest(product(trade.cost, MARGIN_RATE), ASSETS[asset].decimals)
        if fee:
            row = self._books.row(at, "rollover", asset, 0, ("T", number), fee=fee)
            self._books.done("rollover", ("T", number), [row])

    def end_position(self, at: int, number: int) -> None:
        """Close a position by a trade, or settle it in kind."""
        trade = self._books.state.margin.pop(number, None)
        if trade is None:
            return
        drawn = self._random.random()
        if drawn < 0.25 and self._settle(at, trade):
            return
        pair, ordertype = trade.pair, "liquidation market" if drawn > 0.85 else "market"
        price = pair.price_at(at, self._random)
        side = "sell" if trade.side == "buy" else "buy"
        closing = self._margin_trade(
            at, pair, side, ordertype, price, trade.volume, trade.leverage, number
        )
        sign = 1 if trade.side == "buy" else -1
        net, decimals = sign * (closing.cost - trade.cost), ASSETS[pair.quote].decimals
        loss_max = self._books.held(pair.quote) // 2
        net = max(net, -loss_max)
        fee = nearest(closing.fee, decimals)
        amount = nearest(net, decimals)
        row = self._books.row(
            closing.time, "margin", pair.quote, amount, ("T", closing.seq), fee=fee
        )
        self._finish(closing, [row], "margin closing")
        self._books.block.closed.append(
            ClosedPosition(
                number, price, closing.cost, closing.fee, closing.volume, closing.margin, amount
            )
        )

    def _settle(self, at: int, trade: SpotTrade) -> bool:
        """Settle a position by handing over base for quote; False if the balance does not
        suffice."""
        pair, sign = trade.pair, 1 if trade.side == "buy" else -1
        legs = (
            (pair.base, sign * cut(trade.volume, ASSETS[pair.base].decimals)),
            (pair.quote, -sign * nearest(trade.cost, ASSETS[pair.quote].decimals)),
        )
        if any(self._books.held(asset) + amount < 0 for asset, amount in legs):
            return False
        reference = ("T", trade.seq)
        rows = [self._books.row(at, "settled", asset, amount, reference) for asset, amount in legs]
        self._books.done("settlement", reference, rows)
        self._books.block.closed.append(
            ClosedPosition(trade.seq, trade.price, trade.cost, 0, trade.volume, trade.margin, 0)
        )
        return True

    # Conversions ----------------------------------------------------------------------------

    def convert(
        self, at: int, fees: int = 1, types: tuple[str, str] = ("spend", "receive")
    ) -> None:
        """Spend one asset and receive another, sometimes in reverse time order."""
        pair = self._random.choice([pair for pair in MARKETS if pair.open(at)])
        price, buys = pair.price_at(at, self._random), self._random.random() < 0.7
        volume = self._affordable(pair, "buy" if buys else "sell", price)
        cost = cut(product(price, volume), ASSETS[pair.quote].decimals)
        volume = cut(volume, ASSETS[pair.base].decimals)
        if not volume or not cost:
            return
        spent, got = (pair.quote, cost), (pair.base, volume)
        if not buys:
            spent, got = got, spent
        charged = cut(spent[1] // 70, ASSETS[spent[0]].decimals)
        also = cut(got[1] // 1_000, ASSETS[got[0]].decimals) if fees == 2 else 0
        reference = ("S", self._books.number("other"))
        receive_ms = self._random.choice((-9, 4, 12)) * MS_TICKS
        rows = [
            self._books.row(at, types[0], spent[0], -spent[1], reference, fee=charged),
            self._books.row(at + receive_ms, types[1], got[0], got[1], reference, fee=also),
        ]
        self._books.done("conversion", reference, rows)

    def trade_token(self, at: int) -> None:
        """Trade a tokenized asset for euros through dollars, whose two rows cancel out."""
        token = self._random.choice(tuple(TOKENS))
        held, price = self._books.held(token), TOKENS[token]
        reference = ("S", self._books.number("other"))
        sells = held > 0 and self._random.random() < 0.4
        if sells:
            count = cut(held * self._random.randrange(100, 1_000) // 1_000, 10)
        else:
            count = cut(self._random.randrange(1, 30) * UNIT // 7, 10)
        dollars = cut(product(price, count), 4)
        euros = cut(quotient(dollars, UNIT * 108 // 100), 4)
        if not euros or (not sells and self._books.held("ZEUR") < 2 * euros):
            return
        fee = cut(product(euros, TOKEN_RATE), 4)
        outer = (token, count, 0), ("ZEUR", euros, fee)
        (spent, amount, cost), (got, received, charged) = outer if sells else outer[::-1]
        rows = [
            self._books.row(at, "spend", spent, -amount, reference, fee=cost),
            self._books.row(at, "receive", "ZUSD", dollars, reference),
            self._books.row(at, "spend", "ZUSD", -dollars, reference),
            self._books.row(at, "receive", got, received, reference, fee=charged),
        ]
        self._books.done("token trade", reference, rows)
