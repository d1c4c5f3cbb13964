"""`onebook serve`: run a node."""

from pathlib import Path
from typing import Annotated, Any

import typer

from onebook import app, config, metrics
from onebook.app import workers
from onebook.cli.common import reported, run
from onebook.cli.operator import ConfigFile
from onebook.ops import preflight

EXIT_USAGE_LOST = 1  # usage could be written neither to the database nor to a file


@reported
def serve_command(
    settings: ConfigFile = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on; 0: any free port.")] = None,
    db: Annotated[
        str | None, typer.Option(help="Database URL, like the setting store.url.")
    ] = None,
    exchange: Annotated[
        list[str] | None,
        typer.Option("--exchange", "-e", help="Exchange to use; repeatable. Default: all."),
    ] = None,
    role: Annotated[
        str | None, typer.Option(help="Role of this node: all, feeds, gateway or recorder.")
    ] = None,
    workers_count: Annotated[
        int | None,
        typer.Option("--workers", help="Gateway processes behind one port; 0: one process."),
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="PEM certificate chain.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="PEM key of the certificate.")] = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error.")] = None,
    worker_restarts: Annotated[
        int | None,
        typer.Option(hidden=True, help="Set by --workers: how often this process was restarted."),
    ] = None,
) -> None:
    """Run the service until it is stopped.

    Example: onebook serve --config onebook.toml --port 8080
    """
    flags: dict[str, dict[str, Any]] = {
        "server": {"host": host, "port": port, "tls_cert_file": tls_cert, "tls_key_file": tls_key},
        "store": {"url": db},
        "feeds": {"exchanges": exchange or None},
        "node": {"role": role, "workers": workers_count},
        "log": {"level": log_level},
    }

    def read() -> config.Settings:
        return preflight.load(settings, overrides=flags)

    wanted = read()
    if wanted.node.workers:
        code = run(workers.serve(wanted, file=settings, flags=flags))
        if code:
            raise typer.Exit(code)
        return
    if worker_restarts is not None:
        metrics.WORKER_RESTARTS.inc(worker_restarts)
    worker = worker_restarts is not None  # started by `node.workers`, whose gateways share one port
    announce = _announce if worker else None
    if run(app.serve(wanted, port_shared=worker, on_listening=announce, reread=read)):
        raise typer.Exit(EXIT_USAGE_LOST)


def _announce() -> None:
    """Notify the parent process of this worker that it is listening."""
    print(workers.STARTED, flush=True)
