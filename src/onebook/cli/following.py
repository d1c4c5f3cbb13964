"""Print what happens in an account, line by line, through the public WebSocket."""

import json
from contextlib import aclosing
from decimal import Decimal
from typing import Any

import typer

from onebook.client import AsyncOnebook
from onebook.client.follow import LiveTransaction


async def follow_there(
    client: AsyncOnebook,
    exchange: str | list[str],
    types: list[str],
    options: dict[str, Any],
    count: int,
) -> None:
    """Print records to the output, and states of the subscription to the error stream.

    Args:
        count: Records after which it ends; 0: never.
    """
    printed = 0
    async with client, aclosing(client.follow_transactions(exchange, types, **options)) as events:
        async for event in events:
            if event.record is None:
                typer.echo(_status_line(event), err=True)
                continue
            body = {"change": event.change, "account": event.account, "transaction": event.record}
            typer.echo(json.dumps(body, default=_number))
            printed += 1
            if printed == count:
                return


def _status_line(event: LiveTransaction) -> str:
    status = event.status or {}
    announced = [each["transaction_type"] for each in status["types"] if each["source"] == "stream"]
    words = f"announced: {', '.join(announced)}" if announced else "polling"
    return f"{event.account}: {status['state']}, {words}. {status['reason'] or ''}".rstrip()


def _number(value: object) -> float:
    """A number of a record; its exact text stands beside it."""
    assert isinstance(value, Decimal)
    return float(value)
