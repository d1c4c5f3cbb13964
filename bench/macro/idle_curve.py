"""Cost of idle clients by their number, with a socket each and sharing sockets, as Markdown.

    idle_curve.py [--own 1000 ...] [--shared 1000 ...] [--seconds 60]

Both are `idle.py`; the numbers with a socket each end at this machine's limit of open files.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

IDLE = Path(__file__).with_name("idle.py")
OWN = [1_000, 2_000, 6_000, 12_000, 18_000]
SHARED = [1_000, 6_000, 18_000, 50_000, 100_000]
ROW = " idle authenticated clients"
COLUMNS = {
    "KiB": ("memory, KiB", ".2f"),
    "us of CPU a second": ("CPU a second, us", ".1f"),
    "longest turn, ms of CPU": ("longest turn, ms", ".1f"),
    "longest collection, ms of CPU": ("its garbage collection", ".1f"),
    "longest turn while connecting, ms of CPU": ("while connecting, ms", ".1f"),
    "longest collection while connecting, ms of CPU": ("its garbage collection", ".1f"),
    "us of CPU to connect": ("CPU to connect, us", ".0f"),
}


def measured(clients: list[int], *options: str) -> dict[int, dict[str, float]]:
    """What `idle.py` reports of each number of clients."""
    words = [sys.executable, IDLE, "--no-restart", "--clients", *map(str, clients), *options]
    done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True)
    found = {}
    for line in map(json.loads, done.stdout.splitlines()):
        count, is_idle, _ = line["row"].partition(ROW)
        if is_idle:
            values = {
                name.rpartition("sockets, ")[2]: each for name, each in line["values"].items()
            }
            found[int(count)] = values
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--own", type=int, nargs="+", default=OWN)
    parser.add_argument("--shared", type=int, nargs="+", default=SHARED)
    parser.add_argument("--seconds", default="60")
    words = parser.parse_args()
    print("| clients | sockets |", " | ".join(name for name, _ in COLUMNS.values()), "|")
    print("|---" * (2 + len(COLUMNS)) + "|")
    for kind, clients, options in (("own", words.own, ()), ("shared", words.shared, ("--shared",))):
        for count, values in measured(clients, "--seconds", words.seconds, *options).items():
            cells = (f"{values[name]:{form}}" for name, (_, form) in COLUMNS.items())
            print(f"| {count:,} | {kind} |", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    main()
