"""`onebook serve`: run a node."""

from pathlib import Path
from typing import Annotated

import typer

from onebook import app, config
from onebook.cli.common import reported, run
from onebook.cli.operator import ConfigFile

EXIT_USAGE_LOST = 1  # usage could be written neither to the database nor beside it


@reported
def serve_command(
    settings: ConfigFile = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on; 0 takes a free one.")] = None,
    db: Annotated[str | None, typer.Option(help="Database, as store.url in the settings.")] = None,
    exchange: Annotated[
        list[str] | None, typer.Option("--exchange", "-e", help="Use only this one; repeatable.")
    ] = None,
    role: Annotated[
        str | None, typer.Option(help="all, feeds or gateway: one of several nodes.")
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="PEM certificate chain.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="PEM key of the certificate.")] = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error.")] = None,
) -> None:
    """Run the service until it is told to stop.

    Example: onebook serve --config onebook.toml --port 8080
    """
    flags = {
        "server": {"host": host, "port": port, "tls_cert_file": tls_cert, "tls_key_file": tls_key},
        "store": {"url": db},
        "feeds": {"exchanges": exchange or None},
        "node": {"role": role},
        "log": {"level": log_level},
    }

    def read() -> config.Settings:
        return config.load(settings, overrides=flags)

    if run(app.serve(read(), reread=read)):
        raise typer.Exit(EXIT_USAGE_LOST)
