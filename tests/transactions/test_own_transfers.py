"""Transfers between the accounts of one owner: found, never guessed, and right in every tax file.

Three random accounts, of Bybit, Kraken and OKX, send each other coins; their oracles know what each
gained. `ONEBOOK_ACCOUNTS=100` reads more of them than the suite does, `ONEBOOK_ACCOUNTS_FROM=7`
begins at another seed.
"""

import os
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest
from msgspec import json
from msgspec.structs import replace

from onebook.config import AccountUrls, TransactionSettings
from onebook.transactions.bybit import BYBIT
from onebook.transactions.credentials import Credentials, MasterKeys, Vault
from onebook.transactions.cursor import CHARS_MAX, Cursors
from onebook.transactions.exchange import ExchangeAdapter
from onebook.transactions.export import writer
from onebook.transactions.joint import JointRun
from onebook.transactions.kraken import KRAKEN
from onebook.transactions.okx import OKX
from onebook.transactions.own_transfers import CARRIED_MAX, HELD_MS, UNCLEAR_MAX, OwnTransfers
from onebook.transactions.reconciliation import Verification
from onebook.transactions.record import (
    Direction,
    Holder,
    Ids,
    OnChain,
    Record,
    Status,
)
from onebook.transactions.request import TransactionsRequest
from onebook.transactions.service import Transactions
from transactions.bybit_support import CALLER, KEY, MASTER_KEY, NOW_MS, MemoryStore
from transactions.exporting import DEPOSIT, WITHDRAWAL
from transactions.okx_support import KEY as OKX_KEY
from transactions.oracle.account import RandomAccount
from transactions.oracle.exchange import RandomExchange, listening
from transactions.oracle.kraken.account import RandomKraken
from transactions.oracle.kraken.exchange import RandomKrakenExchange
from transactions.oracle.kraken.exchange import listening as kraken_listening
from transactions.oracle.okx.account import RandomOkx
from transactions.oracle.okx.exchange import RandomOkxExchange
from transactions.oracle.rows import DAY_MS
from transactions.test_export_year import FORMS, summed
from transactions.test_random_accounts import TOKENS_TO_MS, passing

FROM_MS = NOW_MS - 120 * DAY_MS
BYBIT_FROM_MS = NOW_MS - 75 * DAY_MS  # as long as it has listed its leverage tokens
FAULTLESS = 0  # an exchange of this seed fails nowhere, and books nothing while it is read
FROM = 2 * int(os.environ.get("ONEBOOK_ACCOUNTS_FROM", "0"))
# Odd ones have damaged rows.
SEEDS = range(FROM, FROM + 2 * int(os.environ.get("ONEBOOK_ACCOUNTS", "2")), 2)
HOUR_MS = 3_600_000
SECRET = "c2VjcmV0"


class Owner:
    """Three accounts, and the transfers between them.

    Args:
        from_ms: Their oldest time; Bybit's is as old as its lists of leverage tokens by default.
    """

    def __init__(
        self, seed: int, *, from_ms: int = FROM_MS, bybit_ms: int = BYBIT_FROM_MS,
        to_ms: int = NOW_MS - 1, tokens_to_ms: int = TOKENS_TO_MS,
    ) -> None:  # fmt: skip
        self.kraken = RandomKraken(seed, from_ms=from_ms, to_ms=to_ms)
        self.okx = RandomOkx(seed, from_ms=from_ms, to_ms=to_ms)
        self.bybit = RandomAccount(seed, from_ms=bybit_ms, to_ms=to_ms, tokens_to_ms=tokens_to_ms)
        for account, events in ((self.kraken, 60), (self.okx, 60), (self.bybit, 40)):
            account.fill(events)
        self.known: Counter[tuple[str, str, str, str]] = Counter()  # what is a transfer for sure
        for asset in ("XXBT", "XETH", "SOL"):
            sent = self.kraken.send(asset)
            self.okx.receive(sent)
            self.known["kraken", "okx", sent.coin, "transaction"] += 1
        for stated in (True, False):
            sent = self.okx.send(stated=stated)
            self.bybit.receive(sent)
            evidence = "transaction" if stated else "address"
            self.known["okx", "bybit", sent.coin, evidence] += 1
        self.bybit.receive(self.okx.send(stated=False), stated=False)  # nothing proves this one

    @property
    def gained(self) -> dict[str, Decimal]:
        """What all accounts gained."""
        total: defaultdict[str, Decimal] = defaultdict(Decimal)
        for account in (self.kraken, self.okx, self.bybit):
            for coin, amount in account.gained.items():
                total[coin] += amount
        return {coin: amount for coin, amount in total.items() if amount}


