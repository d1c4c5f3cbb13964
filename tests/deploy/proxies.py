"""The proxies of deploy/ as real processes: the shipped files with other ports and paths."""

import asyncio
import os
import re
import socket
from contextlib import asynccontextmanager
from pathlib import Path

from steady import PATIENCE_S

DEPLOY = Path(__file__).parents[2] / "deploy"
HOST = "127.0.0.1"
NAME = "books.example"
POLL_S = 0.05


def free_ports(count):
    sockets = [socket.create_server((HOST, 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


@asynccontextmanager
async def running(folder, ports, *words):
    """Run a proxy with its output in a file until its ports answer; end it afterwards."""
    with (folder / "output").open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *map(str, words), stdout=output, stderr=output, env=os.environ | {"HOME": str(folder)}
        )
    try:
        async with asyncio.timeout(PATIENCE_S):
            for port in ports:
                while True:
                    assert process.returncode is None, (folder / "output").read_text()
                    try:
                        _, writer = await asyncio.open_connection(HOST, port)
                    except OSError:
                        await asyncio.sleep(POLL_S)
                    else:
                        writer.close()
                        break
        yield
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


def nginx_files(folder, certified, plain, secure, *upstreams):
    """Write nginx's configuration from the shipped file; return the command line."""
    _, certificate, key = certified
    text = (DEPLOY / "nginx" / "onebook.conf").read_text()
    text = re.sub(r" +listen \[::\]:.*\n", "", text)
    (line,) = re.findall(r"    server 127\.0\.0\.1:8000.*;\n", text)
    lines = "".join(line.replace("127.0.0.1:8000", each) for each in upstreams)
    for old, new in (
        (line, lines),
        ("listen 80", f"listen {HOST}:{plain}"),
        ("listen 443", f"listen {HOST}:{secure}"),
        ("/var/log/nginx/", f"{folder}/"),
    ):
        assert old in text
        text = text.replace(old, new)
    for pattern, path in (("fullchain", certificate), ("privkey", key)):
        text = re.sub(rf"\S+{pattern}\.pem", str(path), text)
    (folder / "onebook.conf").write_text(text)
    folders = "".join(
        f"{kind}_temp_path {folder}/{kind};"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    # The logs of the distribution, at the level that writes most.
    (folder / "nginx.conf").write_text(
        f"daemon off; master_process off; pid {folder}/pid; error_log {folder}/error.log info;\n"
        f"events {{}}\nhttp {{ error_log {folder}/http-error.log info;\n"
        f"access_log {folder}/access.log; {folders} include {folder}/onebook.conf; }}\n"
    )
    return ("nginx", "-p", folder, "-c", folder / "nginx.conf")


def caddy_files(folder, certified, plain, secure, upstream):
    """Write Caddy's configuration from the shipped file, with debug logs; return the command."""
    _, certificate, key = certified
    text = (DEPLOY / "caddy" / "Caddyfile").read_text()
    site = f"\n{NAME}, {HOST} {{\n\tbind {HOST}\n\ttls {certificate} {key}"
    options = (
        f"admin off\n\tdebug\n\tauto_https disable_certs\n\tskip_install_trust\n"
        f"\thttp_port {plain}\n\thttps_port {secure}\n"
        f"\tdefault_bind {HOST}\n\tdefault_sni {NAME}\n"
    )
    for old, new in (
        (f"\n{NAME} {{", site),
        ("127.0.0.1:8000", upstream),
        ("\n{\n", f"\n{{\n\t{options}"),
    ):
        assert old in text
        text = text.replace(old, new, 1)
    (folder / "Caddyfile.conf").write_text(text)
    return ("caddy", "run", "--adapter", "caddyfile", "--config", folder / "Caddyfile.conf")
