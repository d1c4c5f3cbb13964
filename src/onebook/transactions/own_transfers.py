"""Finds withdrawals from one account that are deposits at another account of the same owner; pure.

Nothing is guessed: a withdrawal and a deposit are one transfer if the exchanges' data prove it
(`TransferEvidence`) and no other record could take the place of either. Pairs that only look alike
remain two events and are listed.

Records arrive newest first. A record is decided once all records within `HELD_MS` of it have been
read, so memory depends on the deposits and withdrawals of a week, not on the length of the history.
Undecided records are carried from page to page in the cursor, so that the pairs of all pages are
those of one answer, whatever the size of the pages.
"""

import hashlib
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Any, Final

from msgspec import Struct

from onebook.model import DAY_MS, MINUTE_MS
from onebook.transactions.adapter import Unproven
from onebook.transactions.record import Direction, Record, RecordView, Status

ARRIVES_MS: Final = DAY_MS  # after its withdrawal, for a deposit identified by its address
EARLY_MS: Final = 5 * MINUTE_MS  # by which the deposit's clock may be behind
HELD_MS: Final = 7 * DAY_MS  # after the withdrawal, for a deposit identified by its transaction
PAIRS_MAX: Final = 10_000  # listed; the rest is counted
UNCLEAR_MAX: Final = 100
CARRIED_MAX: Final = 150  # undecided records in a cursor, of about 170 characters each
MARK_BYTES: Final = 9

Key = tuple[str | bytes, ...]


class TransferEvidence(StrEnum):
    """The evidence that a withdrawal and a deposit are one transfer."""

    TRANSACTION = "transaction"  # the same transaction on a chain, the same amount
    EXCHANGE = "exchange"  # the exchange's own id of the transfer, in two accounts of it
    ADDRESS = "address"  # address, amount and time, if one exchange does not state the transaction


class TransferPair(Struct, frozen=True):
    """A transfer between two accounts of one owner, by the ids of its two records."""

    withdrawal: str
    deposit: str
    from_account: str
    to_account: str
    asset: str
    amount: str
    evidence: TransferEvidence


class TransferSide(Struct, eq=False, array_like=True):
    """One side of a possible transfer.

    Transactions, addresses, tags and ids are only compared, so their digests stand for them (see
    `_mark`).

    Args:
        what: Environment, coin and amount, which are the same on both sides.
        ids: Ids by which an exchange can name the transfer in both accounts.
        done: Whether it is paired, or listed as unclear.
    """

    record_id: str
    account: str
    exchange: str
    at_ms: int
    outgoing: bool
    what: tuple[str, str, str]
    tx_hash: bytes
    address: bytes
    tag: bytes
    ids: tuple[bytes, ...]
    within: bool  # a transfer within an exchange, which is on no chain
    done: bool = False

    def places(self) -> Iterator[Key]:
        """The keys for finding the other side, best evidence first."""
        if self.tx_hash:
            yield (TransferEvidence.TRANSACTION, *self.what, self.tx_hash)
        for each in self.ids:
            yield (TransferEvidence.EXCHANGE, *self.what, self.exchange, each)
        if self.address:
            yield (TransferEvidence.ADDRESS, *self.what, self.address)
        if not self.within:
            yield ("amount", *self.what)
            if self.tx_hash:
                yield ("hash", *self.what[:2], self.tx_hash)


