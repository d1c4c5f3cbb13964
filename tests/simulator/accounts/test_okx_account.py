"""The simulated OKX account: the identities of its ledgers, and that any size of it is cheap."""

import gc
from collections import Counter, defaultdict
from itertools import pairwise
from random import Random

import pytest

from onebook.model import DAY_MS
from onebook.simulator.accounts.okx import OkxAccount, OkxHistory
from onebook.simulator.accounts.okx.facts import (
    FUNDING,
    ISOLATED,
    LOANS,
    SAVINGS,
    TRADING,
    TradingBill,
)
from onebook.simulator.accounts.okx.generator import CONTRACT_KINDS, PLAN
from onebook.simulator.accounts.okx.names import (
    BILL_WORDS,
    IDS_CHANGED,
    NANO8,
    UNIT,
    funding_bill_id,
    funding_seq,
    times,
    trading_id,
    trading_place,
)
from simulator.accounts.okx_client import ACCOUNT, HISTORY, NOW_MS

BILLS = list(ACCOUNT.bills())
FUNDS = list(ACCOUNT.funding())
FILLS = list(ACCOUNT.rows("fills"))


class TestTradingBills:
    def test_every_balance_is_the_one_before_plus_the_change(self) -> None:
        held: Counter[str] = Counter()
        apart: Counter[str] = Counter()
        for row in BILLS:
            held[row.ccy] += row.change
            assert row.balance == held[row.ccy] >= 0
            apart[row.ccy] += row.isolated
            assert not row.isolated or row.isolated_after == apart[row.ccy] >= 0
        final = ACCOUNT.balances()
        assert {(TRADING, ccy): n for ccy, n in held.items()}.items() <= final.items()

    def test_ids_rise_while_times_are_equal_or_step_back(self) -> None:
        ids = [trading_id(row.time, row.seq) for row in BILLS]
        assert ids == sorted(set(ids))
        assert min(ids) > 2**53  # no float holds them
        steps = Counter((b.ts > a.ts) - (b.ts < a.ts) for a, b in pairwise(BILLS))
        assert min(steps[0], steps[-1]) > 20
        assert all(abs(row.ts - row.time) <= 2 for row in BILLS)

    def test_every_kind_of_the_facts_is_there(self) -> None:
        kinds = {(row.type, row.sub) for row in BILLS}
        assert {type_ for type_, _ in kinds} >= {
            "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "14", "24", "26", "27",
            "28", "29", "30", "34", "381",
        }  # fmt: skip
        assert {"3", "4", "5", "6"} <= {sub for type_, sub in kinds if type_ == "2"}
        for type_, sub in kinds:
            assert sub in BILL_WORDS[type_][1]

    def test_the_type_of_a_bill_follows_from_its_subtype(self) -> None:
        """Exported files have only the subtype."""
        types = defaultdict(set)
        for type_, (_, subs) in BILL_WORDS.items():
            for sub in subs:
                types[sub].add(type_)
        assert all(len(found) == 1 for found in types.values())

    def test_a_fill_of_a_pair_is_two_bills_with_the_fee_in_one(self) -> None:
        legs = defaultdict(list)
        for row in BILLS:
            if row.type == "2" and row.instrument and row.instrument.kind == "SPOT":
                legs[row.instrument.id, row.order, row.trade].append(row)
        fills = {(each.instrument.id, each.order, each.trade): each for each in FILLS
                 if each.instrument.kind == "SPOT"}  # fmt: skip
        assert legs.keys() == fills.keys()
        fees: Counter[str] = Counter()
        tails = 0
        for place, rows in legs.items():
            fill, amounts = fills[place], {row.ccy: row for row in rows}
            assert len(rows) == 2
            pair, sign = fill.instrument, 1 if fill.side == "buy" else -1
            base, quote = amounts[pair.base], amounts[pair.settle]
            gross = {"base": sign * fill.size, "quote": -sign * times(fill.size, fill.price)}
            over = [base.change - base.fee - gross["base"],
                    quote.change - quote.fee - gross["quote"]]  # fmt: skip
            received, spent = over if sign > 0 else over[::-1]
            assert received == 0
            assert 0 <= spent < NANO8
            tails += spent > 0
            assert (base.sub, quote.sub) == (("1", "2") if sign > 0 else ("2", "1"))
            assert (fill.fee, fill.fee_ccy) == (
                (base.fee, pair.base) if sign > 0 else (quote.fee, pair.settle)
            )
            assert (base if sign < 0 else quote).fee == 0
            assert (fill.time, fill.seq) == (base.time, base.seq)
            fees["rebate" if fill.fee > 0 else "paid"] += 1
        assert fees["rebate"] > 10 < fees["paid"]
        assert tails > 3  # of rows of 2021
        assert any(rows[0].ccy != rows[0].instrument.base for rows in legs.values())
        assert any(rows[0].ccy == rows[0].instrument.base for rows in legs.values())

    def test_trade_ids_repeat_over_instruments(self) -> None:
        found = Counter(each.trade for each in FILLS)
        assert max(found.values()) > 3
        places = Counter((each.instrument.id, each.trade) for each in FILLS if each.trade)
        assert max(places.values()) == 1

    def test_a_fill_of_contracts_is_one_bill_of_profit_and_fee(self) -> None:
        rows = [row for row in BILLS if row.instrument and row.instrument.kind in (
            "SWAP", "FUTURES") and row.order and row.sub != "109"]  # fmt: skip
        assert len(rows) > 200
        for row in rows:
            assert row.change == row.pnl + row.fee
            assert row.ccy == row.instrument.settle
            assert row.size % row.instrument.lot == 0
        assert {row.sub for row in rows} >= {"3", "4", "5", "6", "104", "206", "272"} - {
            "104" if not any(row.sub == "104" for row in rows) else ""
        }
        funding = [row for row in BILLS if row.type == "8"]
        assert all(row.change == row.pnl for row in funding)
        assert {row.sub for row in funding} == {"173", "174"}
        assert all((row.sub == "174") == (row.change > 0) for row in funding)

    def test_options_have_a_premium_and_an_end(self) -> None:
        rows = [row for row in BILLS if row.instrument and row.instrument.kind == "OPTION"]
        traded = {row.instrument.id: row for row in rows if row.type == "2"}
        ended = [row for row in rows if row.type == "3"]
        assert {row.sub for row in ended} >= {"172"}
        for row in traded.values():
            assert row.pnl == 0
            assert (row.change - row.fee > 0) == (row.sub == "2")
        assert {row.instrument.id for row in ended} <= traded.keys()
        assert any(row.change == 0 for row in ended)

    def test_interest_is_what_accrued(self) -> None:
        accrued = sum(row.interest for row in ACCOUNT.rows("interest"))
        deducted = sum(row.interest for row in BILLS if row.type == "7")
        open_ = sum(ACCOUNT.state.accrued.values())
        assert accrued == open_ - deducted > 0
        assert all(row.change == row.interest for row in BILLS if row.type == "7")

    def test_closed_positions_add_up(self) -> None:
        last: dict[tuple[int, int], Counter[str]] = {}
        parts: Counter[tuple[int, int]] = Counter()
        for row in ACCOUNT.rows("closings"):
            each = row.position
            place = each.opened, each.number
            parts[place] += 1
            last[place] = Counter(fee=each.fee, funding=each.funding, pnl=each.pnl,
                                  penalty=each.penalty)  # fmt: skip
        assert max(parts.values()) > 1  # several rows of one position
        total = sum(sum(each.values()) for each in last.values())
        assert total != 0
        assert {row.type for row in ACCOUNT.rows("closings")} >= {"1", "2", "3", "5"}


