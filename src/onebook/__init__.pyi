from onebook import sync as sync
from onebook.library import BookUpdate as BookUpdate
from onebook.library import order_book as order_book
from onebook.library import order_books as order_books
from onebook.library import replay as replay
from onebook.library.history import history as history

__version__: str
