"""The way of a frame from picows to the session, compiled; `listener` says what it does.

picows is made to be extended so: https://pypi.org/project/picows/
"""

from picows.picows cimport WSFrame, WSListener, WSMsgType, WSTransport


cdef extern from *:
    const char *PICOWS "ONEBOOK_PICOWS"


COMPILED_FOR = PICOWS.decode()


cdef class Listener(WSListener):
    """Sorts frames: a message goes to the session, all else to `unusual`."""

    cdef public object session
    cdef public object received
    cdef public object clock
    cdef public bint joining
    cdef public Py_ssize_t bytes_max
    cdef public Py_ssize_t budget

    cpdef on_ws_frame(self, WSTransport transport, WSFrame frame):
        """Sort one frame (the hot path)."""
        self.budget -= 1
        if self.budget == 0:
            self.pause(transport)
        if (
            (frame.msg_type == WSMsgType.TEXT or frame.msg_type == WSMsgType.BINARY)
            and frame.fin and not self.joining
            and not (frame.rsv1 or frame.rsv2 or frame.rsv3)
            and frame.payload_size <= self.bytes_max
        ):
            now = self.clock()
            self.received(frame.get_payload_as_bytes(), now)
            if self.session.pending:
                self.carry_out(now)
        else:
            self.unusual(transport, frame)
