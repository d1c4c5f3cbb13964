"""The adapter protocol of the transaction service: facts, pages of records, account check.

An adapter is one package with its evidence. It contains paths, signatures, limits and row mappings;
the service (`walk`, `service`) implements windows, paging, order, deduplication, cursors and
coverage once for all exchanges.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple, Protocol, runtime_checkable

from msgspec import UNSET, Struct, UnsetType

from onebook.transactions.record import Record


class FailureReason(StrEnum):
    """Machine-readable reason of a failure."""

    AUTHENTICATION_FAILED = "authentication_failed"
    PERMISSION_DENIED = "permission_denied"
    RATE_LIMITED = "rate_limited"
    UNREACHABLE = "exchange_unreachable"
    EXCHANGE_ERROR = "exchange_error"
    UNREADABLE = "unreadable_answer"
    BUDGET_SPENT = "retry_budget_spent"
    CIRCUIT_OPEN = "circuit_open"
    NO_CREDENTIALS = "no_credentials"
    NOT_OFFERED = "not_offered"  # this kind of account lacks the endpoint
    NOT_OPENED = "product_not_opened"  # the account never used the product: nothing is missing
    LOCATION_REFUSED = "location_refused"
    NOT_COLLECTED = "not_collected"  # by this service
    EXPORT_PENDING = "export_pending"  # the exchange is making it
    EXPORT_FAILED = "export_failed"
    EXPORTS_FULL = "export_directory_full"
    COLLECTION_UNREADABLE = "collection_unreadable"  # the stored records cannot be decrypted


class SourceFailed(Exception):
    """A source cannot be read, entirely or from here on.

    Args:
        reason: A code for machines.
        message: A sentence for people, without text of the exchange.
        exchange_code: The exchange's own code, if any.
        retryable: Whether a later request may succeed.
        fatal: Whether no source of this account can be read: wrong key, bound address.
        retry_after_s: Seconds until a retry may succeed, if known.
    """

    def __init__(
        self,
        reason: FailureReason,
        message: str,
        *,
        exchange_code: int | str | None = None,
        retryable: bool = False,
        fatal: bool = False,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.exchange_code = exchange_code
        self.retryable = retryable
        self.fatal = fatal
        self.retry_after_s = retry_after_s


class PendingExport(Struct, frozen=True):
    """An export that an exchange makes on request and has not finished yet.

    Args:
        exchange: Its name in requests.
        display: Its name for people.
        name: What is exported, such as a quarter.
        requested_at: Unix ms; None before it is requested.
    """

    exchange: str
    display: str
    name: str
    requested_at: int | None


class CollectedPart(Struct, frozen=True, rename={"from_ms": "from", "to_ms": "to"}):
    """The part of a range that was answered from the collection."""

    from_ms: int
    to_ms: int


class Coverage(Struct, frozen=True, rename={"from_ms": "from", "to_ms": "to"}):
    """Coverage of the requested range by an answer, for one type.

    Args:
        from_ms: Start of the time that this answer and the earlier ones cover; null: none.
        to_ms: Newest time of this answer, which goes back in time from there.
        complete: Whether the whole requested range is covered.
        reason: Machine-readable reason why the coverage is incomplete.
        floor: Unix ms before which the exchange keeps nothing; null if no limit is known.
        omitted: Events of this type that answers never contain, and why: `complete` excludes them.
    """

    transaction_type: str
    from_ms: int | None
    to_ms: int
    complete: bool
    reason: str | None
    floor: int | None
    account: str | UnsetType = UNSET  # in answers for several accounts
    collected: CollectedPart | UnsetType = UNSET  # if a part was collected before
    omitted: str | UnsetType = UNSET


class ErrorEntry(Struct, frozen=True):
    """A type that could not be read completely."""

    transaction_type: str
    error: str
    message: str
    exchange_code: int | str | None
    retryable: bool
    account: str | UnsetType = UNSET  # in answers for several accounts


class CursorGone(Exception):
    """The exchange no longer accepts its own cursor."""


class TooOld(Exception):
    """The window reaches further back than the exchange keeps."""


class EventType(StrEnum):
    """Types of events in the terms of the proof; see `Bookkeeping.types_of`."""

    # The same on every exchange.
    LEDGER = "ledger"
    HOLDINGS = "holdings"
    DEPOSITS = "deposits"
    WITHDRAWALS = "withdrawals"
    TRANSFERS = "transfers"
    # Named differently by each exchange.
    TRADES = "trades"
    FUTURES = "futures"
    TOKENS = "leverage_tokens"


class CheckId(StrEnum):
    """Names of the checks of a verification, as in answers."""

    LEDGER_ARITHMETIC = "ledger_arithmetic"
    LEDGER_CHAIN = "ledger_chain"
    HOLDINGS = "holdings"
    ORDERS = "orders"
    SPOT_FILLS = "spot_fills"
    FUTURES_FILLS = "futures_fills"
    CLOSED_PNL = "closed_pnl"
    SETTLEMENTS = "settlements"
    DEPOSITS = "deposits"
    WITHDRAWALS = "withdrawals"
    TRANSFERS = "transfers"
    LEVERAGE_TOKENS = "leverage_tokens"
    EVENTS = "events"
    SUMS = "sums"
    READINGS = "readings"


class Unproven(Struct, frozen=True):
    """A fact that no data of the exchange can prove, with the reason."""

    what: str
    why: str


class Bookkeeping(Struct, frozen=True, kw_only=True):
    """An exchange's types and wallets by their role in the proof, and the limits of that proof.

    Args:
        trades: Its type of spot fills and orders; "" if none.
        spot: Its category of spot markets.
        contracts: Its type of each category of contracts.
        tokens: Its type of leverage tokens; "" if none.
        trading_wallet: The wallet that a deposit can credit directly and a withdrawal can debit,
            where the ledger calls that line a transfer; "" if none.
        funding_wallet: The wallet whose transfers are all listed; "" if none.
        held: The wallets whose holdings are read; None: all.
        unheld: The statement that other wallets, if any, are unproven.
        unproven: What cannot be proven of a type (or `TRADES`, `FUTURES`, `TOKENS`).
        reasons: For each check, why an unmatched entry may be harmless.
        lines_name_events: Whether each ledger line names its event in `related`, and the event's
            type in `related_type`. An event that names another one in the same way is part of it.
        disorder_ms: Ledger lines state their booking order in `ids.sequence`, and their times can
            deviate from it by up to this many ms; 0: the times are the order.
        compared: Checks made by the adapter's reader; see `reconciliation.ComparingReader`.
        without: Checks that do not apply to this exchange, besides `events`.
        sums_from_ms: For an exchange whose records have no balances: Unix ms from which all changes
            add up to the holdings, the start of its history; None: they do not add up.
        readings: Whether holdings of several times are known and the changes between them add up.
        withheld: By type, data that a proof needs and the exchange does not provide.
    """

    trades: str = ""
    spot: str = "spot"
    contracts: Mapping[str, str] = {}
    tokens: str = ""
    trading_wallet: str = ""
    funding_wallet: str = ""
    held: frozenset[str] | None = frozenset()
    unheld: Unproven | None = None
    unproven: tuple[tuple[str, Unproven], ...] = ()
    reasons: Mapping[CheckId, str] = {}
    lines_name_events: bool = False
    disorder_ms: int = 0
    compared: frozenset[CheckId] = frozenset()
    without: frozenset[CheckId] = frozenset()
    sums_from_ms: int | None = None
    readings: bool = False
    withheld: Mapping[str, str] = {}

    def types_of(self, name: str) -> frozenset[str]:
        """The exchange's types for a type of the proof; any one of them suffices."""
        own: dict[str, frozenset[str]] = {
            EventType.TRADES: frozenset({self.trades} - {""}),
            EventType.FUTURES: frozenset(self.contracts.values()),
            EventType.TOKENS: frozenset({self.tokens} - {""}),
        }
        return own.get(name, frozenset({name}))

    def word(self, name: str) -> str:
        """The word used in requests."""
        own: dict[str, str] = {EventType.TRADES: self.trades, EventType.TOKENS: self.tokens}
        return own.get(name, name)

    def type_of(self, category: str) -> str:
        """The type of events in a category of markets; "" if the exchange has none."""
        return self.trades if category == self.spot else self.contracts.get(category, "")


