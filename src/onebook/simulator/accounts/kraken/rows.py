"""Encodes the rows of the simulated Kraken, as JSON and in exported files.

Spot amounts are text with all decimals of their asset or pair, times are numbers of seconds; Kraken
Futures sends amounts as JSON floats in its log and as text in its events.
https://docs.kraken.com/api-reference/account-data/get-ledgers-info
"""

from datetime import UTC, datetime
from typing import Any, Final

from msgspec import Raw

from onebook.simulator.accounts.history import SCALE, shown
from onebook.simulator.accounts.kraken.facts import (
    SEVEN_DECIMALS,
    BookedRow,
    ClosedPosition,
    FuturesFill,
    LoggedRow,
    Movement,
    SpotOrder,
    SpotTrade,
)
from onebook.simulator.accounts.kraken.names import (
    ASSETS,
    LOT_DECIMALS,
    MS_TICKS,
    STEPS,
    TICKS,
    Contract,
    ListedAsset,
    ListedPair,
    hash_of,
    id_of,
    ticks_of,
    uuid_of,
)

Row = dict[str, Any]
SUBCLASS: Final = ticks_of("2026-01-01")  # from then on, ledger rows contain it
NETWORKS: Final = ticks_of("2022-11-01")  # from then on, withdrawals have a network
ACCOUNT_UID: Final = uuid_of("account", 1)
IIBAN: Final = "AA08 N84G CPAR UN7A"


def fixed(units: int, decimals: int) -> str:
    """Format an amount with a number of decimals."""
    sign, units = ("-" if units < 0 else ""), abs(units) // STEPS[decimals]
    whole, part = divmod(units, 10**decimals)
    return f"{sign}{whole}.{part:0{decimals}}"


def seconds(ticks: int) -> Raw:
    """Write a time as a JSON number of seconds, with its own number of decimals."""
    whole, part = divmod(ticks, TICKS)
    return Raw(f"{whole}.{part:07}".rstrip("0").rstrip(".").encode())


def number(units: int | None) -> Raw | None:
    """Write an amount as a JSON float: small ones with an exponent."""
    if units is None:
        return None
    text = shown(units)
    digits = str(abs(units)).rstrip("0")
    if units and abs(units) < 10 ** (SCALE - 4):
        exponent = SCALE - len(str(abs(units))) + 1
        fraction = f".{digits[1:]}" if len(digits) > 1 else ""
        text = f"{'-' if units < 0 else ''}{digits[0]}{fraction}e-{exponent:02}"
    elif "." not in text:
        text += ".0"
    return Raw(text.encode())