class TestFundingBills:
    def test_every_balance_is_the_one_before_plus_the_change(self) -> None:
        held: Counter[str] = Counter()
        for row in FUNDS:
            held[row.ccy] += row.change
            assert row.balance == held[row.ccy] >= 0
        final = ACCOUNT.balances()
        assert {(FUNDING, ccy): n for ccy, n in held.items()}.items() <= final.items()

    def test_some_share_a_millisecond(self) -> None:
        times_ = Counter(row.time for row in FUNDS)
        assert sum(count > 1 for count in times_.values()) > 10
        assert max(times_.values()) >= 3

    def test_kinds_of_the_facts_are_there(self) -> None:
        assert {row.type for row in FUNDS} >= {
            "1", "2", "13", "20", "75", "76", "80", "82", "83", "116", "130", "131", "136", "137",
            "138", "160", "161", "200", "212", "217", "218", "215", "221", "272", "273", "311",
            "329", "330", "339", "342", "343", "509", "511", "516",
        }  # fmt: skip

    def test_transfers_are_in_both_accounts(self) -> None:
        mirrors = [(row.ccy, -row.change, row.time) for row in FUNDS if row.type in ("130", "131")]
        for row in BILLS:
            if row.type == "1" and row.sub in ("11", "12"):
                ccy, change, at = min(
                    (each for each in mirrors if each[:2] == (row.ccy, row.change)),
                    key=lambda each: abs(each[2] - row.time),
                )
                assert abs(at - row.time) < 1_000
                mirrors.remove((ccy, change, at))
                assert row.way == (("6", "18") if change > 0 else ("18", "6"))
        assert mirrors == []

    def test_deposits_and_withdrawals_are_bills(self) -> None:
        credited = [each for each in ACCOUNT.lists["deposits"] if 0 < each.credited <= NOW_MS]
        fiat = [each for each in ACCOUNT.lists["fiat"] if each.incoming
                and each.state == "completed" and each.done <= NOW_MS]  # fmt: skip
        booked = Counter((row.ccy, row.change) for row in FUNDS if row.type == "1")
        expected = Counter((each.chain.ccy, each.amount) for each in credited)
        assert booked == expected + Counter((each.ccy, each.amount) for each in fiat)
        spent = sum(row.change for row in FUNDS if row.type in ("2", "13", "221", "222")
                    and row.ccy != "EUR")  # fmt: skip
        sent = [each for each in ACCOUNT.lists["withdrawals"]
                if each.final == 2 or each.ended > NOW_MS]  # fmt: skip
        assert spent == -sum(each.amount + each.fee for each in sent)
        assert {each.final for each in ACCOUNT.lists["withdrawals"]} == {2, -1, -2}
        assert {each.internal for each in ACCOUNT.lists["deposits"]} >= {"", "id"}
        assert any(each.final > 2 for each in ACCOUNT.lists["deposits"])


