"""Operator tools: checks before a start, diagnosis, backup, and the check of exchanges."""