class Environment(StrEnum):
    """Environment of an account; keys of one environment are invalid in the other."""

    MAINNET = "mainnet"
    TESTNET = "testnet"
    DEMO = "demo"  # play money, on the live exchange's hosts

    @property
    def option(self) -> str:
        """The option that selects it in a command line, after a space; "" for the mainnet."""
        return "" if self is Environment.MAINNET else f" --{self.value}"


class CredentialField(Struct, frozen=True):
    """One field of an exchange's credentials, as the operator enters it.

    Args:
        name: `api_key`, `secret`, or the exchange's own, such as `passphrase`.
        label: Its name in prompts; may end with a note in parentheses.
        from_file: Whether it may be the content of a key file.
        optional: Whether it may be empty, such as a second key for another product.
        secret: Whether it is hidden in prompts and outputs.
        choices: The only permitted values; any value if empty.
        follows: The field that it completes: required with that field, and not requested without.
    """

    name: str
    label: str
    from_file: bool = False
    optional: bool = False
    secret: bool = True
    choices: tuple[str, ...] = ()
    follows: str = ""

    @property
    def name_alone(self) -> str:
        """The label without its note, for errors."""
        return self.label.partition(" (")[0]


KEY_FIELD: Final = CredentialField("api_key", "API key")
SECRET_FIELD: Final = CredentialField("secret", "API secret")
PASSPHRASE_FIELD: Final = CredentialField("passphrase", "API passphrase")
# For exchanges whose host depends on the account's region; `check` can find it.
HOST_FIELD: Final = CredentialField("host", "Region", optional=True, secret=False)


