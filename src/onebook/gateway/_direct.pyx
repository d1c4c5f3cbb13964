"""Fan-out of frames to many clients without Python per client; `fanout` describes it.

See send(2): https://man7.org/linux/man-pages/man2/send.2.html
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_Next
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.object cimport PyObject
from cpython.tuple cimport PyTuple_GET_SIZE


cdef extern from "<sys/socket.h>" nogil:
    enum: MSG_DONTWAIT
    enum: MSG_NOSIGNAL
    ssize_t send(int sock, const void *data, size_t size, int flags)

cdef extern from * nogil:
    """
    #include <sys/ioctl.h>
    #ifdef __linux__
    #include <linux/sockios.h>
    #endif
    /* As sockets.unacknowledged. */
    static int onebook_unacknowledged(int fd) {
        int bytes = 0;
    #ifdef SIOCOUTQ
        if (ioctl(fd, SIOCOUTQ, &bytes)) return 0;
    #endif
        return bytes;
    }
    #if defined(__GNUC__) || defined(__clang__)
    #define ONEBOOK_FETCH(at) \\
        (__builtin_prefetch((at), 1), __builtin_prefetch((const char *)(at) + 48, 1))
    #else
    #define ONEBOOK_FETCH(at) ((void)(at))
    #endif
    """
    # Prefetch a peer, which may lie on two cache lines: the kernel's work for a thousand sockets
    # evicts them all.
    void fetch "ONEBOOK_FETCH" (const void *at)
    int kernel_unacknowledged "onebook_unacknowledged" (int fd)


cdef enum:
    AHEAD = 4  # clients prefetched before they are written to


cdef class Peer:
    """What the fan-out and metering touch of a client, side by side in memory."""

    cdef public object transport
    cdef public object out
    cdef public list uncharged
    cdef public long long sent
    cdef public long long total
    cdef public long long undelivered
    cdef public int last_bytes
    cdef public int fd
    cdef public int direct_fd
    cdef public bint behind
    cdef public bint ended
    cdef public bint buffered
    cdef public bint listed

    def __init__(self, list uncharged not None):
        self.uncharged = uncharged
        self.undelivered = self.fd = self.direct_fd = -1

    def unacknowledged(self):
        """Bytes that were written but not yet acknowledged by the peer."""
        return unacknowledged(self)

    def take_delivered(self):
        """Return the payload bytes acknowledged by the peer since the last call."""
        cdef long long delivered
        if not self.sent:
            return 0
        delivered = max(0, self.sent - unacknowledged(self))
        self.sent -= delivered
        self.total += delivered
        if self.sent and self.undelivered < 0:
            self.await_charge()
        return delivered

    def await_charge(self):
        """Add this client to those whose delivered bytes are charged next."""
        if not self.listed:
            self.listed = True
            self.uncharged.append(self)


def spread(
    dict listeners not None, bytes frame not None, long long size, list touched not None,
    long long join_bytes_max,
):
    """Queue a frame for each peer; return the slow ones that were skipped."""
    cdef Peer peer
    cdef PyObject *key
    cdef PyObject *later
    cdef Py_ssize_t at = 0, ahead = 0
    cdef list behind = [], full = []
    cdef dict longer = {}  # what a client had: the same with this frame, and whether it is full
    cdef tuple first = (frame,)
    for _ in range(AHEAD):
        if PyDict_Next(listeners, &ahead, &later, NULL):
            fetch(later)
    # Nothing in this loop can change the list of peers.
    while PyDict_Next(listeners, &at, &key, NULL):
        if PyDict_Next(listeners, &ahead, &later, NULL):
            fetch(later)
        peer = <Peer>key
        if peer.behind:
            behind.append(peer)
            continue
        if peer.ended:
            continue
        peer.sent += size
        if not peer.listed:
            peer.listed = True
            peer.uncharged.append(peer)
        if peer.out is None:
            peer.out = first
            touched.append(peer)
            continue
        joined = longer.get(peer.out)
        if joined is None:
            frames = <tuple>peer.out + first
            joined = longer[peer.out] = (frames, sum(map(len, frames)) > join_bytes_max)
        peer.out, is_full = joined
        if is_full:
            full.append(peer)
    write_each(full)
    return behind


def write_each(list peers not None):
    """Write to each peer what it has in `out`, straight to its socket where that is legal."""
    cdef Peer peer
    cdef bytes text = b""
    cdef Py_ssize_t at, size, sent, count = PyList_GET_SIZE(peers)
    cdef list left = []
    cdef dict texts = {}  # of several frames: their bytes, joined once for all peers that get the same
    for at in range(min(AHEAD, count)):
        fetch(PyList_GET_ITEM(peers, at))
    for at in range(count):
        if at + AHEAD < count:
            fetch(PyList_GET_ITEM(peers, at + AHEAD))
        peer = <Peer>PyList_GET_ITEM(peers, at)
        frames, peer.out = peer.out, None
        if frames is None or peer.ended:
            continue
        if PyTuple_GET_SIZE(frames) == 1:
            text = <bytes>(<tuple>frames)[0]
        else:
            joined = texts.get(frames)
            if joined is None:
                joined = texts[frames] = b"".join(frames)
            text = <bytes>joined
        if peer.direct_fd < 0 or (peer.buffered and holds(peer)):
            left.append((peer, text, 0))
            continue
        size = PyBytes_GET_SIZE(text)
        sent = send(
            peer.direct_fd, PyBytes_AS_STRING(text), size, MSG_DONTWAIT | MSG_NOSIGNAL
        )
        if sent != size:
            left.append((peer, text, max(sent, 0)))
    # The socket is full, was interrupted or is broken: the transport buffers, or reports it. That
    # comes last, because a transport may call back.
    for peer, text, sent in left:
        peer.buffered = True
        peer.transport.write(memoryview(text)[sent:] if sent else text)


cdef bint holds(Peer peer) except -1:
    """Ask the transport whether it still holds bytes that were given to it."""
    peer.buffered = peer.transport.get_write_buffer_size() != 0
    return peer.buffered


cdef long long unacknowledged(Peer peer) except -1:
    cdef long long unsent
    if peer.undelivered >= 0:
        return peer.undelivered
    if peer.fd < 0:
        return 0
    unsent = kernel_unacknowledged(peer.fd) - peer.last_bytes
    if peer.buffered:
        unsent += peer.transport.get_write_buffer_size()
    return max(0, unsent)
