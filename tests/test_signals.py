"""A signal calls all its subscribers, in order."""

from onebook.signals import Signal


def test_subscribers_are_called_in_order_with_what_happened():
    signal, heard = Signal(), []
    signal(0)
    signal.subscribe(lambda number: heard.append(("first", number)))
    signal.subscribe(lambda number: heard.append(("second", number)))
    signal(1)
    assert heard == [("first", 1), ("second", 1)]


def test_a_subscriber_added_within_a_call_gets_the_next():
    signal, heard = Signal(), []
    signal.subscribe(lambda: signal.subscribe(lambda: heard.append("later")))
    signal()
    assert heard == []
    signal()
    assert heard == ["later"]
