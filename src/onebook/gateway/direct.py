"""The last step to the sockets: what a tick brought, one write per client.

A transport costs about as much as the system call below it, so the compiled `write_each` calls
send(2) itself, and hands to the transport only what the socket did not take: then the transport
buffers, its flow control tells us that the client is behind, and it reports a broken socket.

Bytes never overtake each other. uvloop keeps what it is given until the end of the loop's
iteration, so a send is legal only while the transport holds nothing, which
`get_write_buffer_size()` knows of both loops. Only plain sockets have a `direct_fd`; it stays
valid until `connection_lost`, which sets `ended`.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onebook.gateway.protocol import Connection


def write_each_by_transport(connections: "list[Connection]") -> None:
    """Write to each connection what it has in `out`: the way where nothing is compiled."""
    for connection in connections:
        batch = connection.out
        connection.out = None
        if batch is not None and not connection.ended:
            connection.transport.write(batch.whole())


COMPILED: bool
try:
    from onebook.gateway._direct import write_each
except ImportError:
    write_each = write_each_by_transport
    COMPILED = False
else:
    COMPILED = True

__all__ = ["COMPILED", "write_each", "write_each_by_transport"]
