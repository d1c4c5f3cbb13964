"""Everything in deploy/ is checked by the tool that reads it, if installed."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from alerts.promtool import needed, run
from alerts.test_rules import declared
from e2e.test_tls import Authority
from onebook.config import GatewaySettings, ServerSettings, Settings, catalogue
from onebook.config.settings import ENV_DELIMITER, ENV_PREFIX
from onebook.http.server import FILES_RESERVE
from onebook.http.socket_limits import PROBES_MAX

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
DASHBOARD = json.loads((DEPLOY / "grafana" / "onebook.json").read_text())
PANELS = [each for each in DASHBOARD["panels"] if each["type"] != "row"]
EXPRESSIONS = [target["expr"] for panel in PANELS for target in panel["targets"]]
ONEBOOK = Path(sys.executable).with_name("onebook")
UNITS = sorted(path.name for path in (DEPLOY / "systemd").iterdir())
TOOL_S = 60


def tool(*words, **options):
    """Run a program; skip if it is not installed."""
    path = shutil.which(words[0])
    if path is None:
        pytest.skip(f"{words[0]} is not installed")
    return subprocess.run(
        [path, *map(str, words[1:])],
        capture_output=True,
        text=True,
        timeout=TOOL_S,
        check=False,
        **options,
    )


def test_the_units_are_sound(tmp_path):
    for name in UNITS:
        text = (DEPLOY / "systemd" / name).read_text()
        (tmp_path / name).write_text(text.replace("/opt/onebook/bin/onebook", str(ONEBOOK)))
    found = tool("systemd-analyze", "verify", "--man=no", *(tmp_path / name for name in UNITS))
    ours = [line for line in found.stderr.splitlines() if "onebook" in line]
    assert ours == []


def test_the_commands_of_a_node_have_its_settings_and_secrets(tmp_path):
    secret = "postgresql://u:a$b;c&d@h/n?x=y"
    (tmp_path / "environment").write_text(
        f"# a comment\n\nONEBOOK_STORE__URL='{secret}' \nONEBOOK_TRANSACTIONS__MASTER_KEY=abc="
    )
    text = (DEPLOY / "onebook").read_text().replace("/etc/onebook", str(tmp_path))
    account = 'setpriv --reuid=onebook --regid=onebook --init-groups /opt/onebook/bin/onebook "$@"'
    assert account in text
    text = text.replace(account, 'env "$@"').replace("/opt/onebook/bin/python", sys.executable)
    found = subprocess.run(
        ["sh", "-c", text], capture_output=True, text=True, check=True, env={"PATH": "/bin"}
    )
    lines = found.stdout.splitlines()
    assert f"ONEBOOK_STORE__URL={secret}" in lines
    assert "ONEBOOK_TRANSACTIONS__MASTER_KEY=abc=" in lines
    assert f"ONEBOOK_CONFIG={tmp_path}/onebook.toml" in lines
    assert "XDG_DATA_HOME=/var/lib" in lines


def test_the_service_is_exposed_to_little():
    words = ("security", "--offline=true", "--threshold=20")
    found = tool("systemd-analyze", *words, DEPLOY / "systemd" / "onebook.service")
    if "unrecognized option" in found.stderr:
        pytest.skip("this systemd cannot look at a unit offline")
    assert found.returncode == 0, found.stdout[-300:]


def test_units_and_containers_wait_for_the_drain_and_allow_enough_files():
    gateway, server = GatewaySettings(), ServerSettings()
    stop_s = gateway.drain_s + Settings().accounts.final_flush_timeout_s
    files = gateway.connections_max + server.http_connections_max
    files += PROBES_MAX + FILES_RESERVE
    unit = (DEPLOY / "systemd" / "onebook.service").read_text()
    compose = (DEPLOY / "docker" / "compose.yaml").read_text()
    for text, stop, limit in (
        (unit, r"^TimeoutStopSec=(\d+)$", r"^LimitNOFILE=(\d+)$"),
        (compose, r"stop_grace_period: (\d+)s", r"nofile: (\d+)"),
    ):
        assert int(re.search(stop, text, re.MULTILINE).group(1)) >= stop_s + 5
        assert int(re.search(limit, text, re.MULTILINE).group(1)) >= files


def test_the_commands_of_the_units_exist():
    from onebook.cli.commands import COMMANDS

    texts = [(DEPLOY / "systemd" / name).read_text() for name in UNITS]
    named = set(re.findall(r"/bin/onebook (\w+)", " ".join(texts)))
    assert named == {"serve", "config", "backup"}
    assert named <= COMMANDS.keys()


def test_every_metric_of_the_dashboard_exists():
    named = {
        re.sub(r"_(count|sum|bucket)$", "", name)
        for name in re.findall(r"\bonebook_\w+", " ".join(EXPRESSIONS))
    }
    assert named - declared() == set()


@needed
def test_promtool_accepts_every_expression_of_the_dashboard(tmp_path):
    texts = [
        each.replace("$__rate_interval", "5m").replace("$instance", ".*") for each in EXPRESSIONS
    ]
    rules = [{"record": f"panel:{number}", "expr": text} for number, text in enumerate(texts)]
    file = tmp_path / "rules.json"
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    done = run("check", "rules", file)
    assert done.returncode == 0, done.stdout + done.stderr


def test_panels_have_names_of_their_own_and_do_not_overlap():
    assert len({each["title"] for each in PANELS}) == len(PANELS)
    assert len({each["id"] for each in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    taken = set()
    for each in DASHBOARD["panels"]:
        place = each["gridPos"]
        cells = {
            (place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])
        }
        assert not cells & taken, each["title"]
        taken |= cells


@needed
def test_promtool_accepts_the_configuration(tmp_path):
    shutil.copytree(DEPLOY / "prometheus", tmp_path / "prometheus")
    done = run("check", "config", tmp_path / "prometheus" / "prometheus.yml")
    assert done.returncode == 0, done.stdout + done.stderr


def test_nginx_accepts_its_example(tmp_path):
    if shutil.which("nginx") is None:
        pytest.skip("nginx is not installed")
    certificate, key = Authority(tmp_path, "example").vouch()
    text = (DEPLOY / "nginx" / "onebook.conf").read_text()
    for pattern, path in (("fullchain", certificate), ("privkey", key)):
        text = re.sub(rf"\S+{pattern}\.pem", str(path), text)
    text = text.replace("/var/log/nginx/", f"{tmp_path}/")
    (tmp_path / "onebook.conf").write_text(text)
    (tmp_path / "nginx.conf").write_text(
        f"pid {tmp_path}/pid; error_log {tmp_path}/error.log;\nevents {{}}\n"
        f"http {{ include {tmp_path}/onebook.conf; }}\n"
    )
    done = tool("nginx", "-t", "-p", tmp_path, "-c", tmp_path / "nginx.conf")
    assert done.returncode == 0, done.stderr


def test_caddy_accepts_its_example():
    file = DEPLOY / "caddy" / "Caddyfile"
    done = tool("caddy", "validate", "--adapter", "caddyfile", "--config", file)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("files", [["compose.yaml"], ["compose.yaml", "compose.postgres.yaml"]])
def test_compose_accepts_its_files(files):
    if shutil.which("docker") is None or tool("docker", "compose", "version").returncode:
        pytest.skip("docker compose is not installed")
    words = [word for name in files for word in ("--file", DEPLOY / "docker" / name)]
    environment = {"POSTGRES_PASSWORD": "a password", "PATH": "/usr/local/bin:/usr/bin:/bin"}
    done = tool("docker", "compose", *words, "config", "--quiet", env=environment)
    assert done.returncode == 0, done.stderr


COMPOSE = sorted(DEPLOY.rglob("compose*.y*ml"))


@pytest.mark.parametrize("file", COMPOSE, ids=lambda file: f"{file.parent.name}/{file.name}")
def test_compose_publishes_ports_on_loopback_alone(file):
    """Docker publishes past the host's firewall, and no container has TLS."""
    services = pytest.importorskip("yaml").safe_load(file.read_text())["services"]
    published = [port for each in services.values() for port in each.get("ports", ())]
    assert [port for port in published if not str(port).startswith("127.0.0.1:")] == []
    assert not any(each.get("network_mode") == "host" for each in services.values())


