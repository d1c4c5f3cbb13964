"""Request authentication: https://bybit-exchange.github.io/docs/v5/guide#authentication

What is signed is the query string as it goes over the wire.
"""

import hashlib
import hmac
from base64 import b64encode
from typing import Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from onebook.transactions.adapter import FailureReason, SourceFailed
from onebook.transactions.credentials import Credentials

RECV_WINDOW_MS: Final = 5_000  # Bybit's default; a larger one cures no fast clock


def signed(credentials: Credentials, query: str, *, at_ms: int) -> dict[str, str]:
    """The authentication headers for a query string."""
    text = f"{at_ms}{credentials.api_key}{RECV_WINDOW_MS}{query}".encode()
    return {
        "X-BAPI-API-KEY": credentials.api_key,
        "X-BAPI-TIMESTAMP": str(at_ms),
        "X-BAPI-RECV-WINDOW": str(RECV_WINDOW_MS),
        "X-BAPI-SIGN": signature(credentials.secret, text),
    }


def signature(secret: str, text: bytes) -> str:
    """HMAC-SHA256 in hex; for a key that the operator made (PEM), RSA-SHA256 in base64."""
    if not secret.startswith("-----BEGIN"):
        return hmac.new(secret.encode(), text, hashlib.sha256).hexdigest()
    try:
        key = load_pem_private_key(secret.encode(), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):  # damaged, encrypted, of an unknown kind
        key = None
    if not isinstance(key, RSAPrivateKey):
        raise SourceFailed(
            FailureReason.AUTHENTICATION_FAILED,
            "The secret is no RSA private key without a password.",
            fatal=True,
        )
    return b64encode(key.sign(text, PKCS1v15(), hashes.SHA256())).decode()
