"""Backup and restore of a service: database, pepper, master key and settings in one archive.

The three belong together: without its pepper a database knows no key, without its master key it
has no exchange credentials. `archive` is the file, `databases` copies what is in a database,
`operations` are the two commands.
"""

from onebook.backup.operations import Backup, back_up, restore

__all__ = ["Backup", "back_up", "restore"]
