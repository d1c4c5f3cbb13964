"""Access rules of the service: keys, sessions, limits and usage."""

from onebook.accounts.accounts import Accounts
from onebook.accounts.admin import Admin, NewKey
from onebook.accounts.keys import Key
from onebook.accounts.limits import Decision, RateLimiter
from onebook.accounts.pepper import Peppers, load_pepper
from onebook.accounts.sessions import RestSession
from onebook.accounts.usage import Meter, UsageReport, usage_report

__all__ = [
    "Accounts",
    "Admin",
    "Decision",
    "Key",
    "Meter",
    "NewKey",
    "Peppers",
    "RateLimiter",
    "RestSession",
    "UsageReport",
    "load_pepper",
    "usage_report",
]