class TestTruth:
    def test_events_add_up_to_what_is_held(self) -> None:
        total: Counter[tuple[str, str]] = Counter()
        for event in ACCOUNT.events():
            for wallet, ccy, change in event.changes:
                total[wallet, ccy] += change
        assert total == Counter(ACCOUNT.balances())
        assert {wallet for wallet, _ in total} >= {TRADING, FUNDING, ISOLATED, SAVINGS, LOANS}
        assert all(n >= 0 for n in total.values())

    def test_each_bill_is_of_one_event(self) -> None:
        events = list(ACCOUNT.events())
        bills = Counter(id_ for event in events for id_ in event.bills)
        assert bills == Counter(str(trading_id(row.time, row.seq)) for row in BILLS)
        funding = Counter(id_ for event in events for id_ in event.funding)
        assert funding == Counter(str(funding_bill_id(row.seq)) for row in FUNDS)

    def test_fees_are_those_of_the_bills_and_of_withdrawals(self) -> None:
        paid: Counter[str] = Counter()
        for event in ACCOUNT.events():
            for _, ccy, fee in event.fees:
                paid[ccy] += fee
        expected = Counter(dict.fromkeys(paid, 0))
        for row in BILLS:
            expected[row.ccy] -= row.fee
        for each in ACCOUNT.lists["withdrawals"]:
            if each.final == 2 or each.ended > NOW_MS:
                expected[each.chain.ccy] += each.fee
        for each in ACCOUNT.lists["fiat"]:
            expected[each.ccy] += each.fee
        assert {k: n for k, n in paid.items() if n} == {k: n for k, n in expected.items() if n}

    def test_savings_earn_what_no_bill_shows(self) -> None:
        earned = sum(row.earnings for row in ACCOUNT.rows("lendings") if row.ccy == "USDT")
        bills = sum(row.change for row in FUNDS if row.ccy == "USDT" and row.type in ("75", "76"))
        assert ACCOUNT.balances()[SAVINGS, "USDT"] == earned - bills
        assert earned > 0

    def test_balances_at_a_time_are_those_of_the_rows_before_it(self) -> None:
        random = Random(5)
        span = [random.randrange(HISTORY.from_ms, HISTORY.to_ms) for _ in range(30)]
        products = list(ACCOUNT.rows("products"))
        for at_ms in [*span, HISTORY.from_ms, HISTORY.to_ms, BILLS[777].time]:
            held: dict[tuple[str, str], int] = {}
            for row in BILLS:
                if row.time <= at_ms:
                    held[TRADING, row.ccy] = row.balance
                    if row.isolated:
                        held[ISOLATED, row.ccy] = row.isolated_after
            held |= {(FUNDING, row.ccy): row.balance for row in FUNDS if row.time <= at_ms}
            held |= {(row.wallet, row.ccy): row.balance for row in products if row.time <= at_ms}
            found = ACCOUNT.balances(at_ms)
            assert {k: n for k, n in found.items() if n} == {k: n for k, n in held.items() if n}

    def test_an_account_without_contracts_has_pairs_alone(self) -> None:
        account = OkxAccount(OkxHistory(NOW_MS - 900 * DAY_MS, NOW_MS, rows=600, derivatives=False))
        kinds = {row.instrument.kind for row in account.bills() if row.instrument}
        assert kinds == {"SPOT"}
        assert not account.state.debts
        assert {row.type for row in account.bills()}.isdisjoint({"5", "6", "7", "8", "15", "16"})
        assert {each.kind for each in PLAN} > CONTRACT_KINDS

    def test_happenings_are_added_to_the_end(self) -> None:
        account = OkxAccount(OkxHistory(NOW_MS - 300 * DAY_MS, NOW_MS, rows=300))
        before = list(account.bills())
        for second, kind in enumerate(("order", "transfer", "position", "withdrawal", "deposit")):
            account.happen(kind, NOW_MS + 1_000 * second)
        after = list(account.bills())
        assert after[: len(before)] == before
        assert len(after) > len(before)
        deposits = [each for each in account.lists["deposits"] if each.time >= NOW_MS]
        (event,) = [each for each in account.happen("", NOW_MS + 2 * 3_600_000)
                    if each.reference == f"deposit {deposits[-1].seq}"]  # fmt: skip
        assert event.kind == "deposit"
        total: Counter[tuple[str, str]] = Counter()
        for each in account.events():
            for wallet, ccy, change in each.changes:
                total[wallet, ccy] += change
        assert total == Counter(account.balances())


