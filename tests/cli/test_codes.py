"""Three letters for each exchange, and none twice."""

from onebook.cli.codes import LENGTH, Codes
from onebook.exchanges import NAMES


def test_every_exchange_has_a_code_of_its_own():
    codes = Codes()
    given = {name: codes.of(name) for name in NAMES}
    assert len(set(given.values())) == len(given)
    assert all(len(code) == min(LENGTH, len(name)) for name, code in given.items())
    assert all(code[0] == name[0].upper() for name, code in given.items())


def test_a_code_stays_whatever_is_asked_in_between():
    codes, others = Codes(), Codes()
    for name in sorted(NAMES, reverse=True):
        others.of(name)
    assert [codes.of(name) for name in NAMES] == [others.of(name) for name in NAMES]


def test_an_exchange_that_becomes_known_later_takes_no_code_of_another():
    codes = Codes()
    binance, binary = codes.of("binance"), codes.of("binaryx")
    assert binary != binance
    assert len(binary) == LENGTH
    assert codes.of("binaryx") == binary


def test_a_name_whose_codes_are_all_taken_stays_as_it_is():
    codes = Codes()
    assert codes.of("qqq") == "QQQ"
    assert codes.of("qqqq") == "QQQQ"
