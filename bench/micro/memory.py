"""Goal 9, first half: bytes a level of a full book costs, by the process's resident memory."""

import gc
import resource
import sys

import publish

from onebook import core
from onebook.core import reference
from timing import report

BOOKS = 200
DEPTHS = (1_000, 5_000)


def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def main() -> None:
    module = reference if sys.argv[1:] == ["reference"] else core
    for depth in DEPTHS:
        publish.DEPTH = depth
        count = BOOKS * 1_000 // depth // (20 if module is reference else 1)
        publish.books(2, module.Book)
        gc.collect()
        before = resident()
        held = publish.books(count, module.Book)
        gc.collect()
        levels = sum(book.bid_count + book.ask_count for book in held)
        name = "onebook, pure Python" if module is reference else "onebook"
        report(f"memory at depth {depth}", {name: (resident() - before) / levels}, "bytes a level")


if __name__ == "__main__":
    main()