class Read(NamedTuple):
    """What the service says of an owner's accounts."""

    records: list[Record]
    own: dict[str, Any]
    verification: Verification


@asynccontextmanager
async def serving(owner: Owner) -> AsyncIterator[Transactions]:
    """The service of an owner's accounts at three exchanges."""
    clock = passing()
    async with AsyncExitStack() as stack:
        spot = await stack.enter_async_context(
            kraken_listening(RandomKrakenExchange(owner.kraken, FAULTLESS, now_ms=lambda: NOW_MS))
        )
        url = await stack.enter_async_context(
            listening(RandomExchange(owner.bybit, FAULTLESS, now_ms=lambda: NOW_MS))
        )
        settings = TransactionSettings(
            overrides={
                "kraken": AccountUrls(hosts={"spot": spot, "futures": spot}),
                "bybit": AccountUrls(mainnet_url=url),
            },
            deadline_s=3_600.0,
            stream_deadline_s=36_000.0,
        )
        vault = Vault(MemoryStore(), MasterKeys(None, value=MASTER_KEY))
        for name, credentials in (
            (
                "kraken",
                Credentials("key", "c2VjcmV0", futures_key="key", futures_secret="c2VjcmV0"),
            ),
            ("bybit", Credentials(KEY.api_key, KEY.secret)),
            ("okx", Credentials(OKX_KEY.api_key, OKX_KEY.secret, passphrase=OKX_KEY.passphrase)),
        ):
            await vault.put(name, "mainnet", credentials, now_ms=NOW_MS)
        okx = RandomOkxExchange(owner.okx, FAULTLESS, now_ms=lambda: NOW_MS)
        adapters = [
            ExchangeAdapter(KRAKEN, settings, clock=clock, random=Random(7)),
            ExchangeAdapter(BYBIT, settings, clock=clock, random=Random(7)),
            ExchangeAdapter(OKX, settings, clock=clock, transport=okx, random=Random(7)),
        ]
        service = Transactions(
            adapters, vault, cursor_secret=b"a secret", clock=clock, settings=settings
        )
        stack.push_async_callback(service.close)
        yield service


def asked(**fields: Any) -> TransactionsRequest:
    """A request for all accounts."""
    return TransactionsRequest(exchange="all", start_time=FROM_MS, end_time=NOW_MS - 1, **fields)


async def read(owner: Owner) -> Read:
    """All accounts in one answer, with the types of a tax file, as the command line asks."""
    async with serving(owner) as service:
        query = await service.prepare(
            asked(verify=True), key_id=CALLER, streamed=True, summing=True
        )
        async with service.run(query, key_id=CALLER) as run:
            assert isinstance(run, JointRun)
            records = [record async for batch in run.records(36_000.0) for record in batch]
            assert run.errors() == []
            proof = run.verification()
            assert proof is not None
            return Read(records, run.own_transfers(), proof)