class AdapterEntry(Struct, frozen=True):
    """Public facts of an exchange.

    Args:
        name: Its id, the value of `exchange` in requests.
        display: Its name for people.
        types: Its own transaction types, in the order of the documentation.
        sources_by_type: The sources of every accepted type, the exchange's own or unified.
        default: The types of a request that names none: all except `ledger`, which shows the same
            events again, and `holdings`, which are not events.
        hosts: The base URL of each host by its name, by environment; the first is the default.
        bookkeeping: How it books events, for reconciliation.
        singular: The documented singular of its types, where it differs from the type.
        fields: The fields of its credentials; always includes `api_key` and `secret`.
        advice: The permissions that the operator should give the key, in a sentence or two.
        omitted: Events of a type that answers never contain, and why, in a sentence or two.
        reference: The page of `docs/reference` about its rows, without the suffix.
    """

    name: str
    display: str
    types: tuple[str, ...]
    sources_by_type: Mapping[str, tuple[str, ...]]
    default: tuple[str, ...]
    hosts: Mapping[Environment, Mapping[str, str]]
    bookkeeping: Bookkeeping = Bookkeeping()
    singular: Mapping[str, str] = {}
    fields: tuple[CredentialField, ...] = (KEY_FIELD, SECRET_FIELD)
    advice: str = ""
    omitted: Mapping[str, str] = {}
    reference: str = "transactions"

    def body(self) -> dict[str, Any]:
        """Its documented entry in the list of exchanges."""
        demo = {"demo_available": True} if Environment.DEMO in self.hosts else {}
        return demo | {
            "exchange_name": self.name,
            "display_name": self.display,
            "supported_transaction_types": list(self.types),
            "requires_passphrase": self.requires_passphrase,
            "testnet_available": Environment.TESTNET in self.hosts,
            "documentation_url": f"/docs#tag-{self.name}",
        }

    @property
    def summing(self) -> tuple[str, ...]:
        """The types whose primary records add up to the change of every balance.

        Interest, airdrops and conversions have no record except their ledger line.
        """
        return (*self.default, *({EventType.LEDGER.value} & self.sources_by_type.keys()))

    @property
    def requires_passphrase(self) -> bool:
        """Whether its credentials have a passphrase."""
        return PASSPHRASE_FIELD.name in (field.name for field in self.fields)


