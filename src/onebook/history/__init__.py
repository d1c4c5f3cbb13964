"""History of order books: everything that the books applied, in Parquet files.

`recorder` collects what books apply, `writer` makes files of it, `format` has their schema,
`folder` their names, and `reader` rebuilds books of a past moment. `onebook.history(...)` is
`library.history.history`, so this package can be called; needs the extra `onebook[history]`.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    """A package that is also the function of its name in the public interface."""

    def __call__(self, *args: Any, **options: Any) -> Any:
        return import_module("onebook.library.history").history(*args, **options)


sys.modules[__name__].__class__ = _Callable
