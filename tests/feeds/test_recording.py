"""Recordings: written files are read back; samples of other programs are read too."""

import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disks import filled, small_disk
from onebook.feeds import recording
from onebook.feeds.recording import (
    ConnectionOpened,
    Entry,
    Fetched,
    Received,
    Recorder,
    RecordingError,
    Sent,
    parse,
    read,
)

URL = "wss://ws.example.com:8443/ws/v5/public?a=b"
REST = "https://api.example.com/depth?symbol=A&limit=5"

times = st.floats(0, 4e9).filter(lambda value: "e" not in repr(value))
payloads = st.one_of(
    st.binary(max_size=40),
    st.text(max_size=40).map(str.encode),
    st.sampled_from(
        [b"", b" x ", b"b'x'", b'{"a": " header: {}"}', b"{}\n", b"\xef\xbb\xbf", b"5.5: x"]
    ),
)
entries = st.lists(
    st.one_of(
        st.builds(ConnectionOpened, times, st.just(URL)),
        st.builds(Sent, times, st.just(URL), payloads),
        st.builds(Received, times, payloads, st.booleans()),
        st.builds(Fetched, times, st.just(REST), payloads, st.just("")),
    ),
    max_size=8,
)


def record(path: Path, entries: list[Entry], **options: int) -> Recorder:
    path.unlink(missing_ok=True)
    with Recorder(path, **options) as recorder:
        for entry in entries:
            match entry:
                case ConnectionOpened(at, url):
                    recorder.opened(url, at)
                case Sent(at, url, frame):
                    recorder.frame_out(url, at, frame)
                case Received(at, frame, binary):
                    recorder.frame_in(URL, at, frame, binary=binary)
                case Fetched(at, url, body):
                    recorder.http(url, at, body)
    return recorder


def without_kind(entry: Entry) -> Entry:
    """Text that is not one plain line is read back as binary, with the same bytes."""
    return entry._replace(binary=False) if isinstance(entry, Sent | Received) else entry


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("recordings")


@given(entries=entries)
def test_what_is_written_is_read_again(folder: Path, entries: list[Entry]) -> None:
    path = folder / "round.trip"
    recorder = record(path, entries)
    assert list(map(without_kind, read(path))) == list(map(without_kind, entries))
    assert recorder.bytes == path.stat().st_size
    assert recorder.frames == sum(isinstance(entry, Received) for entry in entries)
    assert not recorder.full


def test_text_stays_text_and_binary_stays_binary(tmp_path: Path) -> None:
    path = tmp_path / "r"
    written: list[Entry] = [
        ConnectionOpened(1.5, URL),
        Sent(2.0, URL, b"ping"),
        Received(2.25, '{"a":"ä"}'.encode()),
        Received(3.0, b"{}", True),
        Received(3.0, b"\x1f\x8b\x00", True),
    ]
    record(path, written)
    assert read(path) == written
    assert path.read_text() == (
        f"{URL} <-> 1.5\n{URL} <- 2.0: ping\n"
        '2.25: {"a":"ä"}\n'
        "3.0: b'{}'\n"
        "3.0: b'\\x1f\\x8b\\x00'\n"
    )


def test_a_body_may_stand_on_its_own_lines_and_have_a_header() -> None:
    lines = [
        f"{REST} -> 1.0: ",
        "[1,",
        "",
        '2] header: {"X": "1"}',
        f'{REST} -> 2.0: {{"a":" header: no"}}',
        "3.0: pong",
        f"{REST} -> 4.0: b'x'",
    ]
    assert list(parse(lines)) == [
        Fetched(1.0, REST, b"[1,\n2]", '{"X": "1"}'),
        Fetched(2.0, REST, b'{"a":" header: no"}'),
        Received(3.0, b"pong"),
        Fetched(4.0, REST, b"x"),
    ]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("nonsense", "not a line of a recording"),
        ("wss://x <-> soon", "not a line of a recording"),
        ("1.0: b'open", "line 2"),
        ("1.0: b'a'.x", "line 2"),
        ("1.0: b'a' if 1 else 2", "line 2"),
        ("1.0: b'a', 1", "not a bytes literal"),
        ("1.0: b'a' " + "(" * 20_000, "not a bytes literal"),
        (r"1.0: b'\xg0'", "not a bytes literal"),
        ("1.0: b'ä'", "not a bytes literal"),
        ("1618678132350.5: x", "a time that is not in Unix seconds"),
        ("9" * 400 + ": x", "a time that is not in Unix seconds"),
        ("wss://[x <-> 1.0", "line 2: Invalid IPv6"),
        ("wss://x:99999 <-> 1.0", "Port out of range"),
        ("wss:// <-> 1.0", "not a line of a recording"),
        ("https://:1 -> 1.0: x", "an address without a host"),
    ],
)
def test_a_bad_line_is_named_with_its_number(line: str, words: str) -> None:
    with pytest.raises(RecordingError, match=r"^my\.file, line 2: ") as error:
        list(parse(["1.0: fine\n", line], name="my.file"))
    assert words in str(error.value)


def test_a_body_of_many_lines_is_joined_in_time_that_its_length_allows() -> None:
    count = 200_000
    [body] = parse([f"{REST} -> 2.0: x", *["y"] * count])
    assert body == Fetched(2.0, REST, b"x" + b"\ny" * count)


def test_a_header_that_cannot_be_read_belongs_to_the_body() -> None:
    text = "x header: " + "[" * 20_000
    assert list(parse([f"{REST} -> 2.0: {text}"])) == [Fetched(2.0, REST, text.encode())]


