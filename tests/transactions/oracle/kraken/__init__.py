"""An oracle of Kraken accounts: random rows of both ledgers, and the records that they must become.

Independent of the simulated account and of the adapter; what it expects is what the exchange's
documentation and recorded rows say.
"""
