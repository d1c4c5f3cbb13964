import contextlib, os
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from onebook.client import Onebook

year_ago = datetime.now(UTC) - timedelta(days=365)
fees: dict[str, Decimal] = defaultdict(Decimal)
with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C ends it
    with Onebook(os.environ["ONEBOOK_URL"], os.environ["ONEBOOK_KEY"]) as client:
        for record in client.transactions("bybit", ["trades"], start=year_ago, page_records=10_000):
            for fee in record["fees"]:
                fees[fee["currency"]] += Decimal(fee["amount"])  # exact: text in the record
    for currency, amount in fees.items():
        print(currency, amount)
