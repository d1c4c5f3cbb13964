"""Reads the instrument lists of feeds nodes for a gateway, page by page.

One page at a time from each node, and what came is kept when an answer is late: a gateway that is
slow, or whose link is, makes progress with every answer.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from onebook.nodes import lists
from onebook.nodes.background import BackgroundTasks
from onebook.nodes.membership import NodeHeartbeat
from onebook.nodes.nats import NatsBus
from onebook.nodes.payloads import WireError
from onebook.nodes.refusals import Refusals


class ListReceiver(Protocol):
    """Takes whole lists."""

    def received(self, exchange: str, page: lists.ListPage, rows: Sequence[lists.Row]) -> None:
        """Take a list: its rows, and the last page for what else it says."""


@dataclass
class PartialList:
    """The pages of one list that came so far; all are of one node and one digest."""

    node: int
    digest: str = ""
    number: int = 0
    pages: int = 1
    rows: list[lists.Row] = field(default_factory=list)


class RemoteListReader:
    """Reads each list anew when its digest changes.

    Args:
        receiver: Gets each list.
        lister: The node whose list of an exchange counts.
        subject: Where a node answers requests for lists.
        timeout_s: How long a page may take; the next heartbeat asks for it again.
        refusals: Counts pages that are refused.
    """

    def __init__(
        self,
        receiver: ListReceiver,
        *,
        bus: NatsBus,
        tasks: BackgroundTasks,
        lister: Callable[[str], int | None],
        subject: Callable[[int], str],
        timeout_s: float,
        refusals: Refusals,
    ) -> None:
        self._receiver = receiver
        self._bus = bus
        self._tasks = tasks
        self._lister = lister
        self._subject = subject
        self._timeout_s = timeout_s
        self._refusals = refusals
        self._digests: dict[str, str] = {}  # of the lists that came, by exchange
        self._partial: dict[str, PartialList] = {}
        self._reading: set[int] = set()  # nodes that are asked for pages

    def update(self, heartbeat: NodeHeartbeat) -> None:
        """Read the lists of a feeds node that are new here."""
        node = heartbeat.node
        if node in self._reading:
            return
        changed = [
            exchange
            for exchange, digest in heartbeat.lists.items()
            if self._digests.get(exchange) != digest and self._lister(exchange) == node
        ]
        if changed:
            self._reading.add(node)
            self._tasks.begin(self._read(node, changed), f"lists of {heartbeat.name}")

    async def _read(self, node: int, exchanges: Sequence[str]) -> None:
        try:
            for exchange in exchanges:
                if not await self._read_list(node, exchange):
                    return  # the next heartbeat leads here again
        finally:
            self._reading.discard(node)

    async def _read_list(self, node: int, exchange: str) -> bool:
        """Read the pages of a list that did not come yet; whether the node answered."""
        part = self._partial.pop(exchange, None)
        if part is None or part.node != node:
            part = PartialList(node)
        while part.number < part.pages:
            payload = await self._bus.request(
                self._subject(node), lists.encode_request(exchange, part.number), self._timeout_s
            )
            if payload is None:
                self._partial[exchange] = part
                return False
            if not payload:
                return True  # the node has no such list any more
            try:
                page = lists.page_of(payload)
            except WireError as error:
                self._refusals.refused("list", error, node)
                return True
            if part.number and page.digest != part.digest:
                return True  # the list changed meanwhile: its digest brings it here again
            part.rows += page.rows
            part.number, part.pages, part.digest = part.number + 1, page.pages, page.digest
        self._digests[exchange] = part.digest
        self._receiver.received(exchange, page, part.rows)
        return True
