"""An oracle of random OKX accounts.

It shares no code with the adapter, and states what each bill must become.
"""
