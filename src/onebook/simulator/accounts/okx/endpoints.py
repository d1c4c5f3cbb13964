"""Answers of the simulated OKX's endpoints: rows of an account, as of the exchange's clock.

Lists are newest first. `after` requests older rows and `before` newer ones, both exclusive: by id
in the trading account, elsewhere by time, where rows of the same millisecond can be lost between
two pages. Lists of the trading account have limited retention:
https://www.okx.com/docs-v5/en/#trading-account-rest-api
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final, NamedTuple

from onebook.model import DAY_MS
from onebook.simulator.accounts.blocks import FIRST, LAST, Place
from onebook.simulator.accounts.okx import rows
from onebook.simulator.accounts.okx.account import OkxAccount
from onebook.simulator.accounts.okx.exports import SINCE, SLACK_MS, SimulatedOkxFiles
from onebook.simulator.accounts.okx.facts import (
    FIXED,
    FUNDING,
    ISOLATED,
    SAVINGS,
    STAKING,
    STRUCTURED,
    TRADING,
)
from onebook.simulator.accounts.okx.keys import OkxRefused, SimulatedOkxKey
from onebook.simulator.accounts.okx.names import (
    BILL_WORDS,
    HOUR_MS,
    PAIRS,
    SUB_ACCOUNT,
    SWAPS,
    OkxInstrument,
    funding_seq,
    trading_place,
)

PAGE_ROWS: Final = 100
EVER: Final = 2**40  # days
MONTH, QUARTER_DAYS, YEAR = 30, 90, 365
CANCELLED_MS: Final = 2 * HOUR_MS  # for which orders without a fill are listed
LIQUID: Final = {"eth": ("ETH", "BETH"), "sol": ("SOL", "OKSOL")}
Data = list[dict[str, Any]]


class OkxQuery(NamedTuple):
    """A request: its fields, its key unless it is public, and its time."""

    fields: Mapping[str, str]
    key: SimulatedOkxKey | None
    now: int

    def text(self, name: str, default: str = "") -> str:
        """Return a field; an empty one is absent."""
        return self.fields.get(name) or default

    def required(self, name: str) -> str:
        """Return a required field."""
        found = self.text(name)
        if not found:
            raise OkxRefused("50014", name)
        return found

    def whole(self, name: str) -> int | None:
        """Return a field that is a whole number."""
        found = self.text(name)
        if found and not found.isdecimal():
            raise OkxRefused("51000", name)
        return int(found) if found else None

    def limit(self) -> int:
        """Return the size of a page."""
        found = self.whole("limit")
        return min(PAGE_ROWS, PAGE_ROWS if found is None else found)

    def chosen(self, name: str) -> frozenset[str]:
        """Return the values of a list field."""
        return frozenset(each for each in self.text(name).split(",") if each)

    def matches(self, facts: Mapping[str, Any], *names: str) -> bool:
        """Return whether a row has each value that the query requests."""
        return all(not self.text(name) or facts[name] == self.text(name) for name in names)


class OkxEndpoints:
    """The answers of one account.

    Args:
        account: Its history.
        files: Its exports.
        archive_days: Retention of the archives of the trading account.
        refresh_s: Refresh interval of the history of funding bills, in seconds; 0: always current.
    """

    def __init__(
        self,
        account: OkxAccount,
        files: SimulatedOkxFiles,
        *,
        archive_days: int = QUARTER_DAYS,
        refresh_s: float = 30.0,
    ) -> None:
        self.account = account
        self._files = files
        self._refresh_ms = round(refresh_s * 1_000)
        days = archive_days
        self.answers: dict[str, Callable[[OkxQuery], Data]] = {
            "account/config": self._config,
            "account/balance": self._trading_balance,
            "account/bills": lambda query: self._bills(query, 7),
            "account/bills-archive": lambda query: self._bills(query, days),
            "account/subtypes": self._subtypes,
            "account/positions": self._positions,
            "account/positions-history": self._closings,
            "account/interest-accrued": self._interest,
            "account/spot-borrow-repay-history": self._borrowed,
            "account/instruments": self.instruments,
            "trade/fills": lambda query: self._fills(query, 3),
            "trade/fills-history": lambda query: self._fills(query, days, required=True),
            "trade/orders-history": lambda query: self._orders(query, 7),
            "trade/orders-history-archive": lambda query: self._orders(query, days),
            "trade/easy-convert-history": lambda query: self._listed(
                query, "dust", rows.dust, days=7
            ),
            "trade/one-click-repay-history": lambda query: self._listed(
                query, "repaid", rows.repaid, days=7
            ),
            "trade/one-click-repay-history-v2": lambda query: self._listed(
                query, "repaid", rows.repaid_newly, days=7
            ),
            "asset/balances": self._funding_balance,
            "asset/asset-valuation": self._valuation,
            "asset/currencies": self._currencies,
            "asset/bills": lambda query: self._funding(query, MONTH),
            "asset/bills-history": self._funding_history,
            "asset/deposit-history": self._deposits,
            "asset/withdrawal-history": self._withdrawals,
            "asset/transfer-state": self._transfer,
            "asset/subaccount/bills": self._sub_transfers,
            "asset/convert/history": lambda query: self._listed(
                query, "conversions", rows.conversion
            ),
            "fiat/deposit-order-history": lambda query: self._fiat(query, True),
            "fiat/withdrawal-order-history": lambda query: self._fiat(query, False),
            "finance/savings/balance": self._savings,
            "finance/savings/lending-history": self._lendings,
            "finance/staking-defi/orders-active": lambda query: self._stakes(query, False),
            "finance/staking-defi/orders-history": lambda query: self._stakes(query, True),
            "finance/flexible-loan/loan-history": self._loans,
            "users/subaccount/list": lambda query: [rows.sub_account()],
        }
        for chain in LIQUID:
            place = f"finance/staking-defi/{chain}"
            self.answers[f"{place}/purchase-redeem-history"] = self._liquid(chain)
            self.answers[f"{place}/balance"] = self._liquid_balance(chain)

    # Trading account ------------------------------------------------------------------------

    def _bills(self, query: OkxQuery, days: int) -> Data:
        types, ccy = query.chosen("type"), query.text("ccy")

        def wanted(label: tuple[str, str]) -> bool:
            return (not ccy or label[0] == ccy) and (not types or label[1] in types)

        found = (rows.bill(row) for row in self._recent(query, "bills", days, wanted))
        kinds = {"linear": False, "inverse": True}
        inverse = kinds.get(query.text("ctType"))
        return self._page(
            query,
            (
                row
                for row in found
                if query.matches(row, "instType", "instId", "mgnMode", "subType")
                and (inverse is None or _inverse(row["instId"]) is inverse)
            ),
        )

    def _recent(
        self,
        query: OkxQuery,
        table: str,
        days: int,
        wanted: Callable[[Any], bool] | None = None,
    ) -> Iterator[Any]:
        """Iterate over the rows of a table that is paged by ids and filtered by time."""
        floor = max(query.now - days * DAY_MS, query.whole("begin") or 0)
        end = query.whole("end")
        end = query.now if end is None else min(end, query.now)
        after: Place = (floor - SLACK_MS, -1.0)
        until: Place = (end + SLACK_MS, float("inf"))
        newer, older = query.whole("before"), query.whole("after")
        if newer is not None:
            after = max(after, trading_place(newer))
        if older is not None:
            time, seq = trading_place(older)
            until = min(until, (time, seq - 0.5))
        found = self.account.newest(table, after=after, until=until, wanted=wanted)
        return (row for row in found if floor <= getattr(row, "ts", row.time) <= end)

    def _page(self, query: OkxQuery, found: Iterable[dict[str, Any]]) -> Data:
        return list(islice(found, query.limit()))

    def _fills(self, query: OkxQuery, days: int, *, required: bool = False) -> Data:
        if required:
            query.required("instType")
        found = map(rows.fill, self._recent(query, "fills", days))
        names = ("instType", "instId", "ordId", "subType")
        return self._page(query, (row for row in found if query.matches(row, *names)))

    def _orders(self, query: OkxQuery, days: int) -> Data:
        query.required("instType")
        found = self._recent(query, "orders", days)
        listed = (
            rows.order(row)
            for row in found
            if row.updated <= query.now
            and (row.filled or (days == 7 and row.updated >= query.now - CANCELLED_MS))
        )
        names = ("instType", "instId", "ordType", "state", "category")
        return self._page(query, (row for row in listed if query.matches(row, *names)))

    def _closings(self, query: OkxQuery) -> Data:
        found = map(rows.closing, self._timed(query, "closings", QUARTER_DAYS))
        names = ("instType", "instId", "mgnMode", "type", "posId")
        return self._page(query, (row for row in found if query.matches(row, *names)))

    def _timed(
        self, query: OkxQuery, table: str, days: int, wanted: Callable[[Any], bool] | None = None
    ) -> Iterator[Any]:
        """Iterate over the rows of a table that is paged by times."""
        newer, older = query.whole("before"), query.whole("after")
        after: Place = (max(query.now - days * DAY_MS, SINCE), -1.0)
        until: Place = (query.now, float("inf"))
        if newer is not None:
            after = max(after, (newer, float("inf")))
        if older is not None:
            until = min(until, (older, -1.0))
        return self.account.newest(table, after=after, until=until, wanted=wanted)

    def _interest(self, query: OkxQuery) -> Data:
        kind = query.text("type", "2")  # VIP loans must be requested explicitly
        found = (rows.interest(row) for row in self._timed(query, "interest", YEAR)
                 if row.kind == kind)  # fmt: skip
        names = ("ccy", "instId", "mgnMode")
        return self._page(query, (row for row in found if query.matches(row, *names)))

    def _borrowed(self, query: OkxQuery) -> Data:
        return self._listed(query, "borrowed", rows.borrowing, "ccy", "type")

    def _positions(self, query: OkxQuery) -> Data:
        found = map(rows.position, self.account.state.positions.values())
        return [row for row in found if query.matches(row, "instType", "instId")]

    def _trading_balance(self, query: OkxQuery) -> Data:
        held, ccys, now = self._held(query.now), query.chosen("ccy"), query.now
        total, details = 0, []
        for (wallet, ccy), balance in sorted(held.items()):
            isolated = held.get((ISOLATED, ccy), 0)
            debt = self.account.state.debts.get(ccy, 0)
            if wallet == TRADING and (balance or isolated or debt):
                total += rows.dollars_of(ccy, balance + isolated)
                if not ccys or ccy in ccys:
                    details.append(rows.held_for_trading(ccy, balance, isolated, debt, now))
        return [rows.trading_account(details, total, now)]

    def _held(self, now: int) -> dict[tuple[str, str], int]:
        return self.account.balances(None if now >= self.account.until else now)

    def _config(self, query: OkxQuery) -> Data:
        level, key = 2 if self.account.history.derivatives else 1, query.key
        assert key is not None
        return [
            rows.config(key.permissions, key.ips, level=level, label="simulated", user=key.user)
        ]

    def _subtypes(self, query: OkxQuery) -> Data:
        return rows.subtypes(sorted(query.chosen("type") & BILL_WORDS.keys()) or BILL_WORDS)

    # Funding account ------------------------------------------------------------------------

    def _funding(self, query: OkxQuery, days: int, *, by_id: bool = False, now: int = 0) -> Data:
        query = query._replace(now=now or query.now)
        custodian = query.whole("thirdPartyType") or 1
        types, ccy = query.chosen("type"), query.text("ccy")

        def wanted(label: tuple[str, str]) -> bool:
            return (not ccy or label[0] == ccy) and (not types or label[1] in types)

        if by_id:
            found = self._funding_by_id(query, wanted)
        else:
            found = self._timed(query, "funding", days, wanted)
        shown = (rows.funding_bill(row) for row in found if row.custodian in (0, custodian))
        return self._page(query, (row for row in shown if query.matches(row, "clientId")))

    def _funding_by_id(self, query: OkxQuery, wanted: Callable[[Any], bool]) -> Iterator[Any]:
        after, until = FIRST, LAST
        newer, older = query.whole("before"), query.whole("after")
        if newer is not None:
            after = self.account.place_at("funding", funding_seq(newer)[0])
        if older is not None:
            seq, exact = funding_seq(older)
            until = self.account.place_at("funding", seq - 1 if exact else seq)
        after, until = max(after, (SINCE, -1.0)), min(until, (query.now, float("inf")))
        return self.account.newest("funding", after=after, until=until, wanted=wanted)

    def _funding_history(self, query: OkxQuery) -> Data:
        paging, refresh = query.text("pagingType", "1"), self._refresh_ms
        if paging not in ("1", "2"):
            raise OkxRefused("51000", "pagingType")
        now = query.now // refresh * refresh if refresh else query.now
        return self._funding(query, EVER, by_id=paging == "2", now=now)

    def _listed(
        self,
        query: OkxQuery,
        name: str,
        written: Callable[[Any], dict[str, Any]],
        *filters: str,
        days: int = EVER,
    ) -> Data:
        """Return a page of one of the short lists, which are paged by time."""
        newer, older = query.whole("before"), query.whole("after")
        floor = query.now - days * DAY_MS
        found = sorted(
            (
                row
                for row in self.account.lists[name]
                if floor <= row.time <= query.now
                and (newer is None or row.time > newer)
                and (older is None or row.time < older)
            ),
            reverse=True,
        )
        return self._page(
            query, (row for row in map(written, found) if query.matches(row, *filters))
        )

    def _deposits(self, query: OkxQuery) -> Data:
        names = ("ccy", "depId", "fromWdId", "txId", "state")
        return self._listed(query, "deposits", lambda row: rows.deposit(row, query.now), *names)

    def _withdrawals(self, query: OkxQuery) -> Data:
        names = ("ccy", "wdId", "clientId", "txId", "state")
        return self._listed(
            query, "withdrawals", lambda row: rows.withdrawal(row, query.now), *names
        )

    def _sub_transfers(self, query: OkxQuery) -> Data:
        if query.text("subAcct", SUB_ACCOUNT) != SUB_ACCOUNT:
            return []
        return self._listed(query, "sub_transfers", rows.sub_transfer, "ccy", "type")

    def _transfer(self, query: OkxQuery) -> Data:
        name = "transId" if query.text("transId") else "clientId"
        query.required(name)
        found = self._listed(query, "transfers", rows.transfer, name, days=14)
        return found[:1]

    def _fiat(self, query: OkxQuery, incoming: bool) -> Data:
        """Return bank orders: here `after` is the first time and `before` the last, inclusive."""
        first, last = query.whole("after") or 0, query.whole("before")
        found = sorted(
            (
                row
                for row in self.account.lists["fiat"]
                if row.incoming is incoming
                and first <= row.time <= (query.now if last is None else min(last, query.now))
            ),
            reverse=True,
        )
        shown = (rows.fiat(row, query.now) for row in found)
        return self._page(query, (row for row in shown if query.matches(row, "ccy", "state")))

    def _funding_balance(self, query: OkxQuery) -> Data:
        ccys = query.chosen("ccy")
        return [
            rows.held_for_funding(ccy, balance)
            for (wallet, ccy), balance in sorted(self._held(query.now).items())
            if wallet == FUNDING and balance and (not ccys or ccy in ccys)
        ]

    def _valuation(self, query: OkxQuery) -> Data:
        total = {"classic": 0, "earn": 0, "funding": 0, "trading": 0}
        parts = {TRADING: "trading", ISOLATED: "trading", FUNDING: "funding", SAVINGS: "earn",
                 STAKING: "earn", FIXED: "earn", STRUCTURED: "earn"}  # fmt: skip
        for (wallet, ccy), balance in self._held(query.now).items():
            if wallet in parts:
                total[parts[wallet]] += rows.dollars_of(ccy, balance)
        details = {name: rows.text(each) for name, each in total.items()}
        return [{"details": details, "totalBal": rows.text(sum(total.values())),
                 "ts": str(query.now)}]  # fmt: skip

    def _currencies(self, query: OkxQuery) -> Data:
        ccys = query.chosen("ccy")
        return [row for row in rows.currencies() if not ccys or row["ccy"] in ccys]

    # Earn and loans -------------------------------------------------------------------------

    def _savings(self, query: OkxQuery) -> Data:
        return [
            rows.savings(ccy, balance)
            for (wallet, ccy), balance in sorted(self._held(query.now).items())
            if wallet == SAVINGS and balance and query.text("ccy", ccy) == ccy
        ]

    def _lendings(self, query: OkxQuery) -> Data:
        found = map(rows.lending, self._timed(query, "lendings", MONTH))
        return self._page(query, (row for row in found if query.matches(row, "ccy")))

    def _stakes(self, query: OkxQuery, ended: bool) -> Data:
        """Return orders of on-chain earn, which are paged by ids."""
        newer, older, now = query.whole("before"), query.whole("after"), query.now
        found = sorted(
            (row for row in self.account.lists["stakes"]
             if row.time <= now and (row.redeemed <= now) is ended), reverse=True
        )  # fmt: skip
        shown = (rows.stake(row, now) for row in found)
        listed = (
            row
            for row in shown
            if (newer is None or int(row["ordId"]) > newer)
            and (older is None or int(row["ordId"]) < older)
            and query.matches(row, "ccy", "productId", "protocolType")
        )
        return self._page(query, listed) if ended else list(listed)

    def _liquid(self, chain: str) -> Callable[[OkxQuery], Data]:
        ccy, _ = LIQUID[chain]

        def answer(query: OkxQuery) -> Data:
            def written(row: Any) -> dict[str, Any]:
                return rows.liquid_stake(row, query.now) | {"ccy": row.ccy}

            query = query._replace(fields={**query.fields, "ccy": ccy})
            found = self._listed(query, "liquid", written, "ccy", "type", "status")
            return [{name: row[name] for name in row if name != "ccy"} for row in found]

        return answer

    def _liquid_balance(self, chain: str) -> Callable[[OkxQuery], Data]:
        _, token = LIQUID[chain]

        def answer(query: OkxQuery) -> Data:
            held = self._held(query.now).get((FUNDING, token), 0)
            return [{"amt": rows.text(held), "ccy": token, "latestInterestAccrual": "0",
                     "totalInterestAccrual": "0", "ts": str(query.now)}]  # fmt: skip

        return answer

    def _loans(self, query: OkxQuery) -> Data:
        return self._listed(query, "loans", rows.loan, "type")

    # Instruments and exports ------------------------------------------------------------------

    def instruments(self, query: OkxQuery) -> Data:
        """Return the currently traded instruments, without delisted and expired ones."""
        kind = query.required("instType")
        if kind == "OPTION" and not (query.text("uly") or query.text("instFamily")):
            raise OkxRefused("50014", "instFamily")
        listed: dict[str, tuple[OkxInstrument, ...]] = {
            "SPOT": tuple(PAIRS.values()), "SWAP": tuple(SWAPS.values()),
            "MARGIN": (), "FUTURES": (), "OPTION": (),
        }  # fmt: skip
        if kind not in listed:
            raise OkxRefused("51000", "instType")
        found = (rows.instrument(each) for each in listed[kind] if each.open(query.now))
        return [row for row in found if query.matches(row, "instId")]

    def apply_export(self, query: OkxQuery, *, failed: bool = False) -> Data:
        """Request the file of a quarter."""
        year, quarter = query.required("year"), query.required("quarter")
        return [self._files.apply(year, quarter, query.text("type"), failed=failed)]

    def export_status(self, query: OkxQuery) -> Data:
        """Return the state of a quarter's file."""
        year, quarter = query.required("year"), query.required("quarter")
        return [self._files.status(year, quarter, query.text("type"))]


def _inverse(instrument: str) -> bool | None:
    """Whether a contract is settled in its coin; None for pairs."""
    parts = instrument.split("-")
    return None if len(parts) < 3 else parts[1] == "USD"
