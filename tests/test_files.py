"""Files are read up to a limit; unreadable TOML is one of two errors."""

import errno
from decimal import Decimal
from pathlib import Path

import pytest

from onebook.files import TEXT_BYTES_MAX, read_bounded, read_toml


def test_a_file_is_as_long_as_allowed_and_not_a_byte_longer(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    assert read_bounded(path, 5) == b"12345"
    with pytest.raises(OSError, match="longer than 4 bytes") as raised:
        read_bounded(path, 4)
    assert (raised.value.errno, raised.value.filename) == (errno.EFBIG, str(path))


def test_a_device_without_an_end_is_read_to_the_bound_only() -> None:
    with pytest.raises(OSError, match=f"longer than {TEXT_BYTES_MAX:,} bytes"):
        read_bounded(Path("/dev/zero"))


@pytest.mark.parametrize(
    "content",
    [
        *(b"a", b"\xff", b"a = " + b"[" * 20_000, b"a = " + b"9" * 5_000, b"a = " + b"{a=" * 9_000),
        *(b"a." * 90_000 + b"a = 1", b"'a' . " * 90_000 + b"a = 1"),
    ],
)
def test_what_is_no_toml_is_a_value_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file.toml"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"."):
        read_toml(path)


def test_a_number_that_the_caller_cannot_make_is_a_value_error(tmp_path: Path) -> None:
    path = tmp_path / "file.toml"
    path.write_text("a = 0.5\nb = 1e5\n")
    assert read_toml(path, parse_float=Decimal) == {"a": Decimal("0.5"), "b": Decimal("1e5")}

    def no_number(text: str) -> Decimal:
        return 1 / Decimal(0)

    with pytest.raises(ValueError, match="out of range"):
        read_toml(path, parse_float=no_number)
