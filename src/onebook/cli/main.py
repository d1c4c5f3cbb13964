"""`onebook`: entry point of the command line."""

import gc
import os
import signal
import sys

EXIT_OUTPUT = 2


def main() -> None:
    """Run the command line."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # During imports there is nothing to clean up, so Ctrl-C ends the process without a
        # traceback. The command runs with Python's own handler again.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    # Imports leave no garbage, and looking for it takes a fifth of their time; a command runs with
    # the collector again.
    gc.disable()
    from onebook.cli.commands import app
    from onebook.errors import DISK_FULL

    try:
        app()
    except OSError as error:
        if error.filename is not None or error.errno not in DISK_FULL:
            raise
        print(f"error: Cannot write the output: {error.strerror}.", file=sys.stderr)
        # Python flushes the remaining buffer at exit, which would fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EXIT_OUTPUT)
    except KeyboardInterrupt:
        sys.exit(130)