class Source(Struct, frozen=True, kw_only=True):
    """One endpoint with fixed parameters, read by a walker.

    Args:
        name: Unique within its exchange.
        type: The exchange type that it serves.
        window_ms: The longest time range of one request; 0 for a snapshot without time.
        grain_ms: The exchange compares times at this precision.
        lag_ms: Maximum by which a record's own time is later than the time that the filter uses.
        keeps_ms: Retention at the exchange; None if unknown.
        begins_ms: Unix ms before which there are no records.
        ends_ms: Unix ms after which there are no records; None if it has no end.
        page_rows: Rows of a full page.
        page_rows_least: Size to which pages may shrink without notice: a page with fewer rows is
            certainly the last. 0: a short page proves nothing (the query is filtered).
        untimed: Whether rows may lack a time or be out of time order. A row without a time gets the
            end of its window; the window is therefore always the same, and is passed on as a whole.
        oldest_first: Whether the first page of a window holds its oldest rows.
        ranged: Whether a query takes a time range; if not, its first page begins at the newest row,
            whatever the window.
        cursor_lasts: Whether a cursor remains valid for a client's next request: our cursor then
            contains it, and earlier pages are not requested again. Newest first only.
        needs: An optional credential field that it requires, such as a second key.
        sized: Whether a query takes a page size.
        walk: Sources with the same `walk` are views of one query that returns several types. The
            query is read once, and records of types that were not requested are dropped. Such
            sources differ only in name and type.
        join_ms: Maximum time between the rows of one event, which may be on different pages: pages
            return them as `EventRow`, and `JoiningReader.join` builds records from them. 0: each
            row is an event.
        joint: Sources with the same `joint` are joined with each other; their `join_ms` is equal.
            Also for queries that may return the same events: they are deduplicated by id, and all
            stop at a failure of one, because a retry would return events again that another one
            has delivered.
        branched: Whether it consists of several queries whose names are found at run time, such as
            wallets or symbols; see `BranchingReader`. Each branch is walked separately.
        branch: The name of such a query.
        views: The requested types of its walk; set when the source is read.
    """

    name: str
    type: str
    window_ms: int
    grain_ms: int = 1
    lag_ms: int = 0
    keeps_ms: int | None = None
    begins_ms: int = 0
    ends_ms: int | None = None
    page_rows: int = 50
    page_rows_least: int = 0
    untimed: bool = False
    oldest_first: bool = False
    ranged: bool = True
    cursor_lasts: bool = False
    needs: str = ""
    sized: bool = True
    walk: str = ""
    join_ms: int = 0
    joint: str = ""
    branched: bool = False
    branch: str = ""
    views: tuple[str, ...] = ()

    @property
    def query(self) -> str:
        """The name of its query: its walk, or its own name."""
        return self.walk or self.name


class Window(NamedTuple):
    """A half-open time range [from_ms, to_ms), and the time assigned to rows without one."""

    from_ms: int
    to_ms: int
    seen_ms: int


SNAPSHOT: Final = Window(0, 0, 0)


class EventRow(Struct, frozen=True, gc=False):
    """One row of an event that may have several.

    Args:
        key: Rows with the same key within `Source.join_ms` are one event.
        row_id: Identifies the row; a row that is read twice counts once.
        at_ms: Its time, Unix ms.
        row: The row, for `JoiningReader.join`.
    """

    key: str
    row_id: str
    at_ms: int
    row: Any


