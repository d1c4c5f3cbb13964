"""A process without netlink sockets still has other sockets."""

import subprocess
import sys
from errno import EAFNOSUPPORT

import pytest

from web.no_netlink import refuse_netlink

SOCKETS = """
import socket
socket.socket(socket.AF_INET, socket.SOCK_STREAM).close()
try:
    socket.socket(socket.AF_NETLINK, socket.SOCK_RAW).close()
except OSError as error:
    print(error.errno)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="netlink is of Linux")
def test_netlink_sockets_alone_are_refused() -> None:
    made = subprocess.run(
        [sys.executable, "-c", SOCKETS],
        preexec_fn=refuse_netlink, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert made.stdout.strip() == str(EAFNOSUPPORT)
