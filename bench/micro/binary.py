"""Binance's changes as text and in binary (SBE): a raw frame of 20, 100 and 1,000 levels to a book.

The same changes in both encodings, each through the whole path behind the socket, as in
`ingest.py`. In the end both books must be equal.
"""

import ours

import stream
from timing import each_at, interleaved, report

SIZES = {20: 2_000, 100: 500, 1_000: 100}  # levels of a frame, and the number of frames
DEPTH = 2_000
ENCODINGS = {"": stream.binance, "sbe": stream.binance_sbe}


def main() -> None:
    for levels, count in SIZES.items():
        market = stream.Stream(DEPTH, seed=5)
        snapshot = market.snapshot()
        changes = list(enumerate((market.frame(levels) for _ in range(count)), start=1))
        frames = {
            channel: [encoded(bids, asks, number) for number, (bids, asks) in changes]
            for channel, encoded in ENCODINGS.items()
        }
        ended: dict[str, object] = {}

        def cost(channel: str, snapshot=snapshot, frames=frames, ended=ended) -> float:
            feed = ours.Feed("binance", snapshot, channel=channel)
            took = each_at(feed.received, frames[channel], 1.0)
            assert feed.book.health.value == "live", feed.book.reason
            ended[channel] = feed.book.core.top(DEPTH)
            return took

        costs = interleaved({"text": lambda: cost(""), "sbe": lambda: cost("sbe")})
        assert ended[""] == ended["sbe"], "the books differ"
        report(f"binance frame of {levels:,} levels", costs, "ns")


if __name__ == "__main__":
    main()
