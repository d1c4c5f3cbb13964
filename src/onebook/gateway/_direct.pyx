"""Writes to many sockets without Python per client; `direct` says what it does and when it may.

See send(2): https://man7.org/linux/man-pages/man2/send.2.html
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE


cdef extern from "<sys/socket.h>" nogil:
    enum: MSG_DONTWAIT
    enum: MSG_NOSIGNAL
    ssize_t send(int sock, const void *data, size_t size, int flags)


def write_each(list connections not None):
    """Write to each connection what it has in `out`, straight to its socket where that is legal."""
    cdef bytes data
    cdef int fd
    cdef ssize_t sent
    for connection in connections:
        batch = connection.out
        if batch is None:
            continue
        connection.out = None
        if connection.ended:
            continue
        data = batch.whole()
        fd = connection.direct_fd
        transport = connection.transport
        sent = 0
        if fd >= 0 and not transport.get_write_buffer_size():
            sent = send(
                fd, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), MSG_DONTWAIT | MSG_NOSIGNAL
            )
            if sent == PyBytes_GET_SIZE(data):
                continue
        # The socket is full, was interrupted or is broken: the transport waits, or says it.
        transport.write(memoryview(data)[sent:] if sent > 0 else data)
