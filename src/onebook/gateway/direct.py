"""Writes to client sockets: queue a frame for each client, one send per client and tick.

A transport's write costs about as much as the system call below it, and an attribute of a Python
object a tenth of that. So in the compiled version the fields in use are in one struct, `Peer`, and
`write_each` calls send(2) itself. Only what the socket did not accept goes to the transport, which
buffers it, reports a slow client by its flow control, and reports a broken socket. Without the
compiled version, `Pure...` and `..._by_transport` do the same.

Bytes stay in order: uvloop holds what it is given until the end of the loop's iteration, so a send
is legal only while the transport holds nothing: any code that writes to the transport sets
`buffered`, which is cleared when `get_write_buffer_size()` is 0. Only plain sockets have a
`direct_fd`; it stays valid until `connection_lost`, which sets `ended`.
"""

import asyncio
from typing import TYPE_CHECKING, TypeVar


class PurePeer:
    """The fields of a client that a broadcast uses.

    `out` is the frames that it gets at the end of this tick, `sent` the payload bytes since they
    were last settled, `behind` says that it reads slower than we write, `ended` that a close frame
    was sent or the socket is closed, `buffered` that the transport may hold bytes.
    """

    __slots__ = ("behind", "buffered", "direct_fd", "ended", "out", "sent", "transport")

    def __init__(self) -> None:
        self.transport: asyncio.Transport
        self.out: tuple[bytes, ...] | None = None
        self.sent = 0
        self.direct_fd = -1
        self.behind = False
        self.ended = False
        self.buffered = False


P = TypeVar("P", bound=PurePeer)


def spread_purely(
    listeners: dict[P, None], frame: bytes, size: int, touched: list[P], join_bytes_max: int
) -> list[P]:
    """Send a frame to each peer; return the slow ones that were skipped."""
    behind, full = [], []
    # Pending frames of a client: the same with this frame, and whether they reach the limit.
    longer: dict[tuple[bytes, ...], tuple[tuple[bytes, ...], bool]] = {}
    for peer in listeners:
        if peer.behind:
            behind.append(peer)
            continue
        peer.sent += size
        out = peer.out
        if out is None:
            peer.out = (frame,)
            touched.append(peer)
            continue
        joined = longer.get(out)
        if joined is None:
            frames = (*out, frame)
            joined = longer[out] = frames, sum(map(len, frames)) > join_bytes_max
        peer.out, is_full = joined
        if is_full:
            full.append(peer)
    write_each_by_transport(full)
    return behind


def write_each_by_transport(peers: list[P]) -> None:
    """Write the pending frames (`out`) of each peer."""
    for peer in peers:
        frames, peer.out = peer.out, None
        if frames is not None and not peer.ended:
            peer.buffered = True
            peer.transport.write(b"".join(frames))


COMPILED: bool
if TYPE_CHECKING:
    Peer = PurePeer
    spread, write_each = spread_purely, write_each_by_transport
else:
    try:
        from onebook.gateway._direct import Peer, spread, write_each
    except ModuleNotFoundError as error:
        if error.name != "onebook.gateway._direct":
            raise
        Peer = PurePeer
        spread, write_each = spread_purely, write_each_by_transport
        COMPILED = False
    else:
        COMPILED = True

__all__ = [
    "COMPILED",
    "Peer",
    "PurePeer",
    "spread",
    "spread_purely",
    "write_each",
    "write_each_by_transport",
]