@pytest.mark.parametrize("seed", SEEDS)
async def test_three_exchanges_add_up_and_their_transfers_are_found(
    seed: int, tmp_path: Path
) -> None:
    owner = Owner(seed)
    found = await read(owner)
    for form in FORMS:
        if form in ("xlsx", "parquet"):  # numbers of 15 digits; a package that may be absent
            continue
        path = tmp_path / form
        file = writer(form, path, exchange="")
        file.write(found.records)
        file.close()
        assert summed(form, path, {}) == owner.gained, (seed, form)
    records = {record.transactionId: record for record in found.records}
    pairs = found.own["pairs"]
    assert found.own["count"] == len(pairs)
    ways = Counter((p.from_account, p.to_account, p.asset, p.evidence.value) for p in pairs)
    assert ways == owner.known, seed
    for pair in pairs:
        sent, received = records[pair.withdrawal], records[pair.deposit]
        assert (sent.kind, received.kind) == ("withdrawal", "deposit")
        assert sent.amount == received.amount == pair.amount
    (unclear,) = found.verification.unproven
    assert "(okx)" in unclear.what
    assert "(bybit)" in unclear.what


@pytest.mark.parametrize("limit", [5, 1_000])
async def test_pages_of_a_service_have_the_transfers_of_one_answer(limit: int) -> None:
    owner, types = Owner(0), ["deposits", "withdrawals", "trades"]
    pairs: list[dict[str, Any]] = []
    pages, cursor = 0, ""
    async with serving(owner) as service:
        while cursor is not None:
            ask = asked(transaction_types=types, limit=limit, cursor=cursor)
            query = await service.prepare(ask, key_id=CALLER)
            answer = json.decode(await service.fetch(query, key_id=CALLER))
            own, cursor = answer["own_transfers"], answer["next_cursor"]
            assert not answer["errors"]
            assert own["unmatched"] == []
            assert bool(own["open"]) <= (cursor is not None)
            pairs += own["pairs"]
            pages += 1
    assert pages > (10 if limit == 5 else 0)
    ways = Counter((p["from_account"], p["to_account"], p["asset"], p["evidence"]) for p in pairs)
    assert ways == owner.known


# One pair at a time ----------------------------------------------------------------------------

OUT = replace(
    WITHDRAWAL,
    transactionId="out",
    timestamp=NOW_MS,
    account=Holder("SPOT", None, "kraken"),
    amount="1",
    chain=OnChain(tx_hash="0xABC", to_address="bc1-own"),
    ids=Ids(native="w1", tx_hash="0xABC"),
)
INTO = replace(
    DEPOSIT,
    transactionId="in",
    timestamp=NOW_MS + HOUR_MS,
    account=Holder("FUND", None, "okx"),
    amount="1",
    chain=OnChain(tx_hash="0xabc", to_address="bc1-own"),
    ids=Ids(native="d1", tx_hash="0xabc"),
)
UNSTATED = OnChain(to_address="bc1-own")


def matched(*records: Record) -> tuple[list[tuple[str, str, str]], int]:
    """The pairs, and the number of those that only look like one; newest first, as in an answer."""
    transfers = OwnTransfers()
    for record in sorted(records, key=lambda each: -each.timestamp):
        transfers.add(record)
    pairs = transfers.finish()["pairs"]
    return [(p.withdrawal, p.deposit, p.evidence) for p in pairs], len(transfers.unclear)


def named(record: Record, record_id: str, account: str = "") -> Record:
    """The same event under another id, perhaps of another account."""
    assert record.account is not None
    holder = replace(record.account, name=account or record.account.name)
    return replace(record, transactionId=record_id, account=holder)


