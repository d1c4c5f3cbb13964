"""How a request to Bybit proves who asks."""

import base64

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa

from onebook.transactions.adapter import SourceFailed
from onebook.transactions.bybit.signing import signature, signed
from transactions.bybit.asking import MINE


def test_the_signature_of_a_known_query() -> None:
    """A vector of the facts page, made with an independent implementation."""
    query = "category=linear&cursor=132766%3A2%2C132766%3A2&limit=50"
    headers = signed(MINE, query, at_ms=1_700_000_000_000)
    assert headers == {
        "X-BAPI-API-KEY": "mykey00000000000000",
        "X-BAPI-TIMESTAMP": "1700000000000",
        "X-BAPI-RECV-WINDOW": "5000",
        "X-BAPI-SIGN": "cedafa3ae48713d45759256293323adb08e9ff74f0ded02092c76c460b43904d",
    }


def test_a_self_generated_key_signs_with_rsa() -> None:
    key = rsa.generate_private_key(65_537, 2_048)
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode()
    sign = base64.b64decode(signature(pem, b"text"))
    key.public_key().verify(sign, b"text", padding.PKCS1v15(), hashes.SHA256())


def test_a_key_of_another_kind_is_refused() -> None:
    pem = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    with pytest.raises(SourceFailed, match="RSA"):
        signature(pem.decode(), b"text")
