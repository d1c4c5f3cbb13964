"""The web pages: the live book and the documentation. No build step, no CDN.

Static files are plain ES modules and CSS; `docs.py` renders the API page from the OpenAPI and
AsyncAPI documents, `chapters.py` the others from the Markdown in `docs/`. `routes.py` lists the
served files.
"""

from onebook.web.docs import DocumentedLimit, TransactionSection
from onebook.web.routes import Site, pages
from onebook.web.samples import PLACEHOLDER_URL

__all__ = ["PLACEHOLDER_URL", "DocumentedLimit", "Site", "TransactionSection", "pages"]
