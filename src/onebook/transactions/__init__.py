"""Transactions of exchange accounts in one exact, complete, repeatable form."""
