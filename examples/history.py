import contextlib, json, os, pathlib
from datetime import UTC, datetime, timedelta
from onebook.client import Onebook

state = pathlib.Path("cursor.json")
saved = json.loads(state.read_text()) if state.exists() else {"end": None, "cursor": None}
if saved["end"] and not saved["cursor"]:
    raise SystemExit("history.jsonl is complete; without cursor.json the next run starts anew")
end = saved["end"] or int(datetime.now(UTC).timestamp() * 1_000)
options = {"cursor": saved["cursor"]} if saved["cursor"] else {}
start = datetime.fromtimestamp(end / 1_000, UTC) - timedelta(days=365)

client = Onebook(os.environ["ONEBOOK_URL"], os.environ["ONEBOOK_KEY"])
with client, contextlib.suppress(KeyboardInterrupt):  # Ctrl-C ends it
    pages = client.transaction_pages("bybit", ["deposits", "trades"], start=start, end=end, **options)
    for page in pages:
        with open("history.jsonl", "a") as file:
            for record in page.records:
                file.write(json.dumps(record, default=str) + "\n")
        state.write_text(json.dumps({"end": end, "cursor": page.next_cursor}))
        print(len(page.records), "records;", "done" if page.next_cursor is None else "more")
