"""The Python client: live merged books in a few lines.

    async for view in watch("ws://127.0.0.1:8000/api/v1/ws", key, ["BTC/USDT"], depth=10):
        if view.live:
            print(view.bids[0].price, view.asks[0].price, view.bids[0].exchanges)
        else:
            print(view.problem)

It imports nothing of the server and can be copied out of it.
"""

from onebook.client.failures import Problem, Refused, ServiceError, Unavailable
from onebook.client.view import Level, View
from onebook.client.watch import watch

__all__ = ["Level", "Problem", "Refused", "ServiceError", "Unavailable", "View", "watch"]
