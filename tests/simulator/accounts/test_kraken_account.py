"""The simulated Kraken account: the identities of its ledgers, and that any size of it is cheap."""

import gc
from collections import Counter, defaultdict
from itertools import islice, pairwise
from random import Random

import pytest

from onebook.model import DAY_MS
from onebook.simulator.accounts.blocks import FIRST, LAST
from onebook.simulator.accounts.kraken import KrakenAccount, KrakenHistory
from onebook.simulator.accounts.kraken.facts import SPOT, BookedRow, SpotTrade
from onebook.simulator.accounts.kraken.generator import FUTURES_KINDS, ONCE, PLAN
from onebook.simulator.accounts.kraken.names import (
    ASSETS,
    MS_TICKS,
    PAIRS,
    cut,
    id_of,
    nearest,
    number_of,
)
from simulator.accounts.kraken_client import ACCOUNT, HISTORY, NOW_MS

LEDGER = list(ACCOUNT.ledger())
LOG = list(ACCOUNT.rows("log"))
TRADES = {row.seq: row for row in ACCOUNT.rows("trades")}


class TestLedger:
    def test_every_balance_is_the_one_before_plus_amount_less_fee(self) -> None:
        held: Counter[str] = Counter()
        for row in LEDGER:
            held[row.asset] += row.amount - row.fee
            assert row.balance == held[row.asset] >= 0
        assert {(SPOT, asset): n for asset, n in held.items()}.items() <= ACCOUNT.balances().items()

    def test_rows_stand_by_time_and_some_share_one(self) -> None:
        places = [(row.time, row.seq) for row in LEDGER]
        assert places == sorted(places)
        same = [a.asset for a, b in pairwise(LEDGER) if a.time == b.time]
        assert len(same) > 100
        seconds = Counter(row.time % 10_000_000 != 0 for row in LEDGER)
        assert seconds[True] > len(LEDGER) / 2

    def test_legs_of_a_reference_are_not_always_in_the_order_of_their_numbers(self) -> None:
        assert any(a.seq > b.seq for a, b in pairwise(LEDGER))

    def test_every_kind_of_the_facts_is_there(self) -> None:
        types = {row.type for row in LEDGER}
        assert types >= {
            "trade", "deposit", "withdrawal", "transfer", "margin", "adjustment", "rollover",
            "spend", "receive", "settled", "credit", "staking", "reward", "dividend", "sale",
            "conversion", "nfttrade", "nftcreatorfee", "nftrebate", "custodytransfer", "earn",
            "invite bonus",
        }  # fmt: skip
        subtypes = {row.subtype for row in LEDGER}
        assert subtypes >= {
            "", "tradespot", "spottostaking", "stakingfromspot", "stakingtospot", "spotfromstaking",
            "spottofutures", "spotfromfutures", "airdrop", "delistingconversion", "reward",
            "allocation", "deallocation", "autoallocation", "migration",
        }  # fmt: skip
        assert {row.asset for row in LEDGER} >= {
            "XXBT", "ZEUR", "KFEE", "EUR.HOLD", "ETH2", "ETH2.S", "ATOM21.S", "XBT.M", "ETH.B",
            "SOL.F", "XICN",
        }  # fmt: skip
        assert any(asset.endswith(".T") for asset in {row.asset for row in LEDGER})

    def test_amounts_have_the_decimals_of_their_asset(self) -> None:
        for row in LEDGER:
            decimals = ASSETS[row.asset].decimals
            for amount in (row.amount, row.fee, row.balance):
                assert cut(amount, decimals) == amount


