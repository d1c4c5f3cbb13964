"""The registry counts connections and finds those of a key."""

from onebook.gateway.registry import GROWTH_STEP, ConnectionRegistry


def test_it_counts_and_finds():
    registry = ConnectionRegistry()
    for name in ("a", "b", "c"):
        registry.add(name)
    registry.join_key("key", "a")
    registry.join_key("key", "b")
    assert len(registry) == 3
    assert set(registry) == {"a", "b", "c"}
    assert set(registry.of_key("key")) == {"a", "b"}
    assert registry.of_key("other") == ()
    registry.remove("c")
    assert "c" not in registry
    assert "a" in registry


def test_it_says_when_many_connections_were_opened():
    registry, calls = ConnectionRegistry(), []
    registry.on_grown.subscribe(lambda: calls.append(len(registry)))
    for number in range(2 * GROWTH_STEP + 1):
        registry.add(number)
    assert calls == [GROWTH_STEP, 2 * GROWTH_STEP]


def test_a_key_without_connections_is_forgotten():
    registry = ConnectionRegistry()
    registry.join_key("key", "a")
    registry.join_key("key", "a")
    registry.leave_key("key", "b")
    assert dict(registry.by_key) == {"key": {"a"}}
    registry.leave_key("key", "a")
    registry.leave_key("key", "a")
    assert dict(registry.by_key) == {}


def test_connections_may_be_removed_while_all_are_visited():
    registry = ConnectionRegistry()
    for number in range(10):
        registry.add(number)
        registry.join_key("key", number)
    for number in registry:
        registry.remove(number)
    for number in registry.of_key("key"):
        registry.leave_key("key", number)
    assert not len(registry)
    assert not registry.by_key
