"""The adapter of Kraken: spot and futures, each made of its own ledger."""