class TestTrades:
    def test_each_fill_has_its_legs_under_its_reference(self) -> None:
        legs = defaultdict(list)
        for row in LEDGER:
            if row.type == "trade":
                legs[row.refid].append(row)
        spot = {("T", n): row for n, row in TRADES.items() if not row.margin}
        assert legs.keys() == spot.keys()
        for refid, trade in spot.items():
            assert sorted(row.seq for row in legs[refid]) == sorted(trade.ledger)
            amounts = {row.asset: row.amount for row in legs[refid]}
            sign = 1 if trade.side == "buy" else -1
            base, quote = trade.pair.base, trade.pair.quote
            assert amounts[base] == sign * trade.volume
            decimals = ASSETS[quote].decimals
            assert amounts.get(quote, 0) == -sign * nearest(trade.cost, decimals)

    def test_fees_are_in_the_quote_the_base_or_credits_and_the_list_shows_the_quote(self) -> None:
        charged: Counter[str] = Counter()
        dusty = 0
        for row in LEDGER:
            if row.type == "trade" and row.fee:
                pair = TRADES[row.refid[1]].pair
                names = {pair.base: "base", pair.quote: "quote", "KFEE": "credits"}
                charged[names[row.asset]] += 1
        for trade in TRADES.values():
            dusty += len(trade.ledger) == 1 and not trade.margin
            assert trade.fee or dusty
        assert charged["quote"] > charged["credits"] > 20 < charged["base"]
        assert dusty >= 3  # the leg of the quote rounds to zero

    def test_cost_is_price_times_volume_to_the_last_decimal(self) -> None:
        for trade in TRADES.values():
            exact = trade.price * trade.volume // 10**12
            assert abs(trade.cost - exact) <= 10 ** (12 - trade.pair.cost_decimals)

    def test_margin_positions_are_opened_rolled_over_and_ended(self) -> None:
        opened = {n for n, row in TRADES.items() if row.margin and not row.opened}
        assert opened == ACCOUNT.closed.keys() | ACCOUNT.state.margin.keys()
        rolled = {row.refid[1] for row in LEDGER if row.type == "rollover"}
        assert rolled <= opened
        assert rolled
        closings = [row for row in TRADES.values() if row.opened]
        assert {row.opened for row in closings} < opened  # others were settled in kind
        assert any(row.ordertype == "liquidation market" for row in closings) or len(closings) < 6

    def test_orders_name_their_fills(self) -> None:
        orders = list(ACCOUNT.rows("orders"))
        assert sorted(n for order in orders for n in order.trades) == sorted(TRADES)
        assert any(not order.trades for order in orders)
        for order in orders:
            assert order.executed == sum(TRADES[n].volume for n in order.trades)


