from typing import TypeVar

from onebook.gateway.fanout import PurePeer

class Peer(PurePeer): ...

P = TypeVar("P", bound=PurePeer)

def spread(
    listeners: dict[P, None], frame: bytes, size: int, touched: list[P], join_bytes_max: int
) -> list[P]: ...
def write_each(peers: list[P]) -> None: ...