def test_nats_and_postgresql_of_many_nodes_are_out_of_reach_and_have_passwords():
    file = DEPLOY / "many-nodes" / "compose.yml"
    loaded = pytest.importorskip("yaml").safe_load(file.read_text())
    inside = {name for name, each in loaded["networks"].items() if (each or {}).get("internal")}
    services = loaded["services"]
    for name in ("nats", "postgres"):
        assert "ports" not in services[name]
        assert set(services[name]["networks"]) <= inside
    for name, each in services.items():
        if name not in ("nats", "postgres"):
            assert set(each["networks"]) == {"default", *inside}
            assert each["environment"]["ONEBOOK_NATS__PASSWORD"].startswith("${NATS_PASSWORD:?")
    assert services["nats"]["command"] == ["--user", "onebook", "--pass", "${NATS_PASSWORD}"]
    assert "POSTGRES_PASSWORD" in services["postgres"]["environment"]


def test_the_image_gets_all_that_the_build_needs():
    """The files that the Dockerfile copies exist and are not in .dockerignore."""
    text = (DEPLOY / "docker" / "Dockerfile").read_text()
    allowed = re.findall(r"^!(\S+)", (ROOT / ".dockerignore").read_text(), re.MULTILINE)
    copied = [
        name
        for line in re.findall(r"^COPY (?!--from)(.*) \S+$", text, re.MULTILINE)
        for name in line.split()
    ]
    assert sorted(copied) == sorted(allowed)
    assert all((ROOT / name).exists() for name in copied)