class TestIds:
    def test_ids_of_recorded_rows_hold_their_times(self) -> None:
        """An order and its bill of 2024, another order of 2025, and a position of 2024."""
        assert trading_place(680800019749904384)[0] == 1708587373361
        assert trading_place(680800019754098688)[0] == 1708587373362
        assert abs(trading_place(2338478342062235648)[0] - 1742194485439) < 10
        assert abs(trading_place(1752810569801498626)[0] - 1724740225685) < 10

    def test_places_and_ids_are_in_one_order(self) -> None:
        random = Random(2)
        for _ in range(300):
            at = random.choice((IDS_CHANGED, random.randrange(HISTORY.from_ms, NOW_MS)))
            at += random.randrange(-3, 4)
            seq = random.randrange(1, 2**21)
            id_ = trading_id(at, seq)
            assert trading_place(id_) == (at, seq)
            assert trading_place(id_ - 1) < (at, seq) < trading_place(id_ + 1)
        between = (trading_id(IDS_CHANGED - 1, 2**21) + trading_id(IDS_CHANGED, 1)) // 2
        assert (IDS_CHANGED - 1, 2**21) < trading_place(between) < (IDS_CHANGED, 1)
        assert funding_seq(funding_bill_id(7)) == (7, True)
        assert funding_seq(funding_bill_id(7) + 1) == (7, False)
        assert funding_seq(funding_bill_id(7) - 1) == (6, False)


class TestBlocks:
    def test_the_same_history_makes_the_same_account(self) -> None:
        again = OkxAccount(HISTORY)
        assert list(again.bills()) == BILLS
        assert list(again.funding()) == FUNDS
        assert again.lists == ACCOUNT.lists
        other = OkxAccount(OkxHistory(HISTORY.from_ms, HISTORY.to_ms, rows=2_400, seed=2))
        assert list(other.bills())[:50] != BILLS[:50]

    @pytest.mark.parametrize("rows", [400, 9_000])
    def test_its_size_is_about_as_asked(self, rows: int) -> None:
        account = OkxAccount(OkxHistory(NOW_MS - 1_800 * DAY_MS, NOW_MS, rows=rows))
        found = sum(1 for _ in account.bills()) + sum(1 for _ in account.funding())
        assert 0.8 * rows < found < 1.2 * rows + 500  # of each rare kind there is one at least

    def test_rows_of_a_few_blocks_are_in_memory(self) -> None:
        def alive() -> int:
            gc.collect()
            return sum(type(each) is TradingBill for each in gc.get_objects())

        before = alive()
        account = OkxAccount(OkxHistory(NOW_MS - 1_800 * DAY_MS, NOW_MS, rows=40_000))
        assert alive() - before < 100
        most = max(alive() for n, _ in enumerate(account.bills()) if n % 9_000 == 8_999)
        assert 1_000 < most - before < 25_000

    def test_amounts_are_exact_to_the_sixteenth_decimal(self) -> None:
        assert any(row.change % (UNIT // 10**12) for row in BILLS)
