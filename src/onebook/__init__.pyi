from onebook import sync as sync
from onebook.library import BookUpdate as BookUpdate
from onebook.library import bars as bars
from onebook.library import history as history
from onebook.library import order_book as order_book
from onebook.library import order_books as order_books
from onebook.library import replay as replay

__version__: str
