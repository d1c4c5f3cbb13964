"""Encodes the rows of the simulated OKX: every value is text, and "" is absent.

https://www.okx.com/docs-v5/en/#trading-account-rest-api-get-bills-details-last-7-days

Over 800 lines: one function per list of OKX, in the order of its documentation.
"""

from collections.abc import Iterable
from typing import Any, Final

from onebook.simulator.accounts.history import shown
from onebook.simulator.accounts.okx.facts import (
    STAKING,
    BorrowStep,
    ClosedPart,
    DebtConversion,
    DustConversion,
    FiatOrder,
    FundingBill,
    InterestRow,
    LendingRow,
    LiquidStake,
    LoanStep,
    OkxConversion,
    OkxDeposit,
    OkxFill,
    OkxOrder,
    OkxWithdrawal,
    OpenPosition,
    StakeOrder,
    SubTransfer,
    TradingBill,
    WalletTransfer,
)
from onebook.simulator.accounts.okx.names import (
    BILL_WORDS,
    CHAINS,
    DECIMALS,
    MASTER,
    MILLI,
    PAIRS,
    SUB_ACCOUNT,
    UNIFIED,
    UNIT,
    OkxChain,
    OkxInstrument,
    digest_of,
    funding_bill_id,
    ms_of,
    per,
    times,
    trading_id,
)

Row = dict[str, Any]
TAILS: Final = ms_of("2024-01-01")  # until then changes have all decimals
GLUED_FEES: Final = ms_of("2022-01-01")  # until then fees of withdrawals end with the coin
UNLOCK_MS: Final = 600_000  # from the credit of a deposit to its final state
HELD_MS: Final = 1_800_000  # after which a deposit is held
EXPORTED: Final = (
    "instType", "billId", "subType", "ts", "balChg", "posBalChg", "bal", "posBal", "sz", "px",
    "ccy", "pnl", "fee", "mgnMode", "instId", "ordId", "execType", "interest", "tag", "fillTime",
    "tradeId", "clOrdId", "fillIdxPx", "fillMarkPx", "fillPxVol", "fillPxUsd", "fillMarkVol",
    "fillFwdPx",
)  # fmt: skip
PHONE: Final = "138******26"


def text(units: int) -> str:
    """Write an amount."""
    return shown(units, DECIMALS)


def text_or_empty(units: int | None) -> str:
    """Write an optional amount."""
    return "" if units is None else text(units)


def nonzero(units: int) -> str:
    """Write an amount; empty for zero."""
    return text(units) if units else ""


def full(units: int, decimals: int = DECIMALS) -> str:
    """Write an amount with all its decimals."""
    sign, units = ("-" if units < 0 else ""), abs(units) // 10 ** (DECIMALS - decimals)
    whole, part = divmod(units, 10**decimals)
    return f"{sign}{whole}.{part:0{decimals}}"


# Bills ------------------------------------------------------------------------------------


def bill(row: TradingBill) -> Row:
    """A row of account/bills."""
    amount = full if row.time < TAILS else text
    traded = row.instrument is not None
    facts = exported_bill(row) | {
        "bal": amount(row.balance),
        "balChg": amount(row.change),
        "type": row.type,
        "from": row.way[0],
        "to": row.way[1],
        "notes": row.notes,
        "earnAmt": text_or_empty(row.earned),
        "earnApr": text_or_empty(row.apr),
    }
    if not traded:
        facts |= dict.fromkeys(("fee", "pnl", "posBal", "posBalChg"), "")
    return facts