def test_lines_without_an_end_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "LINE_CHARACTERS_MAX", 100)
    monkeypatch.setattr(recording, "FILE_CHARACTERS_MAX", 1_000)
    (tmp_path / "line").write_text("1.0: " + "x" * 100)
    with pytest.raises(RecordingError, match="a line is longer than 100"):
        read(tmp_path / "line")
    (tmp_path / "file").write_text("1.0: x\n" * 200)
    with pytest.raises(RecordingError, match="longer than 1,000 characters"):
        read(tmp_path / "file")


def test_a_file_that_cannot_be_read_or_written_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match=r"missing cannot be read: No such file .*\.$"):
        read(tmp_path / "missing")
    (tmp_path / "latin").write_bytes(b"1.0: \xff")
    with pytest.raises(RecordingError, match=r"latin cannot be read: it is not UTF-8: .*\.$"):
        read(tmp_path / "latin")
    with pytest.raises(RecordingError, match=r"latin cannot be written: File exists\.$"):
        Recorder(tmp_path / "latin")


def test_a_recording_ends_at_a_whole_line_when_it_is_full(tmp_path: Path) -> None:
    path = tmp_path / "r"
    frames: list[Entry] = [Received(1.0, b"x" * 10) for _ in range(9)]
    recorder = record(path, frames, bytes_max=50)
    assert recorder.full
    assert len(read(path)) == 3
    assert path.stat().st_size == recorder.bytes == 48


def test_a_full_disk_ends_a_recording_at_a_whole_line_and_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "x.rec"
    with small_disk(tmp_path / "disk") as disk, Recorder(disk / "x.rec") as recorder:
        frame = b"x" * 5_000
        with filled(disk, left_bytes=150_000):
            for number in range(100):
                recorder.frame_in(URL, float(number), frame)
            assert recorder.ended
            assert recorder.problem == (f"{disk}/x.rec cannot be written: No space left on device.")
        recorder.frame_in(URL, 100.0, frame)  # no hole: what ended stays ended
        recorder.close()
        path.write_bytes((disk / "x.rec").read_bytes())
    assert path.read_bytes().endswith(b"x\n")
    found = read(path)
    assert 10 < len(found) < 100
    assert [each.at for each in found] == [float(number) for number in range(len(found))]


def test_lines_are_buffered_and_a_closed_recorder_is_quiet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "BUFFER_CHARACTERS_MAX", 100)
    path = tmp_path / "r"
    recorder = Recorder(path, epoch_s=1000.0)
    recorder.frame_in(URL, 0.5, b"one")
    assert path.read_text() == ""
    recorder.frame_in(URL, 0.5, b"x" * 100)
    assert path.read_text().startswith("1000.5: one\n1000.5: xxx")
    recorder.frame_in(URL, 0.5, b"two")
    recorder.close()
    recorder.close()
    recorder.frame_in(URL, 0.5, b"three")
    assert path.read_text().endswith("1000.5: two\n")


def order_book_frames(name: str, entries: list[Entry]) -> int:
    """Count frames as the samples' README does."""
    marks = {
        "BINANCE.ws.1.0": b'"depthUpdate"',
        "OKX.ws.1.0": b'"channel":"books"',
        "KRAKEN.ws.50.0": b'"book-1000"',
        "KUCOIN.ws.1.0": b'"subject":"trade.l2update"',
        "GATEIO.ws.1.0": b'"event":"update"',
        "BITFLYER.ws.1.0": b'"channel":"lightning_board_',
        "FMFW.ws.1.0": b'"ch":"orderbook/full"',
        "POLONIEX.ws.1.0": b'"book_lv2","data"',
        "UPBIT.ws.62.0": b'"orderbook"',
    }
    frames = [entry.frame for entry in entries if isinstance(entry, Received)]
    return sum(marks[name] in frame and b'"event":"subscri' not in frame for frame in frames)


def test_every_recorded_sample_is_read(samples: Path) -> None:
    files = sorted((samples / "exchange_frames").iterdir())
    assert len(files) == 20
    for path in files:
        entries = read(path)
        lines = [line for line in path.read_text().splitlines() if line.strip()]
        assert len(entries) == len(lines), path.name
        kinds = Counter(type(entry) for entry in entries)
        if ".http." in path.name:
            assert set(kinds) == {Fetched}
            assert all(json.loads(entry.body) for entry in entries if isinstance(entry, Fetched))
        else:
            assert isinstance(entries[0], ConnectionOpened)
            assert kinds[Received] > 0


@pytest.mark.parametrize(
    ("name", "frames"),
    [
        ("BINANCE.ws.1.0", 177),
        ("OKX.ws.1.0", 290),
        ("KRAKEN.ws.50.0", 4279),  # the README counts the 10 acknowledgements too
        ("KUCOIN.ws.1.0", 3853),
        ("FMFW.ws.1.0", 880),
        ("POLONIEX.ws.1.0", 294),
        ("UPBIT.ws.62.0", 145),
        ("BITFLYER.ws.1.0", 782),
    ],
)
def test_the_samples_hold_as_many_book_frames_as_their_readme_says(
    samples: Path, name: str, frames: int
) -> None:
    assert order_book_frames(name, read(samples / "exchange_frames" / name)) == frames


def test_gzip_frames_of_the_samples_are_bytes(samples: Path) -> None:
    frames = [e for e in read(samples / "exchange_frames" / "HUOBI.ws.44.0") if type(e) is Received]
    assert all(entry.binary and entry.frame[:2] == b"\x1f\x8b" for entry in frames)
