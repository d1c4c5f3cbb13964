"""Programs in a process of their own, because limits of a process cannot be raised again."""

import subprocess
import sys
import textwrap


def in_process(program):
    """Run a program of its own, because limits of a process cannot be raised again."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
