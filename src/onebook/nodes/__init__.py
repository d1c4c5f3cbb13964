"""Several nodes as one service: feeds nodes publish books over NATS, gateways follow them.

The state machines are sans-I/O: `wire` and `snapshots` are the messages, `replica` follows one
book, `members` knows which nodes are alive, `placement` which of them serves a book, `demand` what
is wanted, `tenure` what a feeds node serves. `bus` is NATS; `feeds_node` and `gateway_node` are the
drivers of the two sides. Nothing here stores anything: a node that starts asks for
what it needs.
"""
