"""Frames to many clients without Python per client; `direct` says what it does and when it may.

See send(2): https://man7.org/linux/man-pages/man2/send.2.html
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_Next
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.object cimport PyObject

from onebook.gateway.batch import Batch


cdef extern from "<sys/socket.h>" nogil:
    enum: MSG_DONTWAIT
    enum: MSG_NOSIGNAL
    ssize_t send(int sock, const void *data, size_t size, int flags)

cdef extern from * nogil:
    """
    #if defined(__GNUC__) || defined(__clang__)
    #define ONEBOOK_FETCH(at) \\
        (__builtin_prefetch((at), 1), __builtin_prefetch((const char *)(at) + 48, 1))
    #else
    #define ONEBOOK_FETCH(at) ((void)(at))
    #endif
    """
    # Have a peer, which may lie on two lines of memory, brought near before its turn: the kernel's
    # work for a thousand sockets pushes them all out of the processor's caches.
    void fetch "ONEBOOK_FETCH" (const void *at)


cdef enum:
    AHEAD = 4  # clients fetched before their turn


cdef class Peer:
    """What telling everyone touches of a client, side by side in memory."""

    cdef public object transport
    cdef public object out
    cdef public long long sent
    cdef public int direct_fd
    cdef public bint behind
    cdef public bint ended
    cdef public bint buffered

    def __init__(self):
        self.direct_fd = -1


def spread(
    dict listeners not None, bytes frame not None, long long size, list touched not None,
    long long join_bytes_max,
):
    """Put a frame before each listener; return those who are behind and got nothing."""
    cdef Peer peer
    cdef PyObject *key
    cdef PyObject *later
    cdef Py_ssize_t at = 0, ahead = 0
    cdef list behind = [], full = []
    cdef dict longer = {}
    first = Batch((frame,), len(frame))
    for _ in range(AHEAD):
        if PyDict_Next(listeners, &ahead, &later, NULL):
            fetch(later)
    # Nothing in this loop can change who listens.
    while PyDict_Next(listeners, &at, &key, NULL):
        if PyDict_Next(listeners, &ahead, &later, NULL):
            fetch(later)
        peer = <Peer>key
        if peer.behind:
            behind.append(peer)
            continue
        peer.sent += size
        if peer.out is None:
            peer.out = first
            touched.append(peer)
            continue
        joined = longer.get(peer.out)
        if joined is None:
            joined = longer[peer.out] = peer.out.followed_by(frame)
        peer.out = joined
        if joined.size > join_bytes_max:
            full.append(peer)
    write_each(full)
    return behind


def write_each(list peers not None):
    """Write to each peer what it has in `out`, straight to its socket where that is legal."""
    cdef Peer peer
    cdef bytes data = b""
    cdef ssize_t sent
    cdef Py_ssize_t at, count = PyList_GET_SIZE(peers)
    whole = None
    for at in range(count):
        if at + 1 < count:
            fetch(PyList_GET_ITEM(peers, at + 1))
        peer = <Peer>PyList_GET_ITEM(peers, at)
        batch, peer.out = peer.out, None
        if batch is None or peer.ended:
            continue
        if batch is not whole:
            whole = batch
            data = batch.whole()
        sent = 0
        if peer.direct_fd >= 0 and not (peer.buffered and holds(peer)):
            sent = send(
                peer.direct_fd, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data),
                MSG_DONTWAIT | MSG_NOSIGNAL,
            )
            if sent == PyBytes_GET_SIZE(data):
                continue
        # The socket is full, was interrupted or is broken: the transport waits, or says it.
        peer.buffered = True
        peer.transport.write(memoryview(data)[sent:] if sent > 0 else data)


cdef bint holds(Peer peer) except -1:
    """Ask the transport whether it still holds bytes that were given to it."""
    peer.buffered = peer.transport.get_write_buffer_size() != 0
    return peer.buffered
