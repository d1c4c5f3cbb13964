"""Encoding of the simulated Bybit's rows: Bybit's keys, all values text, "" for absent.

One function per endpoint; the shapes are those of the pages under
https://bybit-exchange.github.io/docs/v5/.
"""

from base64 import b64encode
from typing import Any

from onebook.simulator.accounts.bybit.facts import (
    Closed,
    Delivered,
    Deposit,
    ExecutionRow,
    FundLine,
    LedgerLine,
    Moved,
    Order,
    SimulatedMarket,
    Withdrawal,
)
from onebook.simulator.accounts.history import UNIT, Entry, shown

Row = dict[str, Any]


def execution(entry: Entry) -> Row:
    """A row of `/v5/execution/list`."""
    fill: ExecutionRow = entry.facts
    funding = fill.kind == "Funding"
    row = {
        "symbol": fill.market.symbol,
        "orderId": fill.order_id,
        "orderLinkId": fill.link_id,
        "side": fill.side,
        "orderPrice": shown(fill.price),
        "orderQty": shown(fill.quantity + fill.left),
        "leavesQty": shown(fill.left),
        "createType": "" if funding else "CreateByUser",
        "orderType": "UNKNOWN" if funding else "Limit",
        "stopOrderType": "UNKNOWN",
        "execFee": shown(fill.fee),
        "execId": fill.execution_id,
        "execPrice": shown(fill.price),
        "execQty": shown(fill.quantity),
        "execType": fill.kind,
        "execValue": shown(fill.value),
        "execTime": str(entry.at_ms),
        "feeCurrency": fill.fee_coin if fill.fee_coin_shown else "",
        "isMaker": fill.maker,
        "feeRate": fill.rate,
        "tradeIv": "",
        "markIv": "",
        "markPrice": "" if fill.market.category == "spot" else shown(fill.price),
        "indexPrice": "",
        "underlyingPrice": "",
        "blockTradeId": "",
        "closedSize": shown(fill.closed) if fill.closed else "",
        "extraFees": _taxes(fill.tax, fill.fee_coin),
        "seq": entry.seq,
    }
    if fill.kind == "FutureSpread":  # its fee has a separate field
        row |= {"execFee": "0", "execFeeV2": shown(fill.fee)}
    if fill.market.category == "spot":
        del row["createType"]
    return row


def streamed_execution(entry: Entry, category: str) -> Row:
    """A row of the topic `execution`: that of the list, with its category and realised profit."""
    return execution(entry) | {"category": category, "execPnl": "0"}


def _taxes(tax: int, coin: str) -> str | list[Row]:
    if not tax:
        return ""
    one = {"feeCoin": coin, "feeType": "GST", "subFeeType": "IND_GST", "feeRate": "0.18"}
    return [one | {"fee": shown(tax)}]


