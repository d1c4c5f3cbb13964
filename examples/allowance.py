import os
from datetime import UTC, datetime, timedelta
from onebook.client import Onebook

with Onebook(os.environ["ONEBOOK_URL"], os.environ["ONEBOOK_KEY"]) as client:
    usage = client.usage()

left = max(usage.resets_at - datetime.now(UTC), timedelta(days=1))
print(f"used {usage.share:.2%}, renewed at {usage.resets_at:%Y-%m-%d}")
print(f"may use {usage.remaining_bytes / left.total_seconds():,.0f} bytes a second until then")
