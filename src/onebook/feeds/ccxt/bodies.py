"""HTTP session for a ccxt client with bodies of bounded size. Imports ccxt's aiohttp."""

from typing import Any

import aiohttp


def session_of(bytes_max: int) -> Any:
    """Make a session whose responses fail beyond so many decompressed bytes."""

    class Bounded(aiohttp.ClientResponse):
        async def read(self) -> bytes:
            if self._body is None:
                parts, size = [], 0
                async for part in self.content.iter_any():
                    size += len(part)
                    if size > bytes_max:
                        self.close()
                        raise aiohttp.ClientPayloadError(f"a body of more than {bytes_max} bytes")
                    parts.append(part)
                self._body = b"".join(parts)
            return self._body

    return aiohttp.ClientSession(response_class=Bounded)