class TestPairs:
    """What is a transfer, and what is not."""

    def test_one_transaction_is_one_whatever_the_case_of_its_hash(self) -> None:
        assert matched(OUT, INTO) == ([("out", "in", "transaction")], 0)

    def test_a_transaction_may_take_days(self) -> None:
        assert matched(OUT, replace(INTO, timestamp=NOW_MS + 6 * DAY_MS))[0]
        assert matched(OUT, replace(INTO, timestamp=NOW_MS + HELD_MS + HOUR_MS)) == ([], 0)

    @pytest.mark.parametrize(
        "other",
        [
            replace(INTO, amount="2"),
            replace(INTO, asset="ETH"),
            replace(INTO, environment="testnet"),
            replace(INTO, status=Status.PENDING),
            replace(INTO, status=Status.REVERSED),
            replace(INTO, account=Holder("FUND", None, "kraken")),
            replace(INTO, account=Holder("FUND", None)),
            replace(INTO, direction=Direction.OUT, kind="withdrawal"),
            replace(INTO, chain=OnChain(tx_hash="0xdef"), ids=Ids(tx_hash="0xdef")),
        ],
    )
    def test_what_differs_is_none(self, other: Record) -> None:
        assert matched(OUT, other)[0] == []

    def test_one_address_is_one_if_a_transaction_is_not_stated(self) -> None:
        sent = replace(OUT, chain=UNSTATED, ids=Ids(native="w1"))
        assert matched(sent, INTO) == ([("out", "in", "address")], 0)
        late = replace(INTO, timestamp=NOW_MS + 25 * HOUR_MS)
        assert matched(sent, late) == ([], 0)
        tagged = replace(INTO, chain=OnChain(to_address="bc1-own", tag="7"), ids=Ids())
        other = replace(OUT, chain=OnChain(to_address="bc1-own", tag="8"), ids=Ids())
        assert matched(other, tagged) == ([], 0)

    def test_of_two_that_fit_none_is_chosen(self) -> None:
        sent = replace(OUT, chain=UNSTATED, ids=Ids(native="w1"))
        assert matched(sent, INTO, named(INTO, "in2")) == ([], 1)
        again = replace(named(sent, "out2"), timestamp=NOW_MS + HOUR_MS // 2)
        assert matched(sent, again, replace(INTO, timestamp=NOW_MS + 3 * HOUR_MS)) == ([], 1)
        assert matched(OUT, INTO, named(INTO, "in2", "bybit")) == ([], 1)

    def test_equal_ones_of_one_transaction_are_as_many_pairs(self) -> None:
        pairs, unclear = matched(OUT, INTO, named(OUT, "out2"), named(INTO, "in2"))
        assert len(pairs) == 2
        assert unclear == 0

    def test_what_only_looks_like_one_is_named(self) -> None:
        sent = replace(OUT, chain=None, ids=Ids())
        received = replace(INTO, chain=None, ids=Ids())
        transfers = OwnTransfers()
        transfers.add(received)
        transfers.add(sent)
        assert transfers.finish() == {"count": 0, "pairs": [], "open": 0, "unmatched": []}
        (one,) = transfers.unclear
        assert "out (kraken) and in (okx) are one transfer of 1 BTC" in one.what
        assert matched(OUT, replace(INTO, amount="0.9")) == ([], 1)

    def test_an_exchange_names_a_transfer_between_two_accounts_of_it(self) -> None:
        transfer = {"exchange": "bybit", "kind": "transfer", "chain": None}
        sent = replace(named(OUT, "out", "bybit"), **transfer, ids=Ids(transfer_id="t1"))
        received = replace(named(INTO, "in", "bybit:two"), **transfer, ids=Ids(transfer_id="t1"))
        assert matched(sent, received) == ([("out", "in", "exchange")], 0)
        assert matched(sent, replace(received, ids=Ids(transfer_id="t2"))) == ([], 0)
        assert matched(sent, replace(received, exchange="okx")) == ([], 0)

    def test_it_holds_a_week_and_no_more(self) -> None:
        transfers = OwnTransfers()
        for number in range(2_000):
            at_ms = NOW_MS - number * HOUR_MS
            chain = OnChain(tx_hash=f"{number:064x}")
            transfers.add(replace(INTO, timestamp=at_ms, chain=chain, ids=Ids()))
            assert transfers.held <= HELD_MS // HOUR_MS + 2

    def test_an_answer_has_them_as_json(self) -> None:
        transfers = OwnTransfers()
        transfers.add(INTO)
        transfers.add(OUT)
        assert json.decode(json.encode(transfers.finish())) == {
            "count": 1,
            "pairs": [{
                "withdrawal": "out", "deposit": "in", "from_account": "kraken",
                "to_account": "okx", "asset": "BTC", "amount": "1", "evidence": "transaction",
            }],
            "open": 0,
            "unmatched": [],
        }  # fmt: skip


# Pages -----------------------------------------------------------------------------------------


def scattered(random: Random, count: int) -> list[Record]:
    """Deposits and withdrawals of four accounts, many of which could be one transfer."""
    found = []
    for number in range(count):
        outgoing = random.random() < 0.5
        tx_hash = random.choice([None, f"{random.randrange(40):064x}"])
        address = random.choice([None, f"bc1-{random.randrange(12)}"])
        tag = random.choice([None, None, "1", "2"])
        found.append(
            replace(
                OUT if outgoing else INTO,
                transactionId=f"0x{number:040x}",
                timestamp=NOW_MS - random.randrange(40 * DAY_MS),
                exchange=random.choice(["kraken", "okx"]),
                kind=random.choice(["withdrawal" if outgoing else "deposit", "transfer"]),
                account=Holder("FUND", None, random.choice(["kraken", "kraken:two", "okx", "b"])),
                amount=str(random.randrange(1, 4)),
                chain=OnChain(tx_hash=tx_hash, to_address=address, tag=tag),
                ids=Ids(native=random.choice([None, str(random.randrange(20))])),
            )
        )
    return sorted(found, key=lambda each: (-each.timestamp, each.transactionId))


class Pages(NamedTuple):
    """What all pages of an answer say."""

    pairs: list[Any]
    unclear: list[Any]
    unmatched: list[str]
    longest: int  # characters of a cursor


def in_pages(records: list[Record], size: int) -> Pages:
    """The same records in pages, whose state passes through cursors."""
    cursors, carried = Cursors(b"a secret"), ()
    found = Pages([], [], [], 0)
    for begin in range(0, len(records), size):
        page = OwnTransfers(carried)
        for record in records[begin : begin + size]:
            page.add(record)
        last = begin + size >= len(records)
        said = page.finish(last=last)
        assert said == page.finish(last=last)
        assert said["open"] == len(page.carried) <= CARRIED_MAX
        assert said["count"] == len(said["pairs"])
        text = cursors.seal_joint({}, page.carried, digest="query", key_id="key")
        carried = cursors.open_joint(text, digest="query", key_id="key").transfers
        assert not (last and carried)
        found = Pages(
            found.pairs + said["pairs"],
            found.unclear + page.unclear,
            found.unmatched + said["unmatched"],
            max(found.longest, len(text)),
        )
    return found


@pytest.mark.parametrize(
    "seed",
    [pytest.param(seed, marks=pytest.mark.soak if seed > 5 else ()) for seed in range(20)],
)
def test_pages_of_any_size_have_the_same_transfers(seed: int) -> None:
    records = scattered(Random(seed), 300)
    whole = in_pages(records, len(records))
    assert len(whole.pairs) > 4, seed
    assert 0 < len(whole.unclear) < UNCLEAR_MAX, seed
    for size in (1, 2, 7, 50, 299):
        paged = in_pages(records, size)
        assert paged[:3] == whole[:3], (seed, size)


def test_what_a_cursor_cannot_carry_is_named() -> None:
    """All within an hour: every record of a page is undecided at its end."""
    sides = [
        replace(
            side,
            transactionId=f"0x{number:03}{side.transactionId.encode().hex():>037}",
            timestamp=NOW_MS - number,
            chain=OnChain(tx_hash=f"{number:064x}", to_address=f"bc1-{number:036}", tag="7"),
            ids=Ids(native=f"{number:032}", transfer_id=f"1{number:032}"),
        )
        for number in range(400)
        for side in (INTO, OUT)
    ]
    assert len(in_pages(sides, 2 * CARRIED_MAX).pairs) == 400  # those together on a page
    deposits, withdrawals = sides[::2], sides[1::2]
    paged = in_pages([*deposits, *withdrawals], 400)
    assert len(paged.pairs) == CARRIED_MAX  # the deposits that the first page carried
    assert paged.unmatched == [each.transactionId for each in deposits[: 400 - CARRIED_MAX]]
    assert paged.longest < CHARS_MAX // 1.2
