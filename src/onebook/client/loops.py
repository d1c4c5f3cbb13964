"""Checks that a client is used from a single event loop, as its connections require."""

import asyncio


class OneLoop:
    """Remembers the event loop that was used first."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None

    def require(self) -> None:
        """Check the running loop.

        Raises:
            RuntimeError: It is not the loop that was used first.
        """
        running = asyncio.get_running_loop()
        self._loop = self._loop or running
        if self._loop is not running:
            raise RuntimeError(
                "This client belongs to another event loop: create one per asyncio.run, or use "
                "Onebook."
            )
