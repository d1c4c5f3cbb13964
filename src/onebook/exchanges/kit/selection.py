"""Which exchanges a list selects: names, "all", and "-name" to leave one out."""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

ALL: Final = "all"


class ExchangeSelection(NamedTuple):
    """A list of exchanges as it was asked for, each with the name we use: None where unknown."""

    everything: bool
    wanted: dict[str, str | None]
    unwanted: dict[str, str | None]

    @property
    def known(self) -> tuple[str, ...]:
        """The exchanges that are asked for by name, as we name them."""
        return tuple(dict.fromkeys(name for name in self.wanted.values() if name is not None))

    @property
    def unknown(self) -> list[str]:
        """Names that no exchange has, as they were asked for."""
        asked = (*self.wanted.items(), *self.unwanted.items())
        return [name for name, known in asked if known is None]

    def among(self, supported: Iterable[str]) -> tuple[str, ...]:
        """Return the selected exchanges, in the order of the list; those of "all" as supported.

        Raises:
            ValueError: The list leaves out all that it names.
        """
        named = supported if self.everything else self.known
        selected = tuple(name for name in named if name not in self.unwanted.values())
        if not selected:
            raise ValueError("exchanges: the list excludes every exchange that it names.")
        return selected


def select(asked: Iterable[str], resolve: Callable[[str], str | None]) -> ExchangeSelection:
    """Read a list of exchanges; `resolve` finds the name we use, None if there is none.

    Raises:
        ValueError: The list names none.
    """
    plain = {name: name.strip().lower() for name in asked}
    selection = ExchangeSelection(
        ALL in plain.values(),
        {
            name: resolve(spelled)
            for name, spelled in plain.items()
            if not spelled.startswith("-") and spelled != ALL
        },
        {name: resolve(spelled[1:]) for name, spelled in plain.items() if spelled.startswith("-")},
    )
    if not selection.everything and not selection.wanted:
        raise ValueError('exchanges: name at least one, or "all".')
    return selection
