"""The generated parts of docs/performance.md: whatever stands between two markers."""

from pathlib import Path

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "performance.md"


def put(name: str, text: str) -> None:
    """Replace what stands between `<!-- name ... -->` and `<!-- /name -->`."""
    lines = DOCUMENT.read_text().splitlines()
    first = next(at for at, line in enumerate(lines) if line.startswith(f"<!-- {name}:"))
    last = lines.index(f"<!-- /{name} -->")
    DOCUMENT.write_text("\n".join([*lines[: first + 1], "", text, "", *lines[last:]]) + "\n")
