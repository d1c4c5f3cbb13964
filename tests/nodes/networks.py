"""Network namespaces for tests: separate hosts, joined by links that can be cut."""

import os
import shutil
import subprocess
from contextlib import ExitStack, contextmanager

import pytest


def _ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


def _in(host):
    """The arguments that run `ip` on a host."""
    return () if host is None else ("-n", host)


class Network:
    """Hosts (network namespaces), and links (veth pairs) with a subnet each.

    Addresses are of 198.18.0.0/15, which is for tests of networks (RFC 2544).
    """

    def __init__(self, stack):
        self._stack = stack
        self._mark = f"{os.getpid() % 100_000}"
        self._links = 0

    def host(self, name):
        """Make a host; returns its namespace."""
        namespace = f"onebook-{self._mark}-{name}"
        _ip("netns", "add", namespace)
        self._stack.callback(_ip, "netns", "del", namespace)
        _ip("-n", namespace, "link", "set", "lo", "up")
        return namespace

    def link(self, one, other):
        """Join two hosts, None being this one."""
        self._links += 1
        process = os.getpid()
        subnet = f"198.{18 + process % 2}.{process // 2 % 256}"
        first, second = (f"{subnet}.{4 * self._links + end}" for end in (1, 2))
        devices = [f"ob{self._mark}-{self._links}{end}" for end in "ab"]
        _ip("link", "add", devices[0], "type", "veth", "peer", "name", devices[1])
        for device, host, address in zip(devices, (one, other), (first, second), strict=True):
            if host is not None:
                _ip("link", "set", device, "netns", host)
            _ip(*_in(host), "address", "add", f"{address}/30", "dev", device)
            _ip(*_in(host), "link", "set", device, "up")
        return Link(one, devices[0], first, second)


class Link:
    """A connection of two hosts; while it is down, packets are lost and no socket is closed.

    `first` and `second` are the addresses of its ends.
    """

    def __init__(self, host, device, first, second):
        self.first = first
        self.second = second
        self._host = host
        self._device = device

    def down(self):
        _ip(*_in(self._host), "link", "set", self._device, "down")

    def up(self):
        _ip(*_in(self._host), "link", "set", self._device, "up")


@contextmanager
def network():
    """A network within the context; skips if namespaces are not permitted."""
    if shutil.which("ip") is None:
        pytest.skip("no ip (iproute2) on PATH: no network namespaces")
    with ExitStack() as stack:
        made = Network(stack)
        try:
            made.link(None, made.host("probe"))
        except subprocess.CalledProcessError as error:
            pytest.skip(f"network namespaces are not allowed here: {error.stderr.strip()}")
        yield made
