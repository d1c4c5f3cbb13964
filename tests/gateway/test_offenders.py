"""Addresses that broke the protocol without a key get their next handshakes one by one."""

import asyncio

import pytest

from gateway.rig import gateway, settled
from onebook.gateway.offenders import ADDRESSES_MAX, FORGOTTEN_S, Offenders

ONE, OTHER = "192.0.2.1", "192.0.2.2"


def test_an_address_without_offences_waits_for_nothing():
    offenders = Offenders(1.0, 8.0)
    assert offenders.wait_s(ONE, 0.0) == 0
    offenders.offended(ONE, 0.0)
    assert offenders.wait_s(OTHER, 0.0) == 0


def test_handshakes_after_an_offence_are_a_pause_apart():
    offenders = Offenders(1.0, 8.0)
    offenders.offended(ONE, 0.0)
    assert [offenders.wait_s(ONE, 0.0) for _ in range(3)] == [1.0, 2.0, 3.0]
    assert offenders.wait_s(ONE, 3.5) == 0.5


def test_the_pause_doubles_with_each_offence_up_to_its_limit():
    offenders = Offenders(1.0, 8.0)
    pauses = []
    now_s = 0.0
    for _ in range(6):
        offenders.offended(ONE, now_s)
        now_s += offenders.wait_s(ONE, now_s)
        pauses.append(offenders.wait_s(ONE, now_s))
        now_s += pauses[-1]
    assert pauses == [1.0, 2.0, 4.0, 8.0, 8.0, 8.0]


def test_no_handshake_waits_for_longer_than_two_of_the_longest_pauses():
    offenders = Offenders(1.0, 8.0)
    for _ in range(10):
        offenders.offended(ONE, 0.0)
    assert max(offenders.wait_s(ONE, 0.0) for _ in range(100)) == 16.0


def test_an_offence_is_forgotten():
    offenders = Offenders(1.0, 8.0)
    offenders.offended(ONE, 0.0)
    assert offenders.wait_s(ONE, 1.0 + FORGOTTEN_S + 0.1) == 0


def test_ipv6_is_paced_by_64():
    offenders = Offenders(1.0, 8.0)
    offenders.offended("2001:db8::1", 0.0)
    assert offenders.wait_s("2001:db8::2", 0.0) == 1.0
    assert offenders.wait_s("2001:db8:0:1::1", 0.0) == 0


def test_only_so_many_addresses_are_remembered():
    offenders = Offenders(1.0, 8.0)
    for number in range(ADDRESSES_MAX + 1):
        offenders.offended(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", 0.0)
    assert offenders.wait_s("10.0.0.0", 0.0) == 0
    assert offenders.wait_s("10.0.0.1", 0.0) == 1.0


def test_no_pause_paces_nothing():
    offenders = Offenders(0.0, 8.0)
    offenders.offended(ONE, 0.0)
    assert offenders.wait_s(ONE, 0.0) == 0


def of(address):
    return {"additional_headers": {"X-Forwarded-For": address}}


@pytest.mark.parametrize(
    ("message", "code"), [(b"binary", 1003), ("x" * 5_000, 1009), ("\ud800", 1007)]
)
async def test_the_next_handshake_of_an_offender_waits_and_others_do_not(tmp_path, message, code):
    pauses = {"offence_pause_s": 60.0, "offence_pause_max_s": 60.0}
    async with gateway(tmp_path, **pauses) as node:
        waits = []
        node.clock.call_at = lambda at_s, call: waits.append((at_s - node.clock.monotonic(), call))
        async with node.client(**of(ONE)) as client:
            await client.next()
            data = message.encode("utf-8", "surrogatepass") if code == 1007 else message
            await client.socket.send(data, text=code == 1007 or None)
            assert await client.closed() == code
        await settled(lambda: not node.gateway.connections)
        connecting = node.client(**of(ONE))
        entering = asyncio.ensure_future(connecting.__aenter__())
        await settled(lambda: waits)
        async with node.client(**of(OTHER)) as other:
            await other.next()
        assert not entering.done()
        [(wait_s, go_on)] = waits
        assert 0 < wait_s <= 60
        go_on()
        client = await entering
        assert (await client.next())["type"] == "welcome"
        await connecting.__aexit__(None, None, None)
