"""TLS to NATS: a server that presents a certificate, and nodes that check it."""

import pytest

from e2e.test_tls import Authority
from nodes.servers import nats_server
from onebook.config import NatsSettings
from onebook.errors import ConfigError
from onebook.nodes.bus import NatsBus
from steady import PATIENCE_S


@pytest.mark.parametrize("trusted", [True, False])
async def test_the_certificate_of_nats_is_checked(tmp_path, trusted):
    known, stranger = (Authority(tmp_path, name) for name in ("known", "stranger"))
    certificate, key = known.vouch()
    with nats_server("--tls", "--tlscert", str(certificate), "--tlskey", str(key)) as port:
        settings = NatsSettings(
            servers=(f"tls://127.0.0.1:{port}",),
            tls_ca_file=known.file if trusted else stranger.file,
            connect_timeout_s=PATIENCE_S if trusted else 2.0,
        )
        bus = NatsBus(settings, name="test")
        if trusted:
            async with bus:
                assert bus.connected
            return
        with pytest.raises(ConfigError, match="certificate verify failed"):
            await bus.__aenter__()
