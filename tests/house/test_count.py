"""The counts of `count.py` that must be zero are zero."""

import ast
from pathlib import Path

import pytest

from house.count import (
    FIGURES,
    SHARED_LINES,
    Source,
    assigned_slots,
    duplicated_pairs,
    import_circles,
    import_share,
    imported_once,
    protocols,
    repeated_classes,
)

ROOT = Path(__file__).parents[2] / "src/onebook"
# Not a callback for others: how a simulated session writes numbers.
SLOTS = ["form"]


@pytest.fixture(scope="module")
def now():
    return Source.read(ROOT)


@pytest.mark.parametrize("figure", ["class names used twice", "import circles"])
def test_of_these_there_are_none(now, figure):
    assert FIGURES[figure](now) == []


def test_no_object_assigns_the_callbacks_of_another(now):
    assert FIGURES["callback slots assigned from outside"](now) == SLOTS


def test_the_whole_tree_is_counted(now):
    assert FIGURES["python lines"](now) > 50_000
    assert FIGURES["compiled lines"](now) > 1_000


def trees(**texts):
    return {f"{name.replace('__', '/')}.py": ast.parse(text) for name, text in texts.items()}


def test_a_protocol_and_a_file_of_one_other_are_found():
    found = trees(
        a="class P(Protocol): ...\nclass Q(typing.Protocol[T]): ...\nclass R(P): ...",
        b="from onebook.a import P\nfrom onebook import c",
        c="import onebook.a",
    )
    assert sorted(protocols(found)) == ["a.py: P", "a.py: Q"]
    assert imported_once(found) == {"c.py"}
    assert import_share(found, {"a.py": 3, "b.py": 2, "c.py": 1}) == 500


def test_a_circle_is_found_also_through_functions_types_and_packages():
    found = trees(
        a="def f():\n    from onebook import b",
        b="from onebook.c.d import thing",
        c__d="if TYPE_CHECKING:\n    import onebook.a",
        e="from onebook.a import f\nimport os",
    )
    assert import_circles(found) == [["onebook.a", "onebook.b", "onebook.c.d"]]
    assert import_circles(trees(a="from onebook.b import x", b="import os")) == []


def test_an_assigned_callback_is_found_and_one_s_own_is_not():
    own = "class A:\n    def __init__(self):\n        self.hook: Callable[[], None] = f\n"
    assert assigned_slots(trees(a=own + "        self.on_end = f")) == set()
    assert assigned_slots(trees(a=own, b="a.hook = f\na.other = f")) == {"hook"}
    assert assigned_slots(trees(b="self.a.on_end, self.n = f, 1")) == {"on_end"}


def test_names_of_classes_may_repeat_among_connectors_only():
    same = "class Control: ..."
    both = {"exchanges__okx": same, "simulator__okx": same}
    assert repeated_classes(trees(**both)) == set()
    assert repeated_classes(trees(**both, exchanges__okx_old=same)) == set()
    assert repeated_classes(trees(**both, gateway__okx=same)) == {"Control"}


def test_files_that_share_lines_of_code_in_a_row_are_a_pair():
    shared = [f"x{number} = {number}" for number in range(SHARED_LINES)]
    one, other = "\n".join(shared), "\n# Why.\n\n".join(["import os", *shared])
    assert duplicated_pairs({"a.py": one, "b.py": other}) == {("a.py", "b.py")}
    assert duplicated_pairs({"a.py": one, "b.py": "\n".join(shared[1:])}) == set()
    apart = "\n".join([*shared[:4], "y = 1", *shared[4:]])
    assert duplicated_pairs({"a.py": one, "b.py": apart}) == set()