class Page(Struct, frozen=True):
    """One answer of an exchange.

    Args:
        records: Records of rows that are complete events, in the exchange's order.
        rows: Number of rows.
        cursor: Cursor of the next page; "" at the end.
        unreadable: Number of rows that could not be mapped; they are in `records` as `other`.
        kept_from_ms: Unix ms before which, according to the answer, the exchange has dropped rows.
        hidden_before_ms: Unix ms before which the key cannot see rows.
        hidden_after_ms: Unix ms after which the key cannot see rows.
        parts: Rows that have to be joined.
        cut: Whether the window has more rows than this page and no cursor to them; the window is
            then read again in halves.
        lack: Why rows before `kept_from_ms` are missing, if the exchange has not dropped them: an
            unfinished export.
    """

    records: list[Record]
    rows: int
    cursor: str
    unreadable: int = 0
    kept_from_ms: int | None = None
    hidden_before_ms: int | None = None
    hidden_after_ms: int | None = None
    parts: list[EventRow] = []
    cut: bool = False
    lack: SourceFailed | None = None

    @property
    def oldest_ms(self) -> int | None:
        """The time of the oldest row; None without rows."""
        times = [record.timestamp for record in self.records]
        times += [part.at_ms for part in self.parts]
        return min(times, default=None)


SKIPPED_PAGE: Final = Page([], 0, "")  # of a source that cannot have records for this account


class AccountInfo(Struct, frozen=True):
    """Result of a check of credentials.

    Args:
        account_type: UNIFIED or CLASSIC.
        read_only: Whether the key can only read.
        unavailable_types: Types for which the key has no permission.
        warnings: Permissions that reading does not need, and imminent expiry.
        expires_at: Expiry of the key, Unix ms; None if it does not expire.
        found: Credential fields that the check determined, such as the host of the account.
        may_withdraw: Whether the key can withdraw funds; it is then stored only if the operator
            insists.
        may_trade: Whether the key can place or cancel orders; it is then stored only if the
            operator insists.
        owner: The exchange's id of the account, the same for all of its keys; "" if it reports
            none.
    """

    account_type: str
    read_only: bool
    unavailable_types: tuple[str, ...]
    status: str = "active"
    warnings: tuple[str, ...] = ()
    expires_at: int | None = None
    found: Mapping[str, str] = {}
    may_withdraw: bool = False
    may_trade: bool = False
    owner: str = ""


class RequestVerdict(Struct, frozen=True):
    """Result of the last signed request to an environment of an exchange.

    Args:
        at_ms: Time of the result, Unix ms.
        failure: Machine-readable reason of the failure; None if the request succeeded.
        message: The reason as a sentence for people.
    """

    at_ms: int
    failure: str | None = None
    message: str | None = None


class PageReader(Protocol):
    """Reads the pages of sources."""

    async def page(self, source: Source, window: Window, cursor: str) -> Page:
        """Fetch one page.

        Raises:
            SourceFailed: The page could not be fetched, after all retries.
            TooOld: The window reaches further back than the exchange keeps.
            CursorGone: The exchange no longer accepts the cursor.
        """
        ...


class AccountReader(PageReader, Protocol):
    """Reads one account for one request of a client; implemented by each adapter."""

    async def check(self) -> AccountInfo:
        """Fetch the account of the credentials."""
        ...


@runtime_checkable
class JoiningReader(Protocol):
    """Joins rows of one event, for sources with `join_ms`."""

    async def join(self, source: Source, groups: list[list[EventRow]]) -> Page:
        """Build records from complete groups, each sorted newest row first.

        May request further details of the events. A record has the time of one of its rows, and an
        id derived only from its rows. Of the returned page, only `records` and `unreadable` are
        used.

        Raises:
            SourceFailed: The details could not be fetched, after all retries.
        """
        ...


@runtime_checkable
class BranchingReader(Protocol):
    """Finds the branches of `branched` sources."""

    async def branches(self, source: Source) -> list[str]:
        """Return the query names of a source, such as wallets or symbols.

        Raises:
            SourceFailed: The names could not be fetched, after all retries.
        """
        ...
