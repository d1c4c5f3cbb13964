"""Goal 8: one compressed frame of 12 KB for all clients of a view, against a deflate per client."""

import zlib

import publish

from onebook import core
from onebook.gateway import frames
from timing import interleaved, repeated, report

CALLS = 200


def main() -> None:
    payload = publish.publisher(8, core)()
    each = zlib.compressobj(6, zlib.DEFLATED, -12, 5)

    def per_client() -> bytes:
        return each.compress(payload) + each.flush(zlib.Z_SYNC_FLUSH)

    values = interleaved(
        {
            "onebook, once for all clients": lambda: repeated(
                lambda: frames.deflated_frame(payload), CALLS
            ),
            "zlib as websockets sets it, for each client": lambda: repeated(per_client, CALLS),
        },
    )
    report("compressed frame", values, "ns")
    sizes = {"plain": len(payload), "compressed": len(frames.deflated_frame(payload))}
    report("size of the compressed frame", sizes, "bytes")


if __name__ == "__main__":
    main()
