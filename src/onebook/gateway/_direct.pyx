"""Frames to many clients without Python per client; `direct` says what it does and when it may.

See send(2): https://man7.org/linux/man-pages/man2/send.2.html
"""

import os

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_Next
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.object cimport PyObject

from onebook.gateway.batch import Batch


cdef extern from "<sys/socket.h>" nogil:
    enum: MSG_DONTWAIT
    enum: MSG_NOSIGNAL
    ssize_t send(int sock, const void *data, size_t size, int flags)

cdef extern from "_uring.h" nogil:
    struct uring:
        int fd
        unsigned put
        long long *results
    int uring_open(uring *u, unsigned entries)
    void uring_put(uring *u, int fd, const void *data, size_t size)
    void uring_submit(uring *u)
    void uring_close(uring *u)

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
    AT_ONCE = 256  # sends of one system call


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


cdef class Writer:
    """Writes to many peers, straight to their sockets where that is legal.

    With `ring` one system call sends to many; OSError where the kernel has none for us.
    """

    cdef uring ring
    cdef Py_ssize_t count
    # Those whose turn it is: held by the caller and by `write_each`, not here.
    cdef PyObject *peers[AT_ONCE]
    cdef PyObject *texts[AT_ONCE]
    cdef int sockets[AT_ONCE]

    def __cinit__(self, *, bint ring):
        cdef int failed
        self.ring.fd = -1
        failed = uring_open(&self.ring, AT_ONCE) if ring else 0
        if failed:
            raise OSError(-failed, os.strerror(-failed))

    def __dealloc__(self):
        uring_close(&self.ring)

    def write_each(self, list peers not None):
        """Write to each peer what it has in `out`."""
        cdef Peer peer
        cdef bytes text = b""
        cdef Py_ssize_t at, count = PyList_GET_SIZE(peers)
        cdef list held = [], left = []
        whole = None
        self.count = self.ring.put = 0
        for at in range(min(AHEAD, count)):
            fetch(PyList_GET_ITEM(peers, at))
        for at in range(count):
            if at + AHEAD < count:
                fetch(PyList_GET_ITEM(peers, at + AHEAD))
            peer = <Peer>PyList_GET_ITEM(peers, at)
            batch, peer.out = peer.out, None
            if batch is None or peer.ended:
                continue
            if batch is not whole:
                whole = batch
                text = batch.whole()
                held.append(text)
            if peer.direct_fd < 0 or (peer.buffered and holds(peer)):
                left.append((peer, text, 0))
                continue
            self.peers[self.count] = <PyObject *>peer
            self.texts[self.count] = <PyObject *>text
            self.sockets[self.count] = peer.direct_fd
            self.count += 1
            if self.ring.fd >= 0:
                uring_put(
                    &self.ring, peer.direct_fd, PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text)
                )
            if self.count == AT_ONCE:
                self.flush(left)
        self.flush(left)
        # The socket is full, was interrupted or is broken: the transport waits, or says it. That
        # comes last, because a transport may call back.
        for peer, text, sent in left:
            peer.buffered = True
            peer.transport.write(memoryview(text)[sent:] if sent else text)

    cdef flush(self, list left):
        """Send to those whose turn it is; to `left` goes what a socket did not take."""
        cdef Py_ssize_t at, size
        cdef long long sent
        if self.ring.fd >= 0:
            uring_submit(&self.ring)
        for at in range(self.count):
            size = PyBytes_GET_SIZE(<bytes>self.texts[at])
            if self.ring.fd >= 0:
                sent = self.ring.results[at]
            else:
                sent = send(
                    self.sockets[at], PyBytes_AS_STRING(<bytes>self.texts[at]), size,
                    MSG_DONTWAIT | MSG_NOSIGNAL,
                )
            if sent != size:
                left.append((<Peer>self.peers[at], <bytes>self.texts[at], max(sent, 0)))
        self.count = 0


cdef bint holds(Peer peer) except -1:
    """Ask the transport whether it still holds bytes that were given to it."""
    peer.buffered = peer.transport.get_write_buffer_size() != 0
    return peer.buffered


write_each = Writer(ring=False).write_each
