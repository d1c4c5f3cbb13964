"""The event loop that a client belongs to: its connections cannot be used from a second one."""

import asyncio


class OneLoop:
    """Remembers the event loop that used something first."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None

    def require(self) -> None:
        """Check the running loop.

        Raises:
            RuntimeError: It is not the one that used this first.
        """
        running = asyncio.get_running_loop()
        self._loop = self._loop or running
        if self._loop is not running:
            raise RuntimeError(
                "This client belongs to another event loop: create one per asyncio.run, or use "
                "Onebook."
            )