class OwnTransfers:
    """Matches the deposits and withdrawals of several accounts.

    Args:
        carried: The undecided records of the previous page.
    """

    def __init__(self, carried: Iterable[TransferSide] = ()) -> None:
        self.count = 0
        self.pairs: list[TransferPair] = []
        self.unclear: list[Unproven] = []
        self._sides: dict[Key, list[TransferSide]] = defaultdict(list)
        self._open: deque[TransferSide] = deque()  # newest first
        self._given_up: list[str] = []
        for side in carried:
            self._add(side)

    @property
    def held(self) -> int:
        """Number of undecided records."""
        return len(self._open)

    def add(self, record: Record) -> None:
        """Add a record; ignored if it moves nothing into or out of an account."""
        while self._open and record.timestamp < self._open[0].at_ms - HELD_MS - EARLY_MS:
            self._close_oldest()
        side = side_of(record)
        if side is not None:
            self._add(side)

    def _add(self, side: TransferSide) -> None:
        self._open.append(side)
        for key in side.places():
            self._sides[key].append(side)

    def finish(self, *, last: bool = True) -> dict[str, Any]:
        """End a page; returns the field `own_transfers` of its answer.

        Args:
            last: Whether no page follows, so that all remaining sides are decided. Otherwise
                `carried` belongs to the next page; of more than it can hold, the newest are decided
                without the next page, and listed if nothing matches.
        """
        while last and self._open:
            self._close_oldest()
        while (excess := len(self.carried) - CARRIED_MAX) > 0:
            closed = [self._close_oldest() for _ in range(excess)]
            self._given_up += [side.record_id for side in closed if not side.done]
        return {
            "count": self.count,
            "pairs": self.pairs,
            "open": len(self.carried),
            "unmatched": self._given_up,
        }

    @property
    def carried(self) -> list[TransferSide]:
        """The undecided sides, newest first."""
        return [side for side in self._open if not side.done]

    def _close_oldest(self) -> TransferSide:
        """Decide, remove and return the side that was read first."""
        side = self._open.popleft()
        if not side.done:
            self._decide(side)
        for key in side.places():
            found = self._sides[key]
            found.remove(side)
            if not found:
                del self._sides[key]
        return side

    def _decide(self, side: TransferSide) -> None:
        for key in side.places():
            if key[0] in (TransferEvidence.TRANSACTION, TransferEvidence.EXCHANGE):
                decided = self._by_id(side, key)
            elif key[0] == TransferEvidence.ADDRESS:
                decided = self._by_address(side, key)
            else:
                decided = self._look_alike(side, key)
            if decided:
                return

    def _by_id(self, side: TransferSide, key: Key) -> bool:
        """Pair the sides that name the same transaction; equal sides of one account are
        interchangeable."""
        found = [each for each in self._sides[key] if not each.done]
        out = [each for each in found if each.outgoing]
        into = [each for each in found if not each.outgoing]
        ways = {each.account for each in out}, {each.account for each in into}
        if not out or not into or ways[0] == ways[1]:
            return False
        if len(out) != len(into) or len(ways[0]) > 1 or len(ways[1]) > 1:
            self._name(side, (into if side.outgoing else out)[0], "several records have its id")
            return True
        for sent, received in zip(out, into, strict=True):
            self._pair(sent, received, TransferEvidence(str(key[0])))
        return True

    def _by_address(self, side: TransferSide, key: Key) -> bool:
        """Pair two sides with the same address, if neither matches any other side."""
        others = self._fitting(side, key)
        if not others:
            return False
        if len(others) > 1 or len(self._fitting(others[0], key)) > 1:
            self._name(side, others[0], "several records have its address, amount and time")
            return True
        sent, received = (side, others[0]) if side.outgoing else (others[0], side)
        self._pair(sent, received, TransferEvidence.ADDRESS)
        return True

    def _look_alike(self, side: TransferSide, key: Key) -> bool:
        """List two sides that could be a transfer according to their exchanges."""
        if key[0] == "hash":
            others = [o for o in self._sides[key] if _may_be_other(side, o)]
            why = "they name one transaction, but their amounts differ"
        else:
            others = self._fitting(side, key)
            why = "coin, amount and time agree, but no common transaction or address is stated"
        if not others:
            return False
        self._name(side, others[0], why)
        return True

    def _fitting(self, side: TransferSide, key: Key) -> list[TransferSide]:
        """The possible other sides of a transfer: near in time, and without contradiction."""
        return [o for o in self._sides[key] if _may_be_other(side, o) and _agree(side, o)]

    def _pair(self, sent: TransferSide, received: TransferSide, evidence: TransferEvidence) -> None:
        sent.done = received.done = True
        self.count += 1
        if len(self.pairs) < PAIRS_MAX:
            _, asset, amount = sent.what
            self.pairs.append(
                TransferPair(
                    sent.record_id,
                    received.record_id,
                    sent.account,
                    received.account,
                    asset,
                    amount,
                    evidence,
                )
            )

    def _name(self, side: TransferSide, other: TransferSide, why: str) -> None:
        side.done = other.done = True
        if len(self.unclear) >= UNCLEAR_MAX:
            return
        sent, received = (side, other) if side.outgoing else (other, side)
        _, asset, amount = sent.what
        self.unclear.append(
            Unproven(
                f"whether {sent.record_id} ({sent.account}) and {received.record_id} "
                f"({received.account}) are one transfer of {amount} {asset}",
                f"They are counted as two events: {why}.",
            )
        )


def side_of(record: Record) -> TransferSide | None:
    """The side of a transfer that a record can be; None if it cannot be one."""
    outgoing = record.direction is Direction.OUT
    if record.view is not RecordView.PRIMARY or record.status is not Status.COMPLETED:
        return None
    if not outgoing and record.direction is not Direction.IN:
        return None
    if record.kind not in ("transfer", "withdrawal" if outgoing else "deposit"):
        return None
    if record.account is None or not isinstance(record.account.name, str):
        return None
    chain, ids = record.chain, record.ids
    named = (ids.transfer_id, ids.native if outgoing or record.kind == "transfer" else None)
    return TransferSide(
        record_id=record.transactionId,
        account=record.account.name,
        exchange=record.exchange,
        at_ms=record.timestamp,
        outgoing=outgoing,
        what=(record.environment, record.asset or "", record.amount or "0"),
        tx_hash=_mark(_plain((chain and chain.tx_hash) or ids.tx_hash)),
        address=_mark(_plain(chain.to_address if chain else None)),
        tag=_mark((chain.tag if chain else None) or ""),
        ids=tuple(dict.fromkeys(_mark(each) for each in named if each)),
        within=record.kind == "transfer",
    )


def _mark(text: str) -> bytes:
    """A short digest of a text for comparison; b"" for no text."""
    return hashlib.blake2b(text.encode(), digest_size=MARK_BYTES).digest() if text else b""


def _plain(text: str | None) -> str:
    """Normalise a hash or address for comparison: the case of hexadecimal text is ignored."""
    found = (text or "").strip()
    digits = found[2:] if found[:2].lower() == "0x" else found
    if digits and all(char in "0123456789abcdefABCDEF" for char in digits):
        return digits.lower()
    return found


def _may_be_other(side: TransferSide, other: TransferSide) -> bool:
    """Whether a record belongs to another account and has the opposite direction."""
    return not other.done and other.outgoing != side.outgoing and other.account != side.account


def _agree(side: TransferSide, other: TransferSide) -> bool:
    """Whether time, transaction, address and tag do not contradict each other."""
    sent, received = (side, other) if side.outgoing else (other, side)
    return (
        -EARLY_MS <= received.at_ms - sent.at_ms <= ARRIVES_MS
        and not (sent.tx_hash and received.tx_hash and sent.tx_hash != received.tx_hash)
        and not (sent.address and received.address and sent.address != received.address)
        and not (sent.tag and received.tag and sent.tag != received.tag)
    )
