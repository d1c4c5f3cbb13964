"""An operator, an account and a user of NATS, signed by hand as `nsc` does.

https://docs.nats.io/running-a-nats-service/configuration/securing_nats/auth_intro/jwt
"""

import base64
import hashlib
import json
import os

import nkeys

UNLIMITED = dict.fromkeys(("subs", "data", "payload", "conn", "leaf", "imports", "exports"), -1)


def write_account(folder, *, expires_at=None):
    """Write `nats.conf` of a server that knows the account, and `user.creds`; return the seed."""
    operator, account, user = (
        nkeys.from_seed(nkeys.encode_seed(os.urandom(32), prefix))
        for prefix in (
            nkeys.PREFIX_BYTE_OPERATOR,
            nkeys.PREFIX_BYTE_ACCOUNT,
            nkeys.PREFIX_BYTE_USER,
        )
    )
    limits = {"limits": {**UNLIMITED, "wildcards": True}}
    known = _jwt(operator, operator, "operator", {})
    listed = _jwt(account, operator, "account", limits)
    (folder / "nats.conf").write_text(
        f'operator: "{known}"\nresolver: MEMORY\n'
        f'resolver_preload: {{ {account.public_key.decode()}: "{listed}" }}\n'
    )
    seed = user.seed.decode()
    (folder / "user.creds").write_text(
        "-----BEGIN NATS USER JWT-----\n"
        f"{_jwt(user, account, 'user', UNLIMITED, expires_at)}\n"
        "------END NATS USER JWT------\n\n"
        "-----BEGIN USER NKEY SEED-----\n"
        f"{seed}\n"
        "------END USER NKEY SEED------\n"
    )
    return seed


def _jwt(subject, issuer, kind, claims, expires_at=None):
    body = {
        "sub": subject.public_key.decode(),
        "iss": issuer.public_key.decode(),
        "name": kind,
        "iat": 1,
        "nats": {"type": kind, "version": 2, **claims},
        **({} if expires_at is None else {"exp": expires_at}),
    }
    digest = hashlib.sha512(json.dumps(body).encode()).digest()[:32]
    body["jti"] = base64.b32encode(digest).rstrip(b"=").decode()
    signed = f"{_text({'typ': 'JWT', 'alg': 'ed25519-nkey'})}.{_text(body)}"
    return f"{signed}.{_base64(issuer.sign(signed.encode()))}"


def _text(value):
    return _base64(json.dumps(value, separators=(",", ":")).encode())


def _base64(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