def test_the_image_owns_every_directory_that_is_mounted():
    """The node is not root: a volume on a directory missing from the image is not writable."""
    image = (DEPLOY / "docker" / "Dockerfile").read_text()
    made = re.search(r"install --directory --owner onebook .* 0700 (.+)$", image, re.MULTILINE)
    one = (DEPLOY / "docker" / "compose.yaml").read_text()
    many = (DEPLOY / "many-nodes" / "compose.yml").read_text()
    mounted = re.findall(r"^ +- \w+:(/\w+)$", one, re.MULTILINE)
    for volumes in re.findall(r'8000"\]\n +volumes: \[(.+)\]', many):
        mounted += re.findall(r':(/\w+)"', volumes)
    assert set(mounted) == {"/data", "/secrets", "/usage"}
    assert made is not None
    assert set(mounted) <= set(made[1].split())


def test_the_image_has_the_packages_of_every_role():
    image = (DEPLOY / "docker" / "Dockerfile").read_text()
    extras = re.search(r'"/build\[(.+)\]"', image)
    assert extras is not None
    assert {"server", "postgres", "nats"} <= set(extras[1].split(","))


@pytest.mark.parametrize("kind", ["nginx/onebook.conf", "caddy/Caddyfile", "docker/Dockerfile"])
def test_the_examples_name_settings_that_exist(kind):
    known = {each.name for each in catalogue()}
    text = (DEPLOY / kind).read_text()
    dotted = set(re.findall(r"\b(?:gateway|server|transactions|accounts)\.[a-z_]+", text))
    variables = {
        name.removeprefix(ENV_PREFIX).lower().replace(ENV_DELIMITER, ".")
        for name in re.findall(rf"{ENV_PREFIX}\w+", text)
    }
    assert (dotted | variables) - known == set()
