"""Invalid shapes and layouts."""

from typing import Any

import pytest

from onebook.core.types import (
    COLUMNS_MAX,
    NAME_BYTES_MAX,
    ChecksumLayout,
    ChecksumNumber,
    ChecksumOrder,
    LevelForm,
    LevelShape,
)


@pytest.mark.parametrize(
    "make",
    [
        lambda: LevelShape.rows(0, 0),
        lambda: LevelShape.rows(0, COLUMNS_MAX),
        lambda: LevelShape.rows(-1, 0),
        lambda: LevelShape.rows(0, 1, side=2, signed=True),
        lambda: LevelShape.objects("a", "a"),
        lambda: LevelShape.objects("", "a"),
        lambda: LevelShape.objects("a" * (NAME_BYTES_MAX + 1), "b"),
        lambda: LevelShape.objects('a"', "b"),
        lambda: LevelShape.objects("a\\", "b"),
        lambda: LevelShape.objects("é", "b"),
        lambda: LevelShape.objects(asks=LevelShape.objects(side="s")),
        lambda: LevelShape.rows(price_scale=19),
        lambda: LevelShape.rows(amount_scale=-1),
        lambda: LevelShape.rows(amount_scale=8, amount_decimals=2),
        lambda: LevelShape.group(price=0, amount=7),
        lambda: LevelShape.group(price=-1),
        lambda: LevelShape.group(amount=2**16 - 8),
        lambda: LevelShape(LevelForm.GROUP, 0, 8, amount_decimals=2),
        lambda: LevelShape.protobuf(price=0),
        lambda: LevelShape.protobuf(bids=1, asks=1),
        lambda: LevelShape.protobuf(bids=2**29),
        lambda: ChecksumLayout(-1, ChecksumOrder.IN_TURN, ChecksumNumber.TEXT),
        lambda: ChecksumLayout(10, ChecksumOrder.IN_TURN, ChecksumNumber.TEXT, "::"),
        lambda: ChecksumLayout(10, ChecksumOrder.IN_TURN, ChecksumNumber.TEXT, decimals=8),
        lambda: ChecksumLayout(10, ChecksumOrder.IN_TURN, ChecksumNumber.DIGITS, decimals=19),
    ],
    ids=range(25),
)
def test_an_impossible_shape_or_layout_cannot_be_made(make: Any) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        make()