def exported_bill(row: TradingBill) -> Row:
    """A row of an exported file, which has no type."""
    market = row.instrument
    contract = market is not None and market.kind != "SPOT"
    optional = market is not None and market.kind == "OPTION"
    filled = bool(row.filled)
    price = text_or_empty(row.price)
    return {
        "instType": row.kind or (market.kind if market else ""),
        "billId": str(trading_id(row.time, row.seq)),
        "subType": row.sub,
        "ts": str(row.ts),
        "balChg": full(row.change),
        "posBalChg": text(row.isolated),
        "bal": full(row.balance),
        "posBal": text(row.isolated_after),
        "sz": text_or_empty(row.size),
        "px": price,
        "ccy": row.ccy,
        "pnl": text(row.pnl),
        "fee": text(row.fee),
        "mgnMode": row.mode,
        "instId": market.id if market else "",
        "ordId": str(trading_id(*row.order)) if row.order else "",
        "execType": row.liquidity,
        "interest": text(row.interest),
        "tag": "",
        "fillTime": str(row.filled) if filled else "",
        "tradeId": "" if row.trade is None else str(row.trade),
        "clOrdId": row.client,
        "fillIdxPx": price if filled else "",
        "fillMarkPx": price if filled and contract else "",
        "fillPxVol": "0.55" if filled and optional else "",
        "fillPxUsd": "1500" if filled and optional else "",
        "fillMarkVol": "0.54" if filled and optional else "",
        "fillFwdPx": "61000.5" if filled and optional else "",
    }


def funding_bill(row: FundingBill) -> Row:
    """A row of asset/bills."""
    return {
        "billId": str(funding_bill_id(row.seq)),
        "ccy": row.ccy,
        "clientId": row.client,
        "balChg": text(row.change),
        "bal": text(row.balance),
        "type": row.type,
        "ts": str(row.time),
        "notes": row.notes,
    }


def subtypes(types: Iterable[str]) -> list[Row]:
    """The words of bill types."""
    return [
        {
            "type": kind,
            "typeDesc": BILL_WORDS[kind][0],
            "subTypeDetails": [
                {"subType": sub, "subTypeDesc": word} for sub, word in BILL_WORDS[kind][1].items()
            ],
        }
        for kind in types
    ]


# Trades -----------------------------------------------------------------------------------


def fill(row: OkxFill) -> Row:
    """A row of trade/fills."""
    contract, optional = row.instrument.kind != "SPOT", row.instrument.kind == "OPTION"
    price = text(row.price)
    return {
        "instType": row.kind,
        "instId": row.instrument.id,
        "tradeId": str(row.trade),
        "ordId": str(trading_id(*row.order)),
        "clOrdId": row.client,
        "billId": str(trading_id(row.time, row.seq)),
        "subType": row.sub,
        "tag": "",
        "fillPx": price,
        "fillSz": text(row.size),
        "fillIdxPx": price,
        "fillPnl": text(row.pnl),
        "fillPxVol": "0.55" if optional else "",
        "fillPxUsd": "1500" if optional else "",
        "fillMarkVol": "0.54" if optional else "",
        "fillFwdPx": "61000.5" if optional else "",
        "fillMarkPx": price if contract else "",
        "side": row.side,
        "posSide": row.pos_side,
        "execType": row.liquidity,
        "feeCcy": row.fee_ccy,
        "fee": text(row.fee),
        "feeRate": text(row.rate),
        "ts": str(row.ts),
        "fillTime": str(row.ts - 1),
    } | ({"tradeQuoteCcy": row.instrument.settle} if row.ts >= UNIFIED else {})


def order(row: OkxOrder) -> Row:
    """A row of trade/orders-history."""
    last_price, last_size, last_time, last_trade = row.last
    empty = dict.fromkeys(
        (
            "algoClOrdId", "algoId", "attachAlgoClOrdId", "ccy", "lever", "pxType", "pxUsd",
            "pxVol", "quickMgnType", "slOrdPx", "slTriggerPx", "slTriggerPxType", "source",
            "stpId", "stpMode", "tag", "tpOrdPx", "tpTriggerPx", "tpTriggerPxType",
        ),
        "",
    )  # fmt: skip
    cancelled = row.state == "canceled"
    return empty | {
        "accFillSz": text(row.filled),
        "attachAlgoOrds": [],
        "avgPx": nonzero(row.average),
        "cTime": str(row.time),
        "cancelSource": "1" if cancelled else "",
        "cancelSourceReason": "Order canceled by user" if cancelled else "",
        "category": row.category,
        "clOrdId": row.client,
        "fee": text(row.fee),
        "feeCcy": row.fee_ccy,
        "fillPx": nonzero(last_price),
        "fillSz": text(last_size),
        "fillTime": str(last_time or ""),
        "instId": row.instrument.id,
        "instType": row.kind,
        "isTpLimit": "false",
        "linkedAlgoOrd": {"algoId": ""},
        "ordId": str(trading_id(row.time, row.seq)),
        "ordType": row.type,
        "pnl": text(row.pnl),
        "posSide": row.pos_side,
        "px": nonzero(row.price),
        "rebate": "0",
        "rebateCcy": row.instrument.settle,
        "reduceOnly": "false",
        "side": row.side,
        "state": row.state,
        "sz": text(row.size),
        "tdMode": row.mode,
        "tgtCcy": row.target,
        "tradeId": str(last_trade or ""),
        "tradeQuoteCcy": row.instrument.settle,
        "uTime": str(row.updated),
    }