def iso(ticks: int) -> str:
    """Write a time as ISO 8601 with milliseconds."""
    at = datetime.fromtimestamp(ticks // TICKS, UTC)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{ticks // MS_TICKS % 1_000:03}Z"


# Spot -------------------------------------------------------------------------------------


def ledger(row: BookedRow, now: int) -> Row:
    """A row of Ledgers, without its id."""
    asset = ASSETS[row.asset]
    facts = {
        "refid": row.reference,
        "time": seconds(row.time),
        "type": row.type,
        "subtype": row.subtype,
        "aclass": asset.aclass,
        "asset": row.asset,
        "amount": fixed(row.amount, asset.decimals),
        "fee": fixed(row.fee, asset.decimals),
        "balance": fixed(row.balance, asset.decimals),
    }
    return facts | ({"subclass": asset.subclass} if now >= SUBCLASS else {})


def pair_name(pair: ListedPair, now: int) -> str:
    """The name of a pair in a trade: its id, or another name if it is delisted."""
    return pair.id if pair.open(now) else pair.altname


def trade(row: SpotTrade, now: int, closed: ClosedPosition | None, *, ledgers: bool) -> Row:
    """A row of TradesHistory, without its id."""
    decimals = row.pair.cost_decimals
    facts: Row = {
        "ordertxid": id_of("O", row.order),
        "postxid": id_of("T", row.opened or row.seq),
        "pair": pair_name(row.pair, now),
        "time": seconds(row.time),
        "type": row.side,
        "ordertype": row.ordertype,
        "price": fixed(row.price, decimals),
        "cost": fixed(row.cost, decimals),
        "fee": fixed(row.fee, decimals),
        "vol": fixed(row.volume, LOT_DECIMALS),
        "margin": fixed(row.margin, decimals),
        "misc": row.misc,
    }
    if row.margin:
        facts["leverage"] = str(row.leverage)
    if row.time >= SEVEN_DECIMALS:  # from then on, trades contain them
        facts |= {"trade_id": 40_000_000 + row.seq, "maker": row.maker}
    if row.margin and not row.opened:
        facts["posstatus"] = "open" if closed is None else "closed"
    if closed is not None:
        facts |= {
            "cprice": fixed(closed.price, decimals), "ccost": fixed(closed.cost, decimals),
            "cfee": fixed(closed.fee, decimals), "cvol": fixed(closed.volume, LOT_DECIMALS),
            "cmargin": fixed(closed.margin, decimals), "net": fixed(closed.net, decimals),
            "trades": [],
        }  # fmt: skip
    if ledgers:
        facts["ledgers"] = [id_of("L", seq) for seq in row.ledger]
    return facts


def order(row: SpotOrder, now: int, *, trades: bool) -> Row:
    """A row of ClosedOrders, without its id."""
    pair, decimals, zero = (
        row.pair,
        row.pair.cost_decimals,
        "0" if row.ordertype == "market" else "",
    )
    price = zero or fixed(row.price, pair.price_decimals)
    average = row.cost * 10**SCALE // row.executed if row.executed else 0
    volume = fixed(row.volume, LOT_DECIMALS)
    what = f"{row.side} {volume} {pair.altname} @ {row.ordertype}"
    facts: Row = {
        "refid": None,
        "userref": row.seq % 1_000,
        "status": "closed" if row.trades else "canceled",
        "reason": None if row.trades else "User requested",
        "opentm": seconds(row.opened),
        "closetm": seconds(row.time),
        "starttm": 0,
        "expiretm": 0,
        "descr": {
            "pair": pair.altname,
            "type": row.side,
            "ordertype": row.ordertype,
            "price": price,
            "price2": "0",
            "leverage": "none",
            "order": what if zero else f"{what} {price}",
            "close": "",
        },
        "vol": volume,
        "vol_exec": fixed(row.executed, LOT_DECIMALS),
        "cost": fixed(row.cost, decimals),
        "fee": fixed(row.fee, decimals),
        "price": fixed(average, decimals),
        "stopprice": fixed(0, decimals),
        "limitprice": fixed(0, decimals),
        "misc": "",
        "oflags": row.oflags,
    }
    return facts | ({"trades": [id_of("T", seq) for seq in row.trades]} if trades else {})


def position(row: SpotTrade) -> Row:
    """A row of OpenPositions, without its id."""
    decimals = row.pair.cost_decimals
    return {
        "ordertxid": id_of("O", row.order),
        "posstatus": "open",
        "pair": row.pair.id,
        "time": seconds(row.time),
        "type": row.side,
        "ordertype": row.ordertype,
        "cost": fixed(row.cost, decimals),
        "fee": fixed(row.fee, decimals),
        "vol": fixed(row.volume, LOT_DECIMALS),
        "vol_closed": fixed(0, LOT_DECIMALS),
        "margin": fixed(row.margin, decimals),
        "value": fixed(row.cost, 1),
        "net": "+" + fixed(0, 4),
        "terms": "0.0100% per 4 hours",
        "rollovertm": str(row.time // TICKS + 4 * 3_600),
        "misc": row.misc,
        "oflags": "",
    }


def movement(move: Movement, now: int) -> Row:
    """A row of DepositStatus or WithdrawStatus at a time."""
    decimals = ASSETS[move.asset].decimals
    failed = 0 < move.failed <= now
    sent = 0 < move.booked <= now
    facts: Row = {
        "method": move.method,
        "aclass": "currency",
        "asset": move.asset,
        "refid": move.refid,
        "txid": _txid(move) if sent or (move.incoming and now - move.asked > 120 * TICKS) else None,
        "info": hash_of(move.seq * 11)[:40] if move.network else None,
        "amount": fixed(move.amount, decimals),
        "time": move.asked // TICKS,
        "status": _status(move, now, failed=failed, sent=sent),
    }
    if move.fee_shown:
        facts["fee"] = fixed(move.fee, decimals)
    if move.prop and (failed or move.prop == "on-hold"):
        facts["status-prop"] = move.prop
    elif move.prop == "canceled":
        facts["status-prop"] = "cancel-pending"
    if move.originator:
        facts["originators"] = [f"0x{move.originator}"]
    if not move.incoming:
        facts["key"] = f"{ASSETS[move.asset].altname.lower()}-wallet-{1 + move.seq % 3}"
        if move.asked >= NETWORKS:
            facts["network"] = move.network
    return facts


def _txid(move: Movement) -> str:
    digest = hash_of(move.seq)
    return digest if ASSETS[move.asset].subclass == "crypto" else str(int(digest[:8], 16))


def _status(move: Movement, now: int, *, failed: bool, sent: bool) -> str:
    if failed:
        return "Failure"
    if sent:
        return "Success"
    if now - move.asked < 60 * TICKS:
        return "Initial"
    return "Settled" if move.incoming and 0 < move.booked < now + 600 * TICKS else "Pending"


def allocation(asset: str, units: int) -> Row:
    """An item of Earn/Allocations."""
    amount = {"native": fixed(units, ASSETS[asset].decimals), "converted": "0.0000"}
    since = {"created_at": "2024-02-01T00:00:00Z", "expires": "2024-03-01T00:00:00Z"}
    bonding = {"allocation_count": 1, "allocations": [amount | since]}
    return {
        "strategy_id": _strategy_id(asset),
        "native_asset": ASSETS[asset].name,
        "amount_allocated": {"total": amount, "bonding": amount | bonding},
        "total_rewarded": {"native": "0", "converted": "0.0000"},
    }


def strategy(asset: str) -> Row:
    """An item of Earn/Strategies."""
    return {
        "id": _strategy_id(asset),
        "asset": ASSETS[asset].name,
        "lock_type": {"type": "flex", "payout_frequency": 604_800},
        "apr_estimate": {"low": "1.0000", "high": "4.0000"},
        "user_min_allocation": "0.01",
        "allocation_fee": "0.0000",
        "deallocation_fee": "0.0000",
        "auto_compound": {"type": "enabled"},
        "yield_source": {"type": "staking"},
        "can_allocate": True,
        "can_deallocate": True,
        "allocation_restriction_info": [],
    }


def _strategy_id(asset: str) -> str:
    return id_of("ES", 1 + list(ASSETS).index(asset))


def asset_facts(asset: ListedAsset) -> Row:
    """A value of Assets."""
    facts: Row = {
        "aclass": asset.aclass,
        "altname": asset.altname,
        "decimals": asset.decimals,
        "display_decimals": asset.display,
        "status": "enabled",
    }
    return facts | ({"collateral_value": 1.0} if asset.id in ("ZUSD", "ZEUR", "XXBT") else {})


def pair_facts(pair: ListedPair) -> Row:
    """A value of AssetPairs."""
    margin = [2, 3, 4, 5] if pair.weight > 10 else []
    return {
        "altname": pair.altname,
        "wsname": pair.wsname,
        "aclass_base": "currency",
        "base": pair.base,
        "aclass_quote": "currency",
        "quote": pair.quote,
        "lot": "unit",
        "cost_decimals": pair.cost_decimals,
        "pair_decimals": pair.price_decimals,
        "lot_decimals": LOT_DECIMALS,
        "lot_multiplier": 1,
        "leverage_buy": margin,
        "leverage_sell": margin,
        "fees": [[0, 0.26], [50_000, 0.24]],
        "fees_maker": [[0, 0.16], [50_000, 0.14]],
        "fee_volume_currency": "ZUSD",
        "margin_call": 80,
        "margin_stop": 40,
        "ordermin": "0.00001",
        "costmin": "0.5",
        "tick_size": fixed(STEPS[pair.price_decimals], pair.price_decimals),
        "status": "online",
    }


# Kraken Futures ---------------------------------------------------------------------------


def log(row: LoggedRow, *, conversions: bool) -> Row:
    """A row of the account log; `conversions` adds the details of conversions."""
    facts: Row = {
        "asset": row.asset,
        "booking_uid": uuid_of("booking", row.seq),
        "collateral": None,
        "contract": row.contract or None,
        "conversion_spread_percentage": number(row.spread),
        "date": iso(row.time),
        "execution": row.execution or None,
        "fee": number(row.fee),
        "funding_rate": number(row.rate),
        "id": row.seq,
        "info": row.info,
        "liquidation_fee": number(row.liquidation_fee),
        "margin_account": row.account,
        "mark_price": number(row.mark_price),
        "new_average_entry_price": number(row.new_entry),
        "new_balance": number(row.new),
        "old_average_entry_price": number(row.old_entry),
        "old_balance": number(row.old),
        "realized_funding": number(row.funding),
        "realized_pnl": number(row.pnl),
        "trade_price": number(row.trade_price),
    }
    if conversions:
        rate = row.exchange_rate
        facts |= {
            "exchange_rate": number(rate[0]) if rate else None,
            "exchange_rate_from": rate[1] if rate else None,
            "conversion_fee": number(row.spread),
        }
    return facts


def fill(row: FuturesFill) -> Row:
    """A row of fills, which has no fee."""
    return {
        "fill_id": uuid_of("fill", row.seq),
        "symbol": row.contract.symbol,
        "side": row.side,
        "order_id": uuid_of("order", row.seq),
        "cliOrdId": uuid_of("client order", row.seq),
        "size": number(row.size),
        "price": number(row.price),
        "fillTime": iso(row.time),
        "fillType": row.kind,
        "realized_pnl": number(row.pnl),
        "realized_funding": number(row.funding),
    }


def execution(row: FuturesFill) -> Row:
    """An element of executions, with the orders of both sides."""
    maker = row.kind == "maker"
    direction = row.side.capitalize()
    mine = _futures_order(row, direction, uuid_of("order", row.seq), ACCOUNT_UID)
    other = _futures_order(row, "Sell" if direction == "Buy" else "Buy", uuid_of("other", row.seq),
                           uuid_of("account", 2))  # fmt: skip
    data = {"fee": shown(row.fee), "positionSize": shown(row.new)}
    done: Row = {
        "uid": uuid_of("fill", row.seq),
        "makerOrder": mine if maker else other,
        "takerOrder": other if maker else mine,
        "timestamp": row.time // MS_TICKS,
        "quantity": shown(row.size),
        "price": shown(row.price),
        "markPrice": shown(row.mark),
        "limitFilled": maker,
        "oldTakerOrder": other if maker else mine,
        "usdValue": shown(row.size * row.price // 10**SCALE),
        ("makerOrderData" if maker else "takerOrderData"): data,
    }
    return {
        "uid": uuid_of("event", row.seq),
        "timestamp": row.time // MS_TICKS,
        "event": {"execution": {"execution": done, "takerReducedQuantity": ""}},
    }


def _futures_order(row: FuturesFill, direction: str, uid: str, account: str) -> Row:
    at_ms = row.time // MS_TICKS
    return {
        "uid": uid,
        "accountUid": account,
        "tradeable": row.contract.symbol,
        "direction": direction,
        "quantity": shown(row.size),
        "filled": shown(row.size),
        "timestamp": at_ms,
        "limitPrice": shown(row.price),
        "orderType": "Limit",
        "clientId": "",
        "reduceOnly": False,
        "lastUpdateTimestamp": at_ms,
    }


def position_update(row: FuturesFill) -> Row:
    """An element of the history of positions."""
    change = "close" if not row.new else "decrease" if abs(row.new) < abs(row.old) else (
        "increase" if row.old else "open"
    )  # fmt: skip
    at_ms = row.time // MS_TICKS
    update: Row = {
        "accountUid": ACCOUNT_UID,
        "tradeable": row.contract.symbol,
        "oldPosition": shown(row.old),
        "oldAverageEntryPrice": shown(row.old_entry),
        "newPosition": shown(row.new),
        "newAverageEntryPrice": shown(row.new_entry),
        "fillTime": at_ms,
        "fee": shown(row.fee),
        "feeCurrency": row.contract.currency,
        "realizedPnL": shown(row.pnl),
        "positionChange": change,
        "executionUid": uuid_of("fill", row.seq),
        "executionPrice": shown(row.price),
        "executionSize": shown(row.size),
        "tradeType": "liquidation" if row.kind == "liquidation" else "userExecution",
        "fundingRealizationTime": at_ms,
        "realizedFunding": shown(row.funding),
        "timestamp": at_ms,
        "updateReason": "trade",
    }
    return {
        "uid": uuid_of("position", row.seq),
        "timestamp": at_ms,
        "event": {"PositionUpdate": update},
    }


def instrument(contract: Contract) -> Row:
    """An element of instruments."""
    return {
        "symbol": contract.symbol,
        "type": "futures_inverse" if contract.inverse else "flexible_futures",
        "underlying": f"rr_{contract.id.partition('_')[2]}",
        "tickSize": number(STEPS[contract.price_decimals]),
        "contractSize": 1,
        "tradeable": True,
        "contractValueTradePrecision": contract.size_decimals,
        "marginLevels": [
            {"contracts": 0, "initialMargin": 0.02, "maintenanceMargin": 0.01}
        ],
        "base": contract.symbol[3:-3].replace("XBT", "BTC"),
        "quote": "USD",
        "openingDate": "2022-01-01T00:00:00.000Z",
        "tags": [],
    }  # fmt: skip
