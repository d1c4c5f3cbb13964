import pytest

from gateway.conversation import Conversation
from gateway.rig import gateway


@pytest.fixture
async def node(tmp_path):
    """A listening gateway with the contract's settings, except for connection attempts."""
    async with gateway(tmp_path) as listening:
        yield listening


@pytest.fixture
async def key(node):
    """The text of a basic key."""
    return await node.key()


@pytest.fixture
def stranger():
    return Conversation()


@pytest.fixture
def alice():
    return Conversation().authenticated()
