"""Write the evidence and the generated pages of `docs/reference`: `make reference`.

Run with the folder `tests` as working directory or on the path; needs ccxt (group `judges`).
"""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
EVIDENCE = ROOT / "src/onebook/exchanges/kit/evidence.toml"
PAGES = ROOT / "docs/reference/exchanges"
REFERENCE = ROOT / "docs/reference"
CONNECTION = REFERENCE / "connection.md"


def write() -> None:
    """Write changed pages, and remove those of removed exchanges."""
    sys.path.insert(0, str(ROOT / "tests"))
    from docs.examples import pages as shown
    from docs.examples import with_programs
    from onebook.exchanges.kit import quality
    from onebook.gateway import lifecycle
    from reference.code_pages import code_pages, index
    from reference.evidence import collected, written
    from reference.python_page import python_client

    EVIDENCE.write_text(written(collected()), encoding="utf-8")
    quality.evidence.cache_clear()
    PAGES.mkdir(exist_ok=True)
    made = pages()
    for file in PAGES.glob("*.md"):
        if file.name not in made:
            file.unlink()
    for name, text in made.items():
        (PAGES / name).write_text(text, encoding="utf-8")
    CONNECTION.write_text(lifecycle.page(), encoding="utf-8")
    for name, text in code_pages().items():
        (REFERENCE / name).write_text(text, encoding="utf-8")
    (REFERENCE / "python.md").write_text(python_client(), encoding="utf-8")
    (REFERENCE / "README.md").write_text(index(REFERENCE), encoding="utf-8")
    for page in shown():
        page.write_text(with_programs(page.read_text(encoding="utf-8")), encoding="utf-8")


def pages() -> dict[str, str]:
    """Every page by the name of its file."""
    from onebook.cli.exchange_facts import index, page
    from onebook.exchanges import EXCHANGES

    return {"README.md": index()} | {f"{name}.md": page(EXCHANGES[name]) for name in EXCHANGES}


if __name__ == "__main__":
    write()
