"""Compares frames that a connector sends, ignoring the books that they request."""

from onebook.exchanges.kit import Send


class Sent:
    """Equal to every `Send` with this frame; only the engine knows the requested books."""

    def __init__(self, frame: bytes, urgent: bool = False) -> None:
        self.frame = frame
        self._urgent = urgent

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Send) and (other.frame, other.urgent) == (
            self.frame,
            self._urgent,
        )

    def __hash__(self) -> int:
        return hash(self.frame)

    def __repr__(self) -> str:
        return f"Sent({self.frame!r})"
