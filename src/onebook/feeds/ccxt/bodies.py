"""The HTTP session that a ccxt client uses: bodies of bounded size. Imports aiohttp, ccxt's own."""

from typing import Any

import aiohttp


def session_of(bytes_max: int) -> Any:
    """Make a session whose responses end with an error beyond so many bytes, inflated."""

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
