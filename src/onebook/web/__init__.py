"""The pages: the first page with the live book, and the documentation. No build step, no CDN.

Static files are plain ES modules and CSS; `docs.py` writes the page of the API from the OpenAPI
and AsyncAPI documents, `chapters.py` the others from the Markdown of `docs/`. What is served is
decided by `routes.py`.
"""

from onebook.web.docs import Limit, TransactionSection
from onebook.web.routes import Site, pages
from onebook.web.samples import PLACEHOLDER_URL

__all__ = ["PLACEHOLDER_URL", "Limit", "Site", "TransactionSection", "pages"]
