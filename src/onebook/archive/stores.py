"""Where closed hours are: a folder, or an object store that `pyarrow.fs` speaks (S3, GCS, Azure).

Paths are relative to the place.
"""

import os
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow import fs

T = TypeVar("T")
R = TypeVar("R")
CHUNK_BYTES: Final = 1 << 20
STORE_THREADS: Final = 16  # requests at once, because each waits for the network
FOLDER_THREADS: Final = 4
# Columns that are not read lie between those that are; one request reads over them.
HOLE_BYTES: Final = 1 << 20


class FileStore:
    """Files of a history in a folder or an object store.

    Args:
        place: A folder, or a URL such as `s3://bucket/prefix?region=eu-central-1`.

    Raises:
        ValueError: The URL is invalid, or has credentials, which logs would show.
    """

    def __init__(self, place: str | os.PathLike[str]) -> None:
        text = os.fspath(place)
        self.remote = "://" in text
        if not self.remote:
            self.name = text
            self._files, self._base = fs.LocalFileSystem(use_mmap=True), os.path.abspath(text)
            self.threads = FOLDER_THREADS
            return
        parts = urlsplit(text)
        if "@" in parts.netloc:
            raise ValueError(
                "A store's URL must not have credentials; set AWS_ACCESS_KEY_ID and "
                "AWS_SECRET_ACCESS_KEY, or a profile."
            )
        self.name = f"{parts.scheme}://{parts.netloc}{parts.path}"
        try:
            self._files, self._base = fs.FileSystem.from_uri(text)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise ValueError(f"{self.name} is not a store that pyarrow can use: {error}") from None
        self._base = self._base.rstrip("/")
        self.threads = STORE_THREADS

    def _path(self, name: str) -> str:
        return f"{self._base}/{name}" if name else self._base

    def files(self, folder: str) -> dict[str, int]:
        """Return the bytes of each file in a folder and its folders, by path."""
        return dict(self._listed(folder, fs.FileType.File, recursive=True))

    def named(self, folder: str, name: str) -> dict[str, int]:
        """Return the bytes of each file with a name in the folders of a folder, by path."""
        paths = (f"{folder}/{each}/{name}" for each in self.folders(folder))
        found: dict[str, int] = {}
        for path in paths:
            with suppress(FileNotFoundError):
                found[path] = os.stat(self._path(path)).st_size
        return found

    def folders(self, folder: str = "") -> list[str]:
        """Return the names of the folders in a folder."""
        found = self._listed(folder, fs.FileType.Directory, recursive=False)
        return sorted(path.rpartition("/")[2] for path, _ in found)

    def _listed(
        self, folder: str, kind: fs.FileType, *, recursive: bool
    ) -> Iterator[tuple[str, int]]:
        selector = fs.FileSelector(self._path(folder), allow_not_found=True, recursive=recursive)
        start = len(self._base) + 1
        for each in self._files.get_file_info(selector):
            if each.type == kind:
                yield each.path[start:], each.size or 0

    def open(self, path: str) -> pa.NativeFile:
        """Open a file.

        Raises:
            OSError: It does not exist, or cannot be read.
        """
        return self._files.open_input_file(self._path(path))

    def fragment(self, path: str, size: int | None, dictionaries: Collection[str]) -> Any:
        """Return a Parquet file as a fragment (`pyarrow.dataset`), without reading it.

        Args:
            path: The file.
            size: Its size in bytes; None costs a store another request.
            dictionaries: Columns to read as dictionaries.
        """
        from pyarrow import dataset  # takes 30 ms to import, and folders do not need it

        holes = pa.CacheOptions(hole_size_limit=HOLE_BYTES)
        options = dataset.ParquetFragmentScanOptions(pre_buffer=True, cache_options=holes)
        kind = dataset.ParquetFileFormat(
            dictionary_columns=dictionaries, default_fragment_scan_options=options
        )
        return kind.make_fragment(self._path(path), self._files, file_size=size)

    def each(self, function: Callable[[T], R], values: Iterable[T]) -> list[R]:
        """Call a function for each value; concurrently if the files are in a store."""
        values = [*values]
        if not self.remote or len(values) < 2:
            return [function(each) for each in values]
        with ThreadPoolExecutor(self.threads, "history-read") as pool:
            return [*pool.map(function, values)]

    def read(self, path: str) -> bytes:
        """Return the bytes of a file.

        Raises:
            OSError: It does not exist, or cannot be read.
        """
        with self.open(path) as file:
            return bytes(file.read())

    def chunks(self, path: str) -> Iterator[bytes]:
        """Yield the bytes of a file in pieces.

        Raises:
            OSError: It does not exist, or cannot be read.
        """
        with self.open(path) as file:
            while chunk := file.read(CHUNK_BYTES):
                yield chunk

    def copy_from(self, folder: Path, path: str) -> None:
        """Copy a file of a folder to the same path here.

        Raises:
            OSError: It cannot be read or written.
        """
        target = self._path(path)
        if isinstance(self._files, fs.LocalFileSystem):
            self._files.create_dir(target.rpartition("/")[0])
        with (folder / path).open("rb") as file, self._files.open_output_stream(target) as copy:
            while chunk := file.read(CHUNK_BYTES):
                copy.write(chunk)