def position(row: OpenPosition) -> Row:
    """A row of account/positions."""
    empty = dict.fromkeys(
        (
            "baseBal", "baseBorrowed", "baseInterest", "bePx", "bizRefId", "bizRefType",
            "clSpotInUseAmt", "deltaBS", "deltaPA", "gammaBS", "gammaPA", "liab", "liabCcy",
            "margin", "maxSpotInUseAmt", "nonSettleAvgPx", "optVal", "posCcy", "quoteBal",
            "quoteBorrowed", "quoteInterest", "spotInUseAmt", "spotInUseCcy", "thetaBS", "thetaPA",
            "usdPx", "vegaBS", "vegaPA", "pTime",
        ),
        "",
    )  # fmt: skip
    market, price = row.instrument, text(row.entry)
    return empty | {
        "adl": "1",
        "availPos": text(row.size),
        "avgPx": price,
        "cTime": str(row.opened),
        "ccy": market.settle,
        "closeOrderAlgo": [],
        "fee": text(row.fee),
        "fundingFee": text(row.funding),
        "idxPx": price,
        "imr": text(market.worth(row.size, row.entry) // 10),
        "instId": market.id,
        "instType": market.kind,
        "interest": "0",
        "last": price,
        "lever": "10",
        "liqPenalty": text(row.penalty),
        "liqPx": text(row.entry // 2),
        "markPx": price,
        "mgnMode": "cross",
        "mgnRatio": "140.49930117599155",
        "mmr": text(market.worth(row.size, row.entry) // 200),
        "notionalUsd": text(market.worth(row.size, row.entry)),
        "pendingCloseOrdLiabVal": "0",
        "pnl": text(row.pnl),
        "pos": text(row.size),
        "posId": str(trading_id(row.opened, row.number)),
        "posSide": row.side,
        "realizedPnl": text(row.pnl + row.fee + row.funding + row.penalty),
        "settledPnl": "",
        "tradeId": "",
        "uTime": str(row.opened),
        "upl": "0",
        "uplLastPx": "0",
        "uplRatio": "0",
        "uplRatioLastPx": "0",
    }


def closing(row: ClosedPart) -> Row:
    """A row of account/positions-history."""
    each = row.position
    realized = each.pnl + each.fee + each.funding + each.penalty
    return {
        "cTime": str(each.opened),
        "ccy": each.instrument.settle,
        "closeAvgPx": text(per(each.proceeds, each.closed)),
        "closeTotalPos": text(each.closed),
        "direction": each.side,
        "fee": text(each.fee),
        "fundingFee": text(each.funding),
        "instId": each.instrument.id,
        "instType": each.instrument.kind,
        "lever": "10.0",
        "liqPenalty": text(each.penalty),
        "mgnMode": "cross",
        "nonSettleAvgPx": "",
        "openAvgPx": text(each.entry),
        "openMaxPos": text(each.largest),
        "pnl": text(each.pnl),
        "pnlRatio": "0.01",
        "posId": str(trading_id(each.opened, each.number)),
        "posSide": each.side,
        "realizedPnl": text(realized),
        "settledPnl": "",
        "triggerPx": "",
        "type": row.type,
        "uTime": str(row.time),
        "uly": each.instrument.id.rpartition("-")[0],
    }


def interest(row: InterestRow) -> Row:
    """A row of account/interest-accrued."""
    return {
        "ccy": row.ccy,
        "instId": "",
        "interest": text(row.interest),
        "interestRate": text(row.rate),
        "liab": text(row.debt),
        "mgnMode": "cross" if row.kind == "2" else "",
        "ts": str(row.time),
        "type": row.kind,
    }


def borrowing(row: BorrowStep) -> Row:
    """A row of account/spot-borrow-repay-history."""
    return {
        "accBorrowed": text(row.debt),
        "amt": text(row.amount),
        "ccy": row.ccy,
        "ts": str(row.time),
        "type": row.type,
    }


# Deposits and withdrawals -----------------------------------------------------------------


def deposit(row: OkxDeposit, now: int) -> Row:
    """A row of asset/deposit-history at a time."""
    state = 0
    if row.final != 2:
        state = row.final if now >= row.time + HELD_MS else 0
    elif row.credited <= now:
        state = 2 if now >= row.credited + UNLOCK_MS else 1
    digest = digest_of("deposit", row.seq)
    internal = {"id": f"{1_000_000 + row.seq}_3_0_0_asset", "empty": ""}
    return {
        "actualDepBlkConfirm": str(2 + row.seq % 40) if state else "0",
        "amt": text(row.amount),
        "areaCodeFrom": "86" if row.internal else "",
        "ccy": row.chain.ccy,
        "chain": row.chain.id,
        "depId": str(4_700_000 + row.seq),
        "from": PHONE if row.internal else "",
        "fromWdId": str(67_000 + row.seq) if row.internal else "",
        "state": str(state),
        "to": "18" if row.direct else "" if row.internal else f"0x{digest[:40]}",
        "ts": str(row.time),
        "txId": internal.get(row.internal, f"0x{digest}"),
    }


def withdrawal_state(row: OkxWithdrawal, now: int) -> int:
    """Return the state of a withdrawal at a time."""
    if now >= row.ended:
        return row.final
    if now - row.time < 60_000:
        return 0
    return {2: 1, -1: 4}.get(row.final, -3)


def withdrawal(row: OkxWithdrawal, now: int) -> Row:
    """A row of asset/withdrawal-history at a time."""
    state, digest = withdrawal_state(row, now), digest_of("withdrawal", row.seq)
    facts: Row = {
        "amt": text(row.amount),
        "areaCodeFrom": "",
        "areaCodeTo": "",
        "ccy": row.chain.ccy,
        "chain": row.chain.id,
        "clientId": f"out{row.seq}" if row.seq % 5 == 0 else "",
        "fee": text(row.fee),
        "feeCcy": row.chain.ccy,
        "from": PHONE if row.internal else "",
        "nonTradableAsset": False,
        "note": "",
        "state": str(state),
        "to": PHONE if row.internal else f"0x{digest[:40]}",
        "ts": str(row.time),
        "txId": f"0x{digest}" if state in (1, 2) and not row.internal else "",
        "wdId": str(15_400_000 + row.seq),
    }
    if row.time < GLUED_FEES:
        facts["fee"] = full(row.fee, 8) + row.chain.ccy.lower()
        del facts["feeCcy"]
    if row.chain.ccy == "XRP":
        facts["tag"] = str(100_000 + row.seq)
    return facts


def fiat(row: FiatOrder, now: int) -> Row:
    """A row of fiat/deposit-order-history or fiat/withdrawal-order-history at a time."""
    ended = now >= row.done
    return {
        "ordId": f"{'1' if row.incoming else '2'}24041201450544699{row.seq:04}",
        "clientId": "",
        "ccy": row.ccy,
        "amt": text(row.amount),
        "fee": text(row.fee),
        "paymentAcctId": "20",
        "paymentMethod": "SEPA",
        "state": row.state if ended else "processing",
        "cTime": str(row.time),
        "uTime": str(row.done if ended else row.time),
    }


def sub_transfer(row: SubTransfer) -> Row:
    """A row of asset/subaccount/bills."""
    return {
        "amt": text(row.amount),
        "billId": str(89_880_000 + row.seq),
        "ccy": row.ccy,
        "subAcct": SUB_ACCOUNT,
        "subUid": f"{MASTER[:-1]}5",
        "ts": str(row.time),
        "type": "1" if row.incoming else "0",
    }


def transfer(row: WalletTransfer) -> Row:
    """A row of asset/transfer-state."""
    return {
        "amt": text(row.amount),
        "ccy": row.ccy,
        "clientId": f"move{row.seq}" if row.seq % 4 == 0 else "",
        "from": row.source,
        "instId": "",
        "state": "success",
        "subAcct": "",
        "to": row.target,
        "toInstId": "",
        "transId": str(754_000 + row.seq),
        "type": "0",
    }


# Conversions and earn ---------------------------------------------------------------------


def conversion(row: OkxConversion) -> Row:
    """A row of asset/convert/history."""
    return {
        "baseCcy": row.base,
        "clTReqId": "",
        "fillBaseSz": text(row.size),
        "fillPx": text(row.price),
        "fillQuoteSz": text(row.cost),
        "instId": f"{row.base}-{row.quote}",
        "quoteCcy": row.quote,
        "side": row.side,
        "state": row.state,
        "tradeId": f"trader{row.seq}",
        "ts": str(row.time),
    }


def dust(row: DustConversion) -> Row:
    """A row of trade/easy-convert-history."""
    return {
        "acct": "18",
        "fillFromSz": full(row.amount),
        "fillToSz": full(row.received),
        "fromCcy": row.spent,
        "status": "filled",
        "toCcy": row.got,
        "uTime": str(row.time),
    }


def repaid(row: DebtConversion) -> Row:
    """A row of trade/one-click-repay-history."""
    return {
        "debtCcy": row.debt,
        "fillDebtSz": full(row.repaid),
        "fillRepaySz": full(row.cost),
        "repayCcy": row.paid,
        "status": "filled",
        "uTime": str(row.time),
    }


def repaid_newly(row: DebtConversion) -> Row:
    """A row of trade/one-click-repay-history-v2."""
    price = text(per(row.repaid, row.cost))
    done: Row = {
        "cTime": str(row.time),
        "fillPx": price,
        "fillSz": text(row.cost),
        "instId": f"{row.paid}-{row.debt}",
        "ordId": str(trading_id(row.time, row.seq)),
        "ordType": "ioc",
        "px": price,
        "side": "sell",
        "state": "filled",
        "sz": text(row.cost),
    }
    return {
        "debtCcy": row.debt,
        "fillDebtSz": text(row.repaid),
        "ordIdInfo": [done],
        "repayCcyList": [row.paid],
        "status": "filled",
        "ts": str(row.time),
    }


def lending(row: LendingRow) -> Row:
    """A row of finance/savings/lending-history."""
    return {
        "amt": text(row.amount),
        "ccy": row.ccy,
        "earnings": text(row.earnings),
        "rate": text(row.rate),
        "ts": str(row.time),
    }


def savings(ccy: str, amount: int) -> Row:
    """A row of finance/savings/balance."""
    return {
        "amt": full(amount),
        "ccy": ccy,
        "earnings": full(amount // 10_000),
        "loanAmt": full(amount * 9 // 10),
        "pendingAmt": full(amount // 10),
        "rate": full(UNIT // 100),
        "redemptAmt": "",
    }


def stake(row: StakeOrder, now: int) -> Row:
    """A row of finance/staking-defi/orders-active or orders-history at a time."""
    ended = now >= row.redeemed
    earned = text(sum(amount for time, amount in row.earnings if time <= now))
    earning = {"ccy": row.ccy, "earningType": "0"}
    facts: Row = {
        "apy": text(row.apy),
        "ccy": row.ccy,
        "investData": [{"amt": text(row.amount), "ccy": row.ccy}],
        "ordId": str(1_579_000 + row.seq),
        "productId": "101" if row.ccy == "DOT" else "4005",
        "protocol": row.protocol,
        "protocolType": STAKING if row.ccy == "DOT" else "defi",
        "purchasedTime": str(row.time),
        "state": "3" if ended else "1",
        "tag": "",
        "term": "0",
    }
    if ended:
        return facts | {
            "earningData": [earning | {"realizedEarnings": earned}],
            "redeemedTime": str(row.redeemed),
        }
    return facts | {
        "cancelRedemptionDeadline": "",
        "earningData": [earning | {"earnings": earned}],
        "estSettlementTime": "",
        "fastRedemptionData": [],
    }


def liquid_stake(row: LiquidStake, now: int) -> Row:
    """A row of finance/staking-defi/eth/purchase-redeem-history at a time."""
    done = now >= row.completed
    return {
        "amt": text(row.amount),
        "completedTime": str(row.completed) if done else "",
        "estCompletedTime": "" if done else str(row.completed),
        "ordId": str(1_900_000 + row.seq),
        "redeemingAmt": "" if done else text(row.amount),
        "requestTime": str(row.time),
        "status": "success" if done else "pending",
        "type": "purchase" if row.purchase else "redeem",
    }


def loan(row: LoanStep) -> Row:
    """A row of finance/flexible-loan/loan-history."""
    return {
        "amt": text(row.amount),
        "ccy": row.ccy,
        "refId": str(17_316_594_850_000_000 + row.seq),
        "ts": str(row.time),
        "type": row.type,
    }


# Snapshots --------------------------------------------------------------------------------


def held_for_trading(ccy: str, balance: int, isolated: int, debt: int, now: int) -> Row:
    """An element of the details of account/balance."""
    zero = dict.fromkeys(
        (
            "borrowFroz", "crossLiab", "fixedBal", "isoLiab", "isoUpl", "maxLoan", "ordFrozen",
            "rewardBal", "smtSyncEq", "spotCopyTradingEq", "spotIsoBal", "stgyEq", "twap", "upl",
            "uplLiab", "interest",
        ),
        "0",
    )  # fmt: skip
    empty = dict.fromkeys(
        (
            "accAvgPx", "clSpotInUseAmt", "imr", "maxSpotInUse", "maxSpotInUseAmt", "mgnRatio",
            "mmr", "notionalLever", "openAvgPx", "spotBal", "spotInUseAmt", "spotUpl",
            "spotUplRatio", "totalPnl", "totalPnlRatio",
        ),
        "",
    )  # fmt: skip
    frozen = balance // 20 if ccy == "USDT" else 0
    dollars = text(dollars_of(ccy, balance + isolated))
    return zero | empty | {
        "availBal": text(balance - frozen),
        "availEq": text(balance - frozen),
        "cashBal": text(balance),
        "ccy": ccy,
        "collateralEnabled": False,
        "disEq": dollars,
        "eq": text(balance + isolated),
        "eqUsd": dollars,
        "frozenBal": text(frozen),
        "isoEq": text(isolated),
        "liab": text(debt),
        "uTime": str(now),
    }  # fmt: skip


def trading_account(details: list[Row], total: int, now: int) -> Row:
    """The answer of account/balance."""
    zero = dict.fromkeys(
        (
            "borrowFroz", "imr", "isoEq", "mmr", "notionalUsd", "notionalUsdForBorrow",
            "notionalUsdForFutures", "notionalUsdForOption", "notionalUsdForSwap", "upl",
        ),
        "0",
    )  # fmt: skip
    return zero | {
        "adjEq": text(total),
        "details": details,
        "mgnRatio": "",
        "ordFroz": "",
        "totalEq": text(total),
        "uTime": str(now),
    }


def dollars_of(ccy: str, units: int) -> int:
    """Return the approximate value of an amount."""
    pair = PAIRS.get(f"{ccy}-USDT")
    return times(units, pair.price) if pair else units


def held_for_funding(ccy: str, balance: int) -> Row:
    """A row of asset/balances."""
    amount = text(balance)
    return {"availBal": amount, "bal": amount, "ccy": ccy, "frozenBal": "0"}


def config(
    permissions: Iterable[str], ips: Iterable[str], *, level: int, label: str, user: str = MASTER
) -> Row:
    """The answer of account/config."""
    return {
        "acctLv": str(level),
        "acctStpMode": "cancel_maker",
        "autoLoan": False,
        "ctIsoMode": "automatic",
        "enableSpotBorrow": False,
        "feeType": "0",
        "greeksType": "PA",
        "ip": ",".join(ips),
        "kycLv": "3",
        "label": label,
        "level": "Lv1",
        "levelTmp": "",
        "liquidationGear": "-1",
        "mainUid": user,
        "mgnIsoMode": "automatic",
        "opAuth": "0",
        "perm": ",".join(permissions),
        "posMode": "long_short_mode",
        "roleType": "0",
        "settleCcy": "USDC",
        "settleCcyList": ["USD", "USDC", "USDG"],
        "spotBorrowAutoRepay": False,
        "spotOffsetType": "",
        "spotRoleType": "0",
        "spotTraderInsts": [],
        "stgyType": "0",
        "traderInsts": [],
        "type": "0",
        "uid": user,
    }


def sub_account() -> Row:
    """A row of users/subaccount/list."""
    return {
        "canTransOut": False,
        "enable": True,
        "firstLvSubAcct": SUB_ACCOUNT,
        "frozenFunc": [],
        "gAuth": False,
        "ifDma": False,
        "label": "savings of the firm",
        "mobile": "",
        "subAcct": SUB_ACCOUNT,
        "subAcctLv": "1",
        "ts": "1659334756000",
        "type": "1",
        "uid": f"{MASTER[:-1]}5",
    }


def currency(chain: OkxChain) -> Row:
    """A row of asset/currencies: one per chain of a currency."""
    return {
        "burningFeeRate": "",
        "canDep": True,
        "canInternal": True,
        "canWd": True,
        "ccy": chain.ccy,
        "chain": chain.id,
        "ctAddr": "",
        "depEstOpenTime": "",
        "depQuotaFixed": "",
        "depQuoteDailyLayer2": "",
        "fee": text(chain.fee),
        "logoLink": "",
        "mainNet": True,
        "maxFee": text(chain.fee),
        "maxFeeForCtAddr": "",
        "maxWd": text(10_000_000 * UNIT),
        "minDep": text(MILLI),
        "minDepArrivalConfirm": "2",
        "minFee": text(chain.fee),
        "minFeeForCtAddr": "",
        "minInternal": text(MILLI),
        "minWd": text(MILLI),
        "minWdUnlockConfirm": "2",
        "name": chain.ccy,
        "needTag": chain.ccy == "XRP",
        "usedDepQuotaFixed": "",
        "usedWdQuota": "0",
        "wdEstOpenTime": "",
        "wdQuota": "10000000",
        "wdTickSz": str(chain.decimals),
    }


def currencies() -> list[Row]:
    """The rows of asset/currencies."""
    return [currency(chain) for chain in CHAINS]


def instrument(row: OkxInstrument) -> Row:
    """A row of public/instruments."""
    pair, contract = row.kind == "SPOT", row.kind != "SPOT"
    swap = row.kind == "SWAP"
    linear = contract and not row.inverse
    base, quote = row.id.split("-")[:2]
    size = text(row.lot)
    return {
        "alias": "",
        "auctionEndTime": "",
        "baseCcy": base if pair else "",
        "category": "1",
        "contTdSwTime": "",
        "ctMult": text(row.multiple) if contract else "",
        "ctType": ("linear" if linear else "inverse") if swap else "",
        "ctVal": text(row.value) if contract else "",
        "ctValCcy": ("USD" if row.inverse else base) if contract else "",
        "expTime": "",
        "futureSettlement": False,
        "groupId": "1",
        "instFamily": f"{base}-{quote}" if contract else "",
        "instId": row.id,
        "instIdCode": 1,
        "instType": row.kind,
        "lever": "10" if contract else "",
        "listTime": "1611916828000",
        "lotSz": size,
        "maxIcebergSz": "99999999",
        "maxLmtAmt": "20000000",
        "maxLmtSz": "99999999",
        "maxMktAmt": "1000000",
        "maxMktSz": "1000000",
        "maxStopSz": "1000000",
        "maxTriggerSz": "99999999",
        "maxTwapSz": "99999999",
        "minSz": size,
        "optType": "",
        "openType": "",
        "preMktSwTime": "",
        "quoteCcy": quote if pair else "",
        "ruleType": "normal",
        "settleCcy": row.settle if contract else "",
        "state": "live",
        "stk": "",
        "tickSz": text(row.tick),
        "tradeQuoteCcyList": [row.settle] if pair else [],
        "uly": f"{base}-{quote}" if contract else "",
    }
