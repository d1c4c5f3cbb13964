"""The web application of a node: REST and pages, with the health that `/readyz` reports."""

from typing import Final

from fastapi import FastAPI

from onebook import api, gateway, web
from onebook.api.documents import asyncapi_of
from onebook.api.status import base_url
from onebook.app.node import Node
from onebook.clock import Clock
from onebook.config import catalogue
from onebook.gateway.directory import ACTIVE
from onebook.nodes.gateway_node import RemoteSupervisor

SHOWN_SETTINGS: Final = ("accounts.", "gateway.")  # on the public page: no paths and addresses


def web_application(node: Node, clock: Clock) -> FastAPI:
    """REST and pages of a node."""
    settings = node.settings
    services = api.Services(
        accounts=node.accounts,
        transactions=node.transactions,
        health=lambda: health_of(node, clock.wall_ms()),
        websocket=api.WebSocketFacts(
            gateway.MESSAGES, gateway.ERRORS, gateway.ACTION_ERRORS, gateway.CLOSE_CODES
        ),
        settings=settings.api,
        query_key_allowed=settings.gateway.query_key_allowed,
        metrics_port=node.metrics_address[1] if node.metrics_address is not None else None,
        metrics_token=settings.server.metrics_token.get_secret_value(),
        clock=clock,
    )
    application = api.create_app(services)
    site = web.Site(
        openapi=application.openapi,
        asyncapi=lambda: asyncapi_of(services, web.PLACEHOLDER_URL),
        base_url=lambda request: base_url(request, services),
        exchanges=[
            web.TransactionSection(each.name, each.display, each.types)
            for each in node.transactions.exchanges
        ],
        limits=[
            web.DocumentedLimit(each.name, str(each.default), each.meaning)
            for each in catalogue(settings)
            if each.name.startswith(SHOWN_SETTINGS)
        ],
    )
    application.include_router(web.pages(site))
    return application


def health_of(node: Node, now_ms: int) -> api.HealthFacts:
    """Whether a node is ready, and what is wrong with it."""
    states = {name: node.supervisor.state(name) for name in node.supervisor.stats}
    problems = [f"{name} is {state}." for name, state in states.items() if state != ACTIVE]
    reachable = node.accounts.reachable(now_ms)
    if not reachable:
        problems.append("The database does not answer.")
    writable = node.accounts.writable()
    if not writable:
        age_s = node.accounts.meter.flush_age_s()
        problems.append(f"The database has taken no usage for {age_s:.0f} s.")
    remote = node.supervisor if isinstance(node.supervisor, RemoteSupervisor) else None
    if remote is not None:
        problems += remote.problems()
    return api.HealthFacts(
        ready=reachable and writable and (remote is None or remote.ready),
        draining=node.gateway.draining,
        active_exchanges=sum(state == ACTIVE for state in states.values()),
        problems=tuple(problems),
    )
