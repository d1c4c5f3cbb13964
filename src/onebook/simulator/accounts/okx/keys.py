"""API keys of the simulated OKX: signatures, time stamps, environments, regions and addresses.

The checks in their order: headers present, time stamp, key, environment, address, passphrase,
signature; OKX documents the codes, but not their order.
https://www.okx.com/docs-v5/en/#overview-rest-authentication
"""

import hashlib
import hmac
import re
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from onebook.simulator.accounts.okx.names import MASTER

CLOCK_MS: Final = 30_000  # maximum deviation of a time stamp
_STAMP: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
_KEY: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
REFUSALS: Final = {
    "404": (404, "Not Found"),
    "50001": (503, "Service temporarily unavailable. Try again later"),
    "50004": (400, "API endpoint request timeout (does not indicate success or failure)"),
    "50011": (429, "Too Many Requests"),
    "50013": (503, "Systems are busy. Please try again later."),
    "50014": (400, "Parameter {} can not be empty."),
    "50026": (500, "System error. Try again later."),
    "50030": (403, "You don't have permission to use this API endpoint"),
    "50038": (200, "This feature is unavailable in demo trading"),
    "50100": (401, "API frozen, please contact customer service."),
    "50101": (401, "APIKey does not match current environment."),
    "50102": (401, "Timestamp request expired"),
    "50103": (401, 'Request header "OK-ACCESS-KEY" can not be empty.'),
    "50104": (401, 'Request header "OK-ACCESS-PASSPHRASE" can not be empty.'),
    "50105": (401, "Request header OK-ACCESS-PASSPHRASE incorrect."),
    "50106": (401, 'Request header "OK-ACCESS-SIGN" can not be empty.'),
    "50107": (401, 'Request header "OK-ACCESS-TIMESTAMP" can not be empty.'),
    "50110": (401, "Your IP {} is not included in your API key's IP whitelist."),
    "50111": (401, "Invalid OK-ACCESS-KEY"),
    "50112": (401, "Invalid OK-ACCESS-TIMESTAMP"),
    "50113": (401, "Invalid Sign"),
    "50119": (401, "API key doesn't exist"),
    "50120": (401, "This API key doesn't have permission to use this function"),
    "51000": (400, "Parameter {} error"),
    "51010": (200, "Request unsupported under current account mode"),
    "51604": (200, "Initiate a download request before obtaining the hyperlink"),
    "51605": (200, "You can only download transaction history since 1 February 2021"),
    "51606": (200, "Transaction history for the current quarter is not available"),
    "51607": (200, "Your previous download request is still being processed"),
    "51608": (200, "No transaction history for the current quarter"),
    "58007": (503, "Account is being accessed, please try again later"),
}


@dataclass(frozen=True)
class SimulatedOkxKey:
    """A key of the account; `region` is the site on which it was made, which alone knows it.

    `user` is the id of its account, as the site tells it.
    """

    api_key: str
    secret: str = field(repr=False)
    passphrase: str = field(repr=False)
    permissions: tuple[str, ...] = ("read_only",)
    demo: bool = False
    region: str = "global"
    ips: tuple[str, ...] = ()
    frozen: bool = False
    user: str = MASTER


class OkxRefused(Exception):
    """An error answer; errors about headers have no data."""

    def __init__(self, code: str, detail: str = "") -> None:
        status, words = REFUSALS[code]
        super().__init__(words.format(detail))
        self.code = code
        self.status = status
        self.bare = code.startswith(("501", "404"))


class OkxGate:
    """Authenticates requests on the site of one region."""

    def __init__(self, keys: Mapping[str, SimulatedOkxKey], region: str) -> None:
        self._keys = keys
        self._region = region

    def admit(
        self,
        headers: Mapping[str, str],
        method: str,
        target: str,
        body: bytes,
        *,
        now_ms: int,
        address: str,
    ) -> SimulatedOkxKey:
        """Return the key of a request; `target` is its path and query, as sent.

        Raises:
            OkxRefused: A header is missing, expired or wrong.
        """
        names = {"50103": "key", "50106": "sign", "50107": "timestamp", "50104": "passphrase"}
        for code, name in names.items():
            if not headers.get(f"ok-access-{name}"):
                raise OkxRefused(code)
        stamp, name = headers["ok-access-timestamp"], headers["ok-access-key"]
        if abs(_stamp_ms(stamp) - now_ms) > CLOCK_MS:
            raise OkxRefused("50102")
        if not _KEY.fullmatch(name):
            raise OkxRefused("50111")
        key = self._keys.get(name)
        if key is None or key.region != self._region:
            raise OkxRefused("50119")
        if key.demo != (headers.get("x-simulated-trading") == "1"):
            raise OkxRefused("50101")
        if key.frozen:
            raise OkxRefused("50100")
        if key.ips and address not in key.ips:
            raise OkxRefused("50110", address)
        if not hmac.compare_digest(key.passphrase, headers["ok-access-passphrase"]):
            raise OkxRefused("50105")
        sign = okx_signature(key.secret, stamp, method, target, body)
        if not hmac.compare_digest(sign, headers["ok-access-sign"]):
            raise OkxRefused("50113")
        return key


def okx_signature(secret: str, stamp: str, method: str, target: str, body: bytes = b"") -> str:
    """Return the `OK-ACCESS-SIGN` of a request."""
    message = f"{stamp}{method}{target}".encode() + body
    return b64encode(hmac.new(secret.encode(), message, hashlib.sha256).digest()).decode()


def stamp_of(ms: int) -> str:
    """Return a time in the form of `OK-ACCESS-TIMESTAMP`."""
    return f"{datetime.fromtimestamp(ms // 1_000, UTC):%Y-%m-%dT%H:%M:%S}.{ms % 1_000:03}Z"


def _stamp_ms(stamp: str) -> int:
    if not _STAMP.fullmatch(stamp):
        raise OkxRefused("50112")
    try:
        at = datetime.fromisoformat(f"{stamp[:-1]}+00:00")
    except ValueError:
        raise OkxRefused("50112") from None
    return round(at.timestamp() * 1_000)
