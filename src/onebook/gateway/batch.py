"""Frames that become one write; shared by all clients that get the very same ones."""

from onebook.gateway.frames import payload_length


class Batch:
    """Some frames in order, and their size in bytes."""

    __slots__ = ("_frames", "_whole", "size")

    def __init__(self, batched: tuple[bytes, ...], size: int) -> None:
        self._frames = batched
        self._whole = batched[0] if len(batched) == 1 else b""
        self.size = size

    def followed_by(self, frame: bytes) -> "Batch":
        """The batch with one more frame."""
        return Batch((*self._frames, frame), self.size + len(frame))

    @property
    def payload_bytes(self) -> int:
        """What clients are charged for: the frames without their headers."""
        return sum(map(payload_length, self._frames))

    def whole(self) -> bytes:
        """All frames as one, joined when first asked for."""
        if not self._whole:
            self._whole = b"".join(self._frames)
        return self._whole
