"""Programs in their own process, because limits of a process cannot be raised again."""

import subprocess
import sys
import textwrap


def in_process(program):
    """Run a program in its own process, because limits cannot be raised again."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
