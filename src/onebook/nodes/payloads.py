"""Payloads between nodes, with ranges of numbers and limits of size. Sans-I/O.

The login to NATS is the trust boundary: a node with the login can claim to be any node. Even so, a
payload is decoded only within its size limit, and accepted only if every number is in its declared
range, so that the effect of a defective or forged message is limited. msgspec's limits also refuse
NaN and infinities.
"""

from enum import StrEnum
from typing import Annotated, Final, Generic, TypeVar

import msgspec
from msgspec import Meta, Struct, msgpack

T = TypeVar("T")

ERROR_CHARS_MAX: Final = 200
MESSAGE_BYTES_MAX: Final = 1 << 20  # the default limit of NATS

NODE_MAX: Final = 2**63 - 1
EPOCH_MAX: Final = 2**32 - 1
SEQ_MAX: Final = 2**53
COUNT_MAX: Final = 10_000_000
TIME_MAX: Final = 2**53  # in milliseconds or microseconds; 285 years in microseconds
TIME_SPAN_MAX: Final = 10_000_000  # in microseconds

NodeId = Annotated[int, Meta(ge=0, le=NODE_MAX)]
Epoch = Annotated[int, Meta(ge=0, le=EPOCH_MAX)]
Seq = Annotated[int, Meta(ge=0, le=SEQ_MAX)]
Count = Annotated[int, Meta(ge=0, le=COUNT_MAX)]
Time = Annotated[int, Meta(ge=0, le=TIME_MAX)]
# Another node's clock is returned plus the elapsed time, and must still be in its range.
RelayedTime = Annotated[int, Meta(ge=0, le=2 * TIME_MAX)]
TimeSpan = Annotated[int, Meta(ge=0, le=TIME_SPAN_MAX)]
WireVersion = Annotated[int, Meta(ge=0, le=255)]


class RefusalCause(StrEnum):
    """Why a payload was rejected; a label of `onebook_nats_refused_total`."""

    TOO_LONG = "too_long"
    MALFORMED = "malformed"
    INVALID = "invalid"  # a member is missing or of another type, or a number out of range
    UNKNOWN_NODE = "unknown_node"  # no heartbeat of its sender has arrived


class WireError(ValueError):
    """An invalid payload."""

    def __init__(self, text: str, cause: RefusalCause = RefusalCause.MALFORMED) -> None:
        super().__init__(text[:ERROR_CHARS_MAX])
        self.cause = cause


class PayloadReader(Generic[T]):
    """Decodes MessagePack payloads of one type.

    Args:
        type_: The type; all its numbers must have a range.
        bytes_max: Longer payloads are refused before they are decoded.
    """

    def __init__(self, type_: type[T], *, bytes_max: int = MESSAGE_BYTES_MAX) -> None:
        self.type = type_
        self.bytes_max = bytes_max
        self._decoder = msgpack.Decoder(type_)

    def read(self, payload: bytes | memoryview) -> T:
        """Decode a payload.

        Raises:
            WireError: The payload is too long, malformed or out of range.
        """
        require_size(payload, self.bytes_max)
        try:
            return self._decoder.decode(payload)
        except msgspec.ValidationError as error:
            raise WireError(str(error), RefusalCause.INVALID) from None
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise WireError(str(error)) from None


def require_size(payload: bytes | memoryview, bytes_max: int) -> None:
    """Check the size of a payload.

    Raises:
        WireError: The payload is longer.
    """
    if len(payload) > bytes_max:
        reason = f"{len(payload)} bytes, more than the limit of {bytes_max}"
        raise WireError(reason, RefusalCause.TOO_LONG)


class ClaimedSender(Struct, frozen=True):
    """The claimed sender of a rejected payload."""

    node: NodeId | None = None
    gateway: NodeId | None = None


_sender = PayloadReader(ClaimedSender)


def sender_of(payload: bytes | memoryview) -> int | None:
    """Return the claimed sender of a payload; None if it contains none."""
    try:
        claimed = _sender.read(payload)
    except WireError:
        return None
    return claimed.gateway if claimed.node is None else claimed.node
