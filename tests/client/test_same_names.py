"""The public names of the library and of the client of a service, side by side."""

import inspect
import re
from pathlib import Path

import pytest

from onebook import library, orderbook, sync
from onebook.blocking import BlockingBook, BlockingBooks
from onebook.client import AsyncOnebook, BookSession, BookView, Onebook, ServiceBook
from onebook.client.blocking import BlockingSession
from onebook.client.options import LIBRARY_OPTIONS, SubscribeOptions
from onebook.client.view import ViewSide
from onebook.library import BookSide, BookUpdate, OrderBook, OrderBooks
from onebook.library.book import ServiceOptions

TYPES = (Path(__file__).parents[2] / "clients/js/onebook.d.ts").read_text()
# Of a view alone: what the service says in its own words, and how messages are applied.
OF_A_VIEW = {
    "market_stats", "stale_exchanges", "rejected", "states", "reports", "ages", "coverage", "fills",
    "conversions", "published_fees", "timestamp", "update_number", "view", "members", "copy",
    "apply", "apply_packed", "lose", "checksum", "past",
}  # fmt: skip
OF_THE_PAST = {"proof"}  # only `onebook.history` has it
SUBSCRIBING = {"subscribe", "unsubscribe"}
PAIRS = [
    (BookUpdate, BookView, OF_A_VIEW | OF_THE_PAST),
    (BookSide, ViewSide, {name for name in dir(list) if not name.startswith("_")} | {"pair"}),
    (OrderBooks, BookSession, SUBSCRIBING),
    (OrderBook, ServiceBook, SUBSCRIBING),
    (BookSession, BlockingSession, set()),
    (OrderBooks, BlockingBooks, set()),
    (OrderBook, BlockingBook, set()),
    (AsyncOnebook, Onebook, set()),
]


def public(cls):
    """Public names of a class, its fields and the attributes that its instances set included."""
    names = {name for name in dir(cls) if not name.startswith("_")}
    fields = getattr(cls, "__dataclass_fields__", None) or getattr(cls, "__struct_fields__", ())
    names |= {name for name in fields if not name.startswith("_")}
    source = "".join(inspect.getsource(each) for each in cls.__mro__ if each.__module__ in OURS)
    found = (word.partition(" =")[0] for word in source.split("self.")[1:])
    return names | {name for name in found if name.isidentifier() and not name.startswith("_")}


OURS = {
    each.__module__ for pair in PAIRS for cls in pair[:2] for each in cls.__mro__
    if each.__module__.startswith("onebook.") and each.__module__ != "onebook.core"
}  # fmt: skip


def signature(cls, name):
    """The parameters of a method with their kinds and defaults; None of a field or property."""
    member = inspect.getattr_static(cls, name, None)
    if not callable(member):
        return None
    return [
        (each.name, each.kind, each.default)
        for each in inspect.signature(member).parameters.values()
        if each.name not in ("self", "args", "kwargs")
    ]


@pytest.mark.parametrize(("ours", "theirs", "more"), PAIRS)
def test_a_name_of_one_is_a_name_of_the_other_with_the_same_arguments(ours, theirs, more):
    assert public(theirs) - more == public(ours) - more
    for name in public(ours) - more:
        assert signature(theirs, name) == signature(ours, name), name


SPELLED = {"fill": "fills"}  # in JavaScript, and in Python


def test_a_view_in_javascript_has_the_names_of_the_one_in_python():
    (body,) = re.findall(r"^export class View \{\n(.*?)^\}", TYPES, re.DOTALL | re.MULTILINE)
    names = set(re.findall(r"^  (?:readonly )?(\w+)[:(]", body, re.MULTILINE)) - {"constructor"}
    assert {"bestBid", "bestAsk", "bids", "marketStats", "apply"} <= names
    in_python = {
        SPELLED.get(name, re.sub("[A-Z]", lambda at: f"_{at[0].lower()}", name)) for name in names
    }
    assert in_python - public(BookView) == set()


SHARED = [name for name in vars(orderbook.OrderBookState) if not name.startswith("_")]


@pytest.mark.parametrize("name", SHARED)
def test_a_name_of_the_shared_interface_is_a_name_of_both(name):
    for cls in (BookUpdate, BookView):
        assert name in public(cls)
        assert signature(cls, name) == signature(orderbook.OrderBookState, name)


@pytest.mark.parametrize("name", ["order_book", "order_books"])
def test_options_of_one_are_options_of_the_other_or_are_refused_in_a_sentence(name):
    in_process = inspect.signature(getattr(library, name)).parameters
    assert in_process.keys() == inspect.signature(getattr(sync, name)).parameters.keys()
    ours = in_process.keys() | ServiceOptions.__annotations__.keys()
    for client in (AsyncOnebook, Onebook):
        of_service = inspect.signature(getattr(client, name)).parameters
        theirs = (of_service.keys() - {"self", "options"}) | SubscribeOptions.__annotations__.keys()
        assert theirs - ours == {"fill", "encoding", "start", "speed"}
        assert ours - theirs == {"service", *LIBRARY_OPTIONS}
        for option in ("exchanges", "timeout_s", *({"merged"} & in_process.keys())):
            ends = {of_service[option].default, in_process[option].default}
            assert ends <= {None, "all"} or len(ends) == 1
    with pytest.raises(TypeError, match=r"no option fill; use update\.fill"):
        getattr(library, name)("BTC/USDT", fill={"amounts": ["1"]})
    with pytest.raises(TypeError, match="no option dept"):
        getattr(library, name)("BTC/USDT", dept=3)
    client = AsyncOnebook("http://127.0.0.1:9", "key")
    with pytest.raises(TypeError, match="use order_books"):
        client.watch("BTC/USDT", merged=False)
    with pytest.raises(TypeError, match="use order_books"):
        client.order_book("BTC/USDT", merged=False)
    for option in LIBRARY_OPTIONS:
        with pytest.raises(TypeError, match=f"{option} is an option of the library"):
            getattr(client, name)("BTC/USDT", **{option: None})