class TestPairsOfRows:
    """Events whose rows share a reference, and events whose rows do not."""

    def test_tokens_are_traded_by_dollars_that_cancel(self) -> None:
        groups = defaultdict(list)
        for row in LEDGER:
            groups[row.refid].append(row)
        four = [rows for rows in groups.values() if any(r.asset.endswith(".T") for r in rows)]
        assert four
        for rows in four:
            assert len(rows) == 4
            assert sum(row.amount for row in rows if row.asset == "ZUSD") == 0

    def test_a_reversal_comes_days_later_with_a_negative_fee(self) -> None:
        groups = defaultdict(list)
        for row in LEDGER:
            if row.type in ("deposit", "withdrawal"):
                groups[row.refid].append(row)
        pairs = [rows for rows in groups.values() if len(rows) == 2]
        assert len(pairs) >= 5
        for first, second in pairs:
            assert first.amount == -second.amount
            assert first.fee == -second.fee
            assert second.time - first.time >= 20 * 3_600 * 10**7

    def test_references_of_allocations_are_used_again_and_for_several_assets(self) -> None:
        days, stems = defaultdict(set), defaultdict(set)
        for row in LEDGER:
            if row.type == "earn" and "allocat" in row.subtype:
                days[row.refid].add(row.time // (DAY_MS * MS_TICKS))
                stems[row.refid].add(row.asset)
        assert any(len(found) > 1 for found in days.values())
        assert any(len(found) == 6 for found in stems.values())

    def test_halves_of_a_move_into_staking_share_nothing(self) -> None:
        left = [row for row in LEDGER if row.subtype == "spottostaking"]
        came = [row for row in LEDGER if row.subtype == "stakingfromspot"]
        assert [row.amount for row in left] == [-row.amount for row in came]
        assert not {row.refid for row in left} & {row.refid for row in came}

    def test_transfers_to_futures_are_in_its_log(self) -> None:
        spot = sum(
            -row.amount
            for row in LEDGER
            if row.subtype in ("spottofutures", "spotfromfutures") and row.asset == "USDT"
        )
        log = sum(row.new - row.old for row in LOG
                  if row.info == "cross-exchange transfer" and row.asset == "usdt")  # fmt: skip
        assert spot == log != 0
        airdrops = [row for row in LEDGER if row.subtype == "spotfromfutures"
                    and row.asset in ("ETHW", "SYRUP")]  # fmt: skip
        assert airdrops  # without a row there


class TestFutures:
    def test_every_balance_of_a_wallet_follows_from_the_one_before(self) -> None:
        held: Counter[tuple[str, str]] = Counter()
        for row in LOG:
            assert row.old == held[row.account, row.asset]
            held[row.account, row.asset] = row.new
            if row.asset != row.contract and row.pnl is not None:
                charged = (row.fee or 0) + (row.liquidation_fee or 0)
                assert row.new - row.old == row.pnl + (row.funding or 0) - charged
        cash = {place: n for place, n in held.items() if "_" not in place[1]}
        assert cash == {place: n for place, n in ACCOUNT.balances().items() if place[0] != SPOT}

    def test_an_execution_has_a_position_and_a_cash_row(self) -> None:
        fills = {row.seq: row for row in ACCOUNT.rows("fills")}
        legs = defaultdict(list)
        for row in LOG:
            if row.execution and row.trade_price is not None:
                legs[row.execution].append(row)
        assert len(legs) == len(fills) > 50
        for rows in legs.values():
            position, cash = rows
            assert position.asset == position.contract == cash.contract != cash.asset
            assert position.time == cash.time
            assert position.pnl is position.fee is None
        converted = [b - a for a, b in (tuple(r.seq for r in rows) for rows in legs.values())]
        assert set(converted) == {1, 3}  # two rows of a conversion between them

    def test_ids_rise_by_one_or_have_gaps(self) -> None:
        assert [row.seq for row in LOG] == list(range(1, len(LOG) + 1))
        gapped = KrakenAccount(
            KrakenHistory(NOW_MS - 900 * DAY_MS, NOW_MS, rows=600, log_gaps=True)
        )
        ids = [row.seq for row in gapped.rows("log")]
        assert ids == sorted(ids)
        assert ids[-1] > len(ids)

    def test_infos_of_the_facts_are_there(self) -> None:
        assert {row.info for row in LOG} >= {
            "futures trade", "futures liquidation", "funding rate change", "conversion",
            "interest payment", "transfer", "cross-exchange transfer", "kfee applied",
            "subaccount transfer", "settlement", "admin transfer",
        }  # fmt: skip


class TestTruth:
    def test_events_add_up_to_what_is_held(self) -> None:
        total: Counter[tuple[str, str]] = Counter()
        for event in ACCOUNT.events():
            for wallet, asset, change in event.changes:
                total[wallet, asset] += change
        assert total == Counter(ACCOUNT.balances())

    def test_each_row_is_of_one_event(self) -> None:
        events = list(ACCOUNT.events())
        ledger = Counter(name for event in events for name in event.ledger)
        assert ledger == Counter(id_of("L", row.seq) for row in LEDGER)
        assert Counter(n for event in events for n in event.log) == Counter(r.seq for r in LOG)

    def test_balances_at_a_time_are_those_of_the_rows_before_it(self) -> None:
        random = Random(5)
        times = [random.randrange(HISTORY.from_ms, HISTORY.to_ms) for _ in range(40)]
        times += [HISTORY.from_ms, HISTORY.to_ms, LEDGER[777].time // MS_TICKS]
        for at_ms in times:
            held: dict[tuple[str, str], int] = {}
            for row in LEDGER:
                if row.time // MS_TICKS <= at_ms:
                    held[SPOT, row.asset] = row.balance
            for row in LOG:
                if row.time // MS_TICKS <= at_ms and row.asset != row.contract:
                    held[row.account, row.asset] = row.new
            found = ACCOUNT.balances(at_ms)
            assert {k: n for k, n in found.items() if n} == {k: n for k, n in held.items() if n}

    def test_what_is_planned_is_known(self) -> None:
        kinds = {each.kind for each in PLAN}
        assert kinds > FUTURES_KINDS
        assert not ONCE.keys() & kinds
        without = KrakenAccount(KrakenHistory(NOW_MS - 900 * DAY_MS, NOW_MS, futures=False))
        assert list(without.rows("log")) == []


class TestBlocks:
    def test_the_same_history_makes_the_same_account(self) -> None:
        again = KrakenAccount(HISTORY)
        assert list(again.ledger()) == LEDGER
        assert list(again.ledger()) == LEDGER  # generated a second time
        other = KrakenAccount(KrakenHistory(HISTORY.from_ms, HISTORY.to_ms, rows=2_400, seed=2))
        assert list(other.ledger())[:50] != LEDGER[:50]

    @pytest.mark.parametrize("rows", [30, 400, 9_000])
    def test_its_size_is_about_as_asked(self, rows: int) -> None:
        account = KrakenAccount(KrakenHistory(NOW_MS - 1_800 * DAY_MS, NOW_MS, rows=rows))
        found = account.select("ledger", limit=0).total
        assert 0.85 * rows < found < 1.2 * rows + 500  # of each rare kind there is one at least
        assert found == sum(1 for _ in account.ledger())

    def test_rows_of_a_few_blocks_are_in_memory(self) -> None:
        def alive() -> int:
            return sum(type(each) is BookedRow for each in gc.get_objects())

        before = alive()
        account = KrakenAccount(KrakenHistory(NOW_MS - 1_800 * DAY_MS, NOW_MS, rows=30_000))
        assert alive() - before < 5_000
        rows = account.ledger()
        assert sum(1 for _ in islice(rows, 25_000)) == 25_000
        assert 1_000 < alive() - before < 20_000

    def test_pages_are_the_slices_of_the_whole_table(self) -> None:
        account = KrakenAccount(KrakenHistory(NOW_MS - 1_000 * DAY_MS, NOW_MS, rows=7_000))
        rows, random = list(account.ledger()), Random(3)
        kinds = [None, lambda label: label[1] == "XXBT", lambda label: label[0] == "deposit"]
        for _ in range(120):
            wanted, oldest_first = random.choice(kinds), random.random() < 0.3
            low, high = sorted(random.sample(range(len(rows)), 2))
            after = FIRST if random.random() < 0.3 else (rows[low].time, rows[low].seq)
            until = LAST if random.random() < 0.3 else (rows[high].time, rows[high].seq)
            expected = [
                row for row in rows
                if after < (row.time, row.seq) <= until
                and (wanted is None or wanted((row.type, row.asset)))
            ]  # fmt: skip
            if not oldest_first:
                expected.reverse()
            skip, limit = random.randrange(0, 900), random.choice((1, 50, 700))
            found = account.select(
                "ledger", after=after, until=until, wanted=wanted, skip=skip, limit=limit,
                oldest_first=oldest_first,
            )  # fmt: skip
            assert found.rows == expected[skip : skip + limit]
            assert found.total == len(expected)
            quick = account.select(
                "ledger", after=after, until=until, wanted=wanted, skip=skip, limit=limit,
                oldest_first=oldest_first, counted=False,
            )  # fmt: skip
            assert quick.rows == found.rows

    def test_rows_are_found_by_their_ids(self) -> None:
        for row in (LEDGER[0], LEDGER[1_000], LEDGER[-1]):
            name = id_of("L", row.seq)
            assert number_of("L", name) == row.seq
            assert ACCOUNT.numbered("ledger", row.seq) == row
        assert number_of("L", "L4UESK-KG3EQ-UFO4T5") not in range(10**9)
        assert number_of("L", "nonsense") is None
        assert ACCOUNT.numbered("ledger", 10**9) is None
        trade = next(iter(TRADES.values()))
        assert isinstance(trade, SpotTrade)
        assert ACCOUNT.numbered("trades", trade.seq) == trade


class TestLive:
    def test_what_happens_now_is_the_newest_row(self) -> None:
        account = KrakenAccount(KrakenHistory(NOW_MS - 400 * DAY_MS, NOW_MS, rows=400))
        before = account.balances()
        rows = account.select("ledger", limit=0).total
        events = [
            event
            for second in range(1, 60)
            for event in account.happen("order", NOW_MS + second * 1_000)
        ]
        assert any(event.kind == "trade" for event in events)
        newest = account.select("ledger", limit=5)
        assert newest.total == rows + sum(len(event.ledger) for event in events)
        assert {id_of("L", row.seq) for row in newest.rows} & set(events[-1].ledger)
        after = Counter(before)
        for event in events:
            for wallet, asset, change in event.changes:
                after[wallet, asset] += change
        assert after == Counter(account.balances())
        assert account.balances(NOW_MS) == before  # the past stays what it was
        assert account.balances(NOW_MS + 61_000) == account.balances()

    def test_what_was_due_happens_before_it(self) -> None:
        account = KrakenAccount(KrakenHistory(NOW_MS - 400 * DAY_MS, NOW_MS, rows=400))
        account.happen("coin deposit", NOW_MS + 1_000)
        events = account.happen("", NOW_MS + DAY_MS)
        assert any(event.kind == "deposit" for event in events)

    def test_pairs_are_known(self) -> None:
        assert {pair.base for pair in PAIRS.values()} | {
            pair.quote for pair in PAIRS.values()
        } <= ASSETS.keys()
