"""The tables of a simulated account, one for each list that Bybit serves."""

from onebook.simulator.accounts.bybit.modes import Modes, split
from onebook.simulator.accounts.tables import HistoryTable


class AccountTables:
    """Rows of every list but the wallets' books; `former_*` hold those of the former modes."""

    def __init__(self) -> None:
        self.executions = {name: HistoryTable() for name in ("spot", "linear", "inverse")}
        self.orders = {name: HistoryTable() for name in ("spot", "linear", "inverse")}
        self.closed = {name: HistoryTable() for name in ("linear", "inverse")}
        self.deliveries = {name: HistoryTable() for name in ("linear", "inverse")}
        self.sessions = HistoryTable()
        self.former_executions: dict[str, HistoryTable] = {}
        self.former_orders: dict[str, HistoryTable] = {}
        self.former_closed: dict[str, HistoryTable] = {}
        self.former_sessions = HistoryTable()
        self.former_deliveries = HistoryTable()  # of options, which it never traded
        self.fund_ledger = HistoryTable()
        self.deposits = HistoryTable()
        self.internal_deposits = HistoryTable()
        self.withdrawals = HistoryTable()
        self.transfers = HistoryTable()
        self.universal = HistoryTable()
        self.token_orders = HistoryTable()

    def split(self, modes: Modes, to_ms: int) -> None:
        """Move the rows of former modes to the tables that the former paths read."""
        for tables, former in (
            (self.executions, self.former_executions),
            (self.orders, self.former_orders),
            (self.closed, self.former_closed),
        ):
            for category, table in tables.items():
                former[category] = split(table, modes.shown_from_ms(category, to_ms))
        self.former_sessions = split(self.sessions, modes.shown_from_ms("linear", to_ms))
