"""Goal 3: what depth costs, the same changes into a book of 1,000 and of 5,000 levels a side."""

import ingest

import stream
from timing import interleaved, report

DEPTHS = (1_000, 5_000)


def main() -> None:
    contenders = {}
    for depth in DEPTHS:
        snapshot, made = ingest.changes(ingest.FRAMES, depth)
        frames = [stream.binance(b, a, n) for n, (b, a) in enumerate(made, start=1)]
        contenders[f"depth {depth}"] = lambda f=frames, s=snapshot: ingest.ingest("binance", f, s)
    report("depth", interleaved(contenders), "ns")


if __name__ == "__main__":
    main()