def order(entry: Entry) -> Row:
    """A row of `/v5/order/history`."""
    one: Order = entry.facts
    average = one.done_value * UNIT // one.done if one.done else 0
    return {
        "orderId": one.order_id,
        "orderLinkId": one.link_id,
        "blockTradeId": "",
        "symbol": one.market.symbol,
        "price": shown(one.market.price),
        "qty": shown(one.quantity),
        "side": one.side,
        "isLeverage": "0",
        "positionIdx": 0,
        "orderStatus": one.status,
        "cancelType": "CancelByUser" if one.status == "Cancelled" else "UNKNOWN",
        "rejectReason": "EC_NoError",
        "avgPrice": shown(average // 10_000 * 10_000) if one.done else "",
        "leavesQty": "0",
        "leavesValue": "0",
        "cumExecQty": shown(one.done),
        "cumExecValue": shown(one.done_value),
        "cumExecFee": shown(one.fee),
        "timeInForce": "GTC",
        "orderType": "Limit",
        "stopOrderType": "",
        "createdTime": str(one.created_ms),
        "updatedTime": str(one.updated_ms),
        "extraFees": "",
        "cumFeeDetail": {coin: shown(fee) for coin, fee in one.fees.items()},
        "marketUnit": "",
        "reduceOnly": one.closing,
    }


def closed_pnl(entry: Entry) -> Row:
    """A row of `/v5/position/closed-pnl`."""
    one: Closed = entry.facts
    return {
        "symbol": one.market.symbol,
        "orderType": "Limit",
        "leverage": "3",
        "updatedTime": str(one.updated_ms),
        "side": one.side,
        "orderId": one.order_id,
        "closedPnl": shown(one.pnl),
        "avgEntryPrice": shown(_average(one.market, one.entry_value, one.quantity)),
        "qty": shown(one.quantity),
        "cumEntryValue": shown(one.entry_value),
        "createdTime": str(one.created_ms),
        "orderPrice": shown(one.market.price),
        "closedSize": shown(one.quantity),
        "avgExitPrice": shown(_average(one.market, one.exit_value, one.quantity)),
        "execType": "Trade",
        "fillCount": str(one.fills),
        "cumExitValue": shown(one.exit_value),
        "openFee": shown(one.open_fee),
        "closeFee": shown(one.close_fee),
    }


def _average(market: SimulatedMarket, value: int, quantity: int) -> int:
    if not value or not quantity:
        return 0
    pair = (quantity, value) if market.category == "inverse" else (value, quantity)
    return pair[0] * UNIT // pair[1] // 10_000 * 10_000


def ledger(entry: Entry) -> Row:
    """A row of `/v5/account/transaction-log`."""
    line: LedgerLine = entry.facts
    return {
        "id": line.line_id,
        "symbol": line.symbol,
        "category": line.category,
        "side": line.side,
        "transactionTime": str(entry.at_ms),
        "type": line.kind,
        "transSubType": "",
        "qty": shown(line.quantity),
        "size": shown(line.size),
        "currency": line.coin,
        "tradePrice": shown(line.price),
        "funding": "" if line.funding is None else shown(line.funding),
        "fee": shown(line.fee),
        "cashFlow": shown(line.cash),
        "change": shown(line.change),
        "cashBalance": shown(line.balance),
        "feeRate": line.rate,
        "bonusChange": "",
        "tradeId": line.trade_id,
        "orderId": line.order_id,
        "orderLinkId": line.link_id,
        "extraFees": _taxes(line.tax, line.coin),
    }


def contract_line(entry: Entry) -> Row:
    """A row of `/v5/account/contract-transaction-log`: `funding` is the amount paid."""
    line: LedgerLine = entry.facts
    funding = "" if line.funding is None else shown(-line.funding)
    return _without(ledger(entry) | {"funding": funding}, "transSubType", "extraFees")


def former_line(entry: Entry) -> Row:
    """A row of `/v5/pre-upgrade/account/transaction-log`, which has no id."""
    return _without(ledger(entry), "id", "transSubType", "extraFees")


def former_execution(entry: Entry) -> Row:
    """A row of `/v5/pre-upgrade/execution/list`, without the coin of the fee."""
    return _without(execution(entry), "feeCurrency", "createType", "extraFees", "seq")


def former_order(entry: Entry) -> Row:
    """A row of `/v5/pre-upgrade/order/history`."""
    return _without(order(entry), "cumFeeDetail", "extraFees", "marketUnit")


def former_closed_pnl(entry: Entry) -> Row:
    """A row of `/v5/pre-upgrade/position/closed-pnl`: fees appear only in the P&L."""
    return _without(closed_pnl(entry), "openFee", "closeFee")


def _without(row: Row, *names: str) -> Row:
    return {name: value for name, value in row.items() if name not in names}


def fund_line(entry: Entry, uid: str) -> Row:
    """A row of `/v5/asset/fundinghistory`; its time is in seconds, its cursor is its id."""
    line: FundLine = entry.facts
    row = {
        "memberId": uid,
        "currency": line.coin,
        "ioDirection": "I" if line.change >= 0 else "O",
        "txnAmt": shown(abs(line.change)),
        "afterAmt": shown(line.balance),
        "createTime": str(entry.at_ms // 1_000),
        "showBusiType": f"fundingAccountRecord{line.kind}",
        "showBusiTypeEn": line.kind,
        "description": line.text,
        "descriptionEn": line.text,
        "currcCursor": b64encode(str(entry.seq).encode()).decode(),
    }
    return row if line.identified else _without(row, "currcCursor")


def deposit(entry: Entry) -> Row:
    """A row of `/v5/asset/deposit/query-record`; its status is a number."""
    one: Deposit = entry.facts
    return {
        "coin": one.coin,
        "chain": "TRX" if one.coin.startswith("USD") else one.coin,
        "amount": shown(one.amount),
        "txID": one.tx_id,
        "status": one.status,
        "toAddress": "TSimulatedAddress",
        "tag": "",
        "depositFee": "",
        "successAt": str(one.credited_ms) if one.credited_ms else "",
        "confirmations": "50",
        "txIndex": "0",
        "blockHash": "",
        "batchReleaseLimit": "-1",
        "depositType": "50" if one.blocked else "0",
        "fromAddress": "",
        "taxDepositRecordsId": "0",
        "taxStatus": 0,
        "id": str(entry.seq),
    }


def internal_deposit(entry: Entry, uid: str) -> Row:
    """A row of `/v5/asset/deposit/query-internal-record`; its time is in seconds."""
    one: Deposit = entry.facts
    return {
        "id": str(entry.seq),
        "amount": shown(one.amount),
        "type": 1,
        "coin": one.coin,
        "address": "some***@example.org",
        "status": one.status,
        "createdTime": str(entry.at_ms // 1_000),
        "fromMemberId": str(int(uid) + 1),
        "txID": one.tx_id[2:34],
        "complianceStatus": 0,
        "taxDepositRecordsId": "0",
        "taxStatus": 0,
    }


def withdrawal(entry: Entry) -> Row:
    """A row of `/v5/asset/withdraw/query-record`; its status is a word."""
    one: Withdrawal = entry.facts
    return {
        "coin": one.coin,
        "chain": "internalAddressChain" if one.internal else "ETH",
        "amount": shown(one.amount),
        "txID": "" if one.internal else one.tx_id,
        "status": one.status,
        "toAddress": "999805" if one.internal else "0xSimulatedAddress",
        "tag": "",
        "withdrawFee": shown(one.fee),
        "createTime": str(one.created_ms),
        "updateTime": str(one.updated_ms),
        "withdrawId": str(entry.seq),
        "withdrawType": 1 if one.internal else 0,
        "fee": "",
        "tax": shown(one.tax) if one.tax else "",
        "taxRate": "",
        "taxType": "",
    }


def transfer(entry: Entry) -> Row:
    """A row of `/v5/asset/transfer/query-inter-transfer-list`."""
    moved: Moved = entry.facts
    return {
        "transferId": moved.transfer_id,
        "coin": moved.coin,
        "amount": shown(moved.amount),
        "fromAccountType": moved.source,
        "toAccountType": moved.target,
        "timestamp": str(entry.at_ms),
        "status": "SUCCESS",
    }


def universal_transfer(entry: Entry) -> Row:
    """A row of `/v5/asset/transfer/query-universal-transfer-list`."""
    moved: Moved = entry.facts
    return transfer(entry) | {"fromMemberId": moved.from_uid, "toMemberId": moved.to_uid}


def delivery(entry: Entry) -> Row:
    """A row of `/v5/asset/delivery-record`; its time is a number."""
    one: Delivered = entry.facts
    return {
        "symbol": one.market.symbol,
        "side": one.side,
        "deliveryTime": entry.at_ms,
        "strike": "",
        "fee": shown(one.fee),
        "position": shown(one.size),
        "deliveryPrice": shown(one.price),
        "deliveryRpl": shown(one.realised),
        "entryPrice": shown(one.price),
    }


def session(entry: Entry) -> Row:
    """A row of `/v5/asset/settlement-record`."""
    one: Delivered = entry.facts
    return {
        "symbol": one.market.symbol,
        "side": one.side,
        "size": shown(one.size),
        "sessionAvgPrice": shown(one.price),
        "markPrice": shown(one.price),
        "realisedPnl": shown(one.realised),
        "createdTime": str(entry.at_ms),
    }


def token_order(entry: Entry) -> Row:
    """A row of `/v5/spot-lever-token/order-record`."""
    moved: Moved = entry.facts
    return {
        "amount": shown(moved.amount),
        "fee": "0",
        "ltCoin": moved.coin,
        "ltOrderStatus": "1",
        "ltOrderType": "1",
        "orderId": str(entry.seq),
        "orderTime": str(entry.at_ms),
        "serialNo": moved.transfer_id,
        "updateTime": str(entry.at_ms),
        "value": shown(moved.amount // 2),
        "valueCoin": "USDT",
    }


def unified_coin(coin: str, units: int) -> Row:
    """A coin of `/v5/account/wallet-balance`."""
    return {
        "coin": coin,
        "equity": shown(units),
        "usdValue": shown(units),
        "walletBalance": shown(units),
        "locked": "0",
        "spotHedgingQty": "0",
        "borrowAmount": "0",
        "availableToWithdraw": "",
        "accruedInterest": "0",
        "totalOrderIM": "0",
        "totalPositionIM": "0",
        "totalPositionMM": "0",
        "unrealisedPnl": "0",
        "cumRealisedPnl": "0",
        "bonus": "0",
        "marginCollateral": True,
        "collateralSwitch": True,
        "availableToBorrow": "",
        "spotBorrow": "0",
    }


def funding_coin(coin: str, units: int) -> Row:
    """A coin of `/v5/asset/transfer/query-account-coins-balance`."""
    return {
        "coin": coin,
        "walletBalance": shown(units),
        "transferBalance": shown(units),
        "bonus": "",
    }


def market(one: SimulatedMarket) -> Row:
    """A row of `/v5/market/instruments-info`."""
    tick, lot = shown(one.price_step), shown(one.size_step)
    row: Row = {
        "symbol": one.symbol,
        "status": "Trading",
        "baseCoin": one.base,
        "quoteCoin": one.quote,
        "priceFilter": {"tickSize": tick, "minPrice": tick, "maxPrice": "10000000"},
    }
    if one.category == "spot":
        return row | {
            "innovation": "0",
            "marginTrading": "utaOnly",
            "stTag": "0",
            "lotSizeFilter": {
                "basePrecision": lot,
                "quotePrecision": "0.0000001",
                "minOrderQty": lot,
                "maxOrderQty": "1000",
                "minOrderAmt": "1",
                "maxOrderAmt": "4000000",
            },
        }
    return row | {
        "contractType": f"{one.category.capitalize()}Perpetual",
        "launchTime": "1585526400000",
        "deliveryTime": "0",
        "deliveryFeeRate": "",
        "priceScale": "2",
        "settleCoin": one.settle,
        "leverageFilter": {"minLeverage": "1", "maxLeverage": "100.00", "leverageStep": "0.01"},
        "lotSizeFilter": {
            "maxOrderQty": "1000000",
            "minOrderQty": lot,
            "qtyStep": lot,
            "postOnlyMaxOrderQty": "1000000",
            "maxMktOrderQty": "500000",
            "minNotionalValue": "5",
        },
        "unifiedMarginTrade": True,
        "fundingInterval": 480,
        "copyTrading": "none",
        "isPreListing": False,
        "preListingInfo": None,
    }
