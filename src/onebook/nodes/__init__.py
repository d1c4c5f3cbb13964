"""Several nodes as one service: feeds nodes publish books over NATS, gateways follow them.

The state machines are sans-I/O: `wire` has the messages, `replica` follows one book, `membership`
tracks the live nodes and assigns books to them, `interest` holds the gateways' subscriptions,
`handover` the books of a feeds node. `nats` is the connection; `feeds_node` and `gateway_node`
drive the two sides. Nothing is stored: a starting node requests the state it needs.
"""
