"""Backup and restore of a service: database, pepper, master key and settings in one archive.

A database is useless without them: no API key can be verified without the pepper, and no exchange
credentials decrypted without the master key. `archive` is the file format, `databases` copies
databases, `operations` has the two commands.
"""

from onebook.backup.operations import Backup, back_up, restore

__all__ = ["Backup", "back_up", "restore"]
