"""Rows as Bybit sends them, and contexts to map them in."""

from typing import Any

from onebook.transactions.bybit.instruments import guess, listed
from onebook.transactions.bybit.rows import Context
from onebook.transactions.markets import Markets

SPOT = Context("mainnet", Markets(listed, guess), "spot", 7)


LINEAR = Context("mainnet", Markets(listed, guess), "linear", 7)


INVERSE = Context("testnet", Markets(listed, guess), "inverse", 7)


def fill(**fields: Any) -> dict[str, Any]:
    base = {
        "symbol": "BTCUSDT", "side": "Buy", "execId": "e1", "orderId": "o1", "execPrice": "100",
        "execQty": "2", "execValue": "200", "execFee": "0.2", "feeRate": "0.001",
        "execTime": "1700000000000", "execType": "Trade", "isMaker": False, "feeCurrency": "",
    }  # fmt: skip
    return base | fields


def order(**fields: Any) -> dict[str, Any]:
    base = {
        "symbol": "BTCUSDT", "side": "Buy", "orderId": "o1", "createdTime": "10",
        "updatedTime": "20", "cumExecQty": "2", "cumExecValue": "200", "avgPrice": "100",
        "orderStatus": "Filled", "qty": "999",
    }  # fmt: skip
    return base | fields


def line(**fields: Any) -> dict[str, Any]:
    base = {
        "id": "l1", "type": "TRADE", "currency": "USDT", "transactionTime": "5", "change": "-1",
        "cashBalance": "9", "category": "linear", "symbol": "BTCUSDT", "side": "Buy",
        "tradeId": "e1", "orderId": "o1", "fee": "1", "cashFlow": "0", "funding": "",
    }  # fmt: skip
    return base | fields


def fund_row(**fields: Any) -> dict[str, Any]:
    base = {
        "memberId": "1", "currency": "USDT", "ioDirection": "I", "txnAmt": "1", "afterAmt": "2",
        "createTime": "9", "showBusiTypeEn": "Deposit", "descriptionEn": "Deposit",
        "currcCursor": "NTg2",
    }  # fmt: skip
    return base | fields


LEDGER_TYPES = (
    "ADL", "AIRDROP", "ALPHA_SMALL_TOKEN_REFUND", "AUTO_BUY_LIABILITY_INS_LOAN", "AUTO_DEDUCTION",
    "AUTO_INTEREST_REPAYMENT_INS_LOAN", "AUTO_PRINCIPLE_REPAYMENT_INS_LOAN",
    "AUTO_SOLD_COLLATERAL_INS_LOAN", "BONUS", "BONUS_RECOLLECT", "BONUS_TRANSFER_IN",
    "BONUS_TRANSFER_OUT", "BORROW", "BORROWED_AMOUNT_INS_LOAN", "BROKER_ABACCOUNT_FEE",
    "CLASSIC_WEALTH_MANAGEMENT_SUBSCRIPTION", "CONVERT", "CURRENCY_BUY", "CURRENCY_SELL",
    "CUSTODY_CASH_RECOVER_TR", "CUSTODY_LOCK", "CUSTODY_NETWORK_FEE", "CUSTODY_SETTLE_FEE",
    "CUSTODY_UNLOCK", "CUSTODY_UNLOCK_REFUND", "DBS_CASH_IN", "DBS_CASH_IN_TR", "DBS_CASH_OUT",
    "DBS_CASH_OUT_TR", "DEFI_INVESTMENT_REDEMPTION", "DEFI_INVESTMENT_REFUND",
    "DEFI_INVESTMENT_SUBSCRIPTION", "DELIVERY", "EARNING_REDEMPTION_BUY",
    "EARNING_REDEMPTION_SELL", "FEE_REFUND", "FIXED_STAKING_REFUND", "FIXED_STAKING_SUBSCRIPTION",
    "FLEXIBLE_STAKING_REDEMPTION", "FLEXIBLE_STAKING_REFUND", "FLEXIBLE_STAKING_SUBSCRIPTION",
    "FLOATING_TO_FIXED_BORROW", "FLOATING_TO_FIXED_REPAY", "IDN_CONVERT_IN", "IDN_CONVERT_OUT",
    "INSTITUTION_EXCHANGE_BUY", "INSTITUTION_EXCHANGE_SELL", "INSTITUTION_LIQ_INTEREST_OUT",
    "INSTITUTION_LIQ_PRINCIPAL_OUT", "INSTITUTION_LOAN_IN", "INSTITUTION_LOAN_RESERVE_IN",
    "INSTITUTION_LOAN_RESERVE_OUT", "INSTITUTION_LOAN_TRANSFER_IN",
    "INSTITUTION_LOAN_TRANSFER_OUT", "INSTITUTION_LOAN_WITHOUT_WITHDRAW",
    "INSTITUTION_PAYBACK_INTEREST_OUT", "INSTITUTION_PAYBACK_PRINCIPAL_OUT", "INTEREST",
    "INTEREST_REPAYMENT_INS_LOAN", "LIQUIDATION", "LIQUIDITY_MINING_REFUND",
    "LIQUIDITY_MINING_SUBSCRIPTION", "LOANS_BORROW_FUNDS", "LOANS_PLEDGE_ASSET",
    "ONCHAINEARN_REDEMPTION", "ONCHAINEARN_REFUND", "ONCHAINEARN_SUBSCRIPTION",
    "PEF_PROFIT_SHARE", "PEF_TRANSFER_IN", "PEF_TRANSFER_OUT",
    "PLATFORM_TOKEN_MNT_LIQRECALLEDMMNT", "PLATFORM_TOKEN_MNT_LIQRETURNEDMNT",
    "PREMARKET_DELIVERY_BUY_NEW_COIN", "PREMARKET_DELIVERY_PLEDGE_BACK",
    "PREMARKET_DELIVERY_PLEDGE_PAY_SELLER", "PREMARKET_DELIVERY_SELL_NEW_COIN",
    "PREMARKET_ROLLBACK_PLEDGE_BACK", "PREMARKET_ROLLBACK_PLEDGE_PENALTY_TO_BUYER",
    "PREMARKET_TRANSFER_OUT", "PREMIMUM_WEALTH_MANAGEMENT_REFUND",
    "PREMIMUM_WEALTH_MANAGEMENT_SUBSCRIPTION", "PRINCIPLE_REPAYMENT_INS_LOAN", "PWM_REFUND",
    "PWM_SUBSCRIPTION", "REPAY", "SETTLEMENT", "SPOT_REPAYMENT_BUY", "SPOT_REPAYMENT_SELL",
    "SPREAD_FEE_OUT", "STRUCTURE_PRODUCT_REFUND", "STRUCTURE_PRODUCT_SUBSCRIPTION",
    "TOKENS_REDEMPTION", "TOKENS_SUBSCRIPTION", "TRADE", "TRANSFER_IN", "TRANSFER_IN_INS_LOAN",
    "TRANSFER_OUT", "TRANSFER_OUT_INS_LOAN", "TWAP_BUDGET_AIRDROP", "TWAP_BUDGET_RECALL",
)  # fmt: skip
