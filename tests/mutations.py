"""Reintroduces past bugs, one at a time: a test must fail for each.

    python tests/mutations.py             # all
    python tests/mutations.py NAME ...    # some
    python tests/mutations.py --list

Each was a defect that a commit of this history repaired. `old` stands once in src/onebook, wherever
the file is by now; `new` is the defect; `test` is a test function that must fail with it. As many
run at a time as there are cores, each on a copy of the source: the working tree is never changed. A
mutation whose text is gone is reported: write it anew for the code of today.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Final, NamedTuple

ROOT = Path(__file__).parents[1]
TEST_TIMEOUT_S: Final = 60  # a test that hangs has found the defect
TIMEOUT_S: Final = 600  # of all tests of one mutation


class Mutation(NamedTuple):
    """A past bug as a change of text, and the test that detects it."""

    commit: str
    old: str
    new: str
    test: str


MUTATIONS: Final = {
    # Books and feeds
    "frame_bytes": Mutation(
        "613c6d2",
        "self.bytes_max = max(limits.frame_bytes_max, exchange.frame_bytes)",
        "self.bytes_max = limits.frame_bytes_max",
        "test_the_longest_snapshot_of_coinbase_is_a_live_book_by_default",
    ),
    "refused_best_prices": Mutation(
        "a2578bd",
        "return (SlowDown(short(event.words)), *again)",
        "return (SlowDown(short(event.words)),)",
        "test_a_request_that_is_refused_for_its_rate_is_repeated",
    ),
    "nobody_asks_the_time": Mutation(
        "dc25bd4",
        "        self._follow_clock(exchange)\n",
        "",
        "test_the_error_of_the_offset_of_a_followed_book_becomes_a_number",
    ),
    "clocks_that_stay_on_the_feeds_node": Mutation(
        "1cef57b",
        "        self._measure_clocks(heartbeat)\n",
        "",
        "test_a_gateway_knows_the_error_of_the_clocks_that_its_feeds_node_measures",
    ),
    "late_frame_of_a_removed_book": Mutation(
        "616e249",
        "late = error is None or name in self._books.trackers.left",
        "late = error is None",
        "test_a_damaged_frame_of_a_removed_book_is_late_and_costs_no_other",
    ),
    "gate_upgrade": Mutation(
        "b591c67",
        'if message.channel == SYSTEM and text_in(message.result, "type") == UPGRADE:',
        'if message.channel == SYSTEM and text_in(message.result, "type") == "":',
        "test_a_notice_of_an_upgrade_announces_the_end",
    ),
    "whitebit_without_id": Mutation(
        "27ea1af",
        "if UNKNOWN in (change.sequence, last):",
        "if False:",
        "test_frames_without_an_id_are_followed_unchained",
    ),
    "mexc_empty_push": Mutation(
        "c3cd5e3",
        "    if not levels:\n        return EXPECTED\n",
        "",
        "test_a_push_without_a_body_changes_nothing",
    ),
    "unsubscription_once": Mutation(
        "b018caa",
        "return self._late[name] % LATE_MAX == 0",
        "return False",
        "test_a_removal_that_the_exchange_does_not_hear_is_repeated",
    ),
    "coinbase_unnamed_frame": Mutation(
        "860ba1b",
        "return event if message.number is None or not named else Counted(message.number, event)",
        "return event if message.number is None else Counted(message.number, event)",
        "test_a_strange_frame_of_a_book_leaves_it_equal_or_in_doubt",
    ),
    "failed_snapshot_of_a_live_book": Mutation(
        "dfe52c4",
        "if watch.phase is not Phase.LIVE:  # the stream may have delivered the book meanwhile",
        "if True:",
        "test_a_snapshot_that_fails_when_the_book_is_live_already_changes_nothing",
    ),
    "poloniex_crossed_requests": Mutation(
        "3e3736b",
        'if message.event == "error" and message.message.startswith(SETTLED):',
        "if False:",
        "test_requests_that_crossed_refuse_nothing",
    ),
    "refused_request_in_halves": Mutation(
        "942f1ca",
        "if not (named or event.repeated) and len(asked) > 1 and self._channel.unsubscribe:",
        "if False:",
        "test_a_request_that_is_refused_as_a_whole_is_repeated_in_halves_until_one_is_alone",
    ),
    "resync_by_unsubscription": Mutation(
        "6faa502",
        "if pause is None and not self._channel.renews:",
        "if pause is None and not self._channel.unsubscribes_all:",
        "test_where_a_repeated_subscription_brings_a_snapshot_a_resync_leaves_nothing",
    ),
    "bitvavo_whole_request": Mutation(
        "56be7ba",
        "return RequestRejected(words, code=message.code, whole=True)",
        "return RequestRejected(words, code=message.code)",
        "test_a_refusal_of_one_market_leaves_the_others_of_its_request",
    ),
    "hyperliquid_greeting": Mutation(
        "065baba",
        "    expected=(GREETING,),\n",
        "",
        "test_the_greeting_is_no_damaged_frame",
    ),
    "offline_while_lost": Mutation(
        "b3b5bda",
        'self.stats[instrument.exchange].trouble = ""',
        "pass",
        "test_an_exchange_without_a_wanted_book_is_in_no_trouble",
    ),
    "dropped_while_marked": Mutation(
        "8a6d1e7",
        "            for watch in self._all():\n",
        "            for watch in self.watches.values():\n",
        "test_a_book_that_is_not_wanted_once_it_is_stale_may_be_dropped_meanwhile",
    ),
    "age_of_recorded_data": Mutation(
        "779fb28",
        "if at_ms and not self._recorded:",
        "if at_ms:",
        "test_the_age_of_recorded_data_is_not_measured",
    ),
    "budget_of_unsent_requests": Mutation(
        "37fb3f2",
        "if isinstance(error, UNSENT):",
        "if False:",
        "test_a_host_that_cannot_be_connected_to_uses_no_budget",
    ),
    "renewed_subscription_refused": Mutation(
        "ddec045",
        "self._invalidate_renewed(reason, words, now)",
        "pass",
        "test_a_renewed_subscription_that_may_be_refused_by_a_rate_limit_is_no_subscription",
    ),
    "one_id_for_two_books": Mutation(
        "04b1b87",
        "if holder is None or holder is claimant:",
        "if True:",
        "test_an_id_that_two_names_are_given_is_left_and_both_are_invalid",
    ),
    "refusal_of_a_removed_book": Mutation(
        "9aaa693",
        "return (Ignored(known=True, refused=words),) if pending else (Unnamed(words),)",
        "return (Unnamed(words),)",
        "test_a_refusal_of_a_request_that_no_book_waits_for_is_about_no_other",
    ),
    "accepted_before": Mutation(
        "8505601",
        "known = self._accepted.union(event.names)",
        "known = set(event.names)",
        "test_what_was_accepted_before_may_be_omitted",
    ),
    "omitted_while_unanswered": Mutation(
        "f688562",
        "if self._channel.key(one) not in known and not self._requests.pending_for(one)",
        "if self._channel.key(one) not in known",
        "test_what_an_unanswered_request_asked_for_may_be_omitted",
    ),
    "body_of_a_removed_book": Mutation(
        "0d8ecc3",
        "self._orphans[instrument] += watch.fetching",
        "pass",
        "test_a_body_of_a_book_that_was_removed_is_not_of_the_one_that_came_back",
    ),
    "decimals_as_digits": Mutation(
        "2474db7",
        "decimals = int(decimals) if decimals.isdecimal() and len(decimals) < 3 else None",
        "decimals = int(decimals)",
        "test_decimals_that_are_no_small_number_make_no_step",
    ),
    # Views and gateway
    "late_updates_slow_the_pace": Mutation(
        "18fb317",
        "return max(stream.paced_at + stream.interval_s, stream.merged_at + MERGE_PACE_S)",
        "return max(stream.published_at + stream.interval_s, stream.merged_at + MERGE_PACE_S)",
        "test_a_late_update_does_not_slow_the_pace_by_more_than_it_must",
    ),
    "switched_off_exchange": Mutation(
        "6fd6d38",
        "return known if known in self._supervisor.in_use() else None",
        "return known",
        "test_a_name_is_resolved_to_an_exchange_in_use",
    ),
    "timer_of_a_tick_that_is_over": Mutation(
        "04d910b9",
        "sorted(each for each in self._wheel if each <= last)",
        "sorted(each for each in self._wheel if each == last)",
        "test_a_target_is_called_in_the_first_tick_after_its_time",
    ),
    "bytes_of_the_former_key": Mutation(
        "bd0cf68",
        "self._charges.charge_written(connection)",
        "pass",
        "test_bytes_that_wait_for_their_acknowledgement_are_not_charged_to_the_next_key",
    ),
    "key_shown_in_the_welcome": Mutation(
        "f6179d4",
        "known = self._accepted(command, processor.key)",
        "known = KeyVerdict(command.message_id, processor.key, processor.opened_by)",
        "test_a_rotation_with_an_overlap_closes_nothing_and_each_text_is_shown_as_sent",
    ),
    "message_of_two_types": Mutation(
        "d179493",
        "if field not in hints:",
        "if False:",
        "test_a_message_of_two_types_is_refused_in_plain_words",
    ),
    "route_without_a_limit": Mutation(
        "bd05d4ee",
        'values = ["" if each is UNSET else each for each in astuple(option)]',
        "values = [*astuple(option)]",
        "test_each_option_of_a_route_may_be_chosen_alone",
    ),
    "conversion_listed_later": Mutation(
        "e1b64a3c",
        "        self.note_complete()\n        self.on_read(exchange)\n",
        "        self.note_complete()\n",
        "test_a_view_uses_a_conversion_that_a_feeds_node_lists_later",
    ),
    "one_of_several_conversion_books": Mutation(
        "e1b64a3c",
        "                found += [each.step, *each.books.books]\n",
        "                found.append(each.step)\n",
        "test_one_of_several_books_of_a_conversion_that_is_lost_is_an_update_in_the_same_turn",
    ),
    # Accounts
    "usage_before_the_key": Mutation(
        "2f587d6",
        "sorted(counted[row.key_id].union(_beginning_in(periods, row.created_at_ms)))",
        "sorted(_beginning_in(periods, row.created_at_ms))",
        "test_usage_that_was_counted_before_a_key_was_made_is_billed",
    ),
    "usage_with_exponent": Mutation(
        "522d56f",
        "GIB_DECIMALS: Final = 4",
        "GIB_DECIMALS: Final = 6",
        "test_no_number_has_an_exponent",
    ),
    "clock_that_is_set_back": Mutation(
        "b7527a7",
        "return abs(now_ms - at_ms) < CACHE_TTL_MS",
        "return now_ms - at_ms < CACHE_TTL_MS",
        "test_freshness_counts_in_both_directions",
    ),
    "share_of_no_allowance": Mutation(
        "ea73511",
        "return self.used_bytes / self.limit_bytes if self.limit_bytes else 1.0",
        "return self.used_bytes / self.limit_bytes",
        "test_a_key_without_an_allowance_has_used_all_of_it",
    ),
    "session_on_another_node": Mutation(
        "6301fd5",
        "return abs(now_ms - read_at_ms) < CACHED_MS",
        "return abs(now_ms - read_at_ms) < 60_000",
        "test_a_session_that_went_as_the_oldest_is_over_on_another_node_within_2_s",
    ),
    "jump_over_both_marks": Mutation(
        "e0d47c0",
        "passed = [mark for mark in UsageMark if count.reported < mark <= reached]",
        "passed = [reached]",
        "test_usage_that_jumps_over_both_marks_warns_before_it_ends",
    ),
    "limits_of_a_tier": Mutation(
        "8da2efe",
        "return cls.model_fields[tier.field_name].default.model_dump() | dict(given)",
        "return given",
        "test_one_limit_of_a_tier_leaves_its_others_at_their_defaults",
    ),
    # Clients
    "repeated_cursor_in_the_client": Mutation(
        "ea73511",
        'self._repeated = page.next_cursor == self._request.get("cursor") and bool(page.records)',
        "self._repeated = False",
        "test_a_cursor_that_comes_again_is_not_followed",
    ),
    "answer_to_a_resync": Mutation(
        "0d37487",
        'if message["type"] != "exchange_status":',
        "if True:",
        "test_what_else_comes_is_no_answer_to_a_resync",
    ),
    "rejected_exchanges": Mutation(
        "512cfbc",
        'view.rejected = {each["exchange"]: each["reason"] for each in rejected}',
        "view.rejected = {}",
        "test_the_exchanges_that_do_not_list_the_symbol_are_named",
    ),
    "return_from_the_notice": Mutation(
        "23114cf",
        "max(0.0, self._reconnect_at - self._now_s())",
        "self._reconnect_at",
        "test_the_time_of_a_return_counts_from_the_notice_not_from_the_close",
    ),
    "reset_before_the_answer": Mutation(
        "23c4bd8",
        "if isinstance(error, LOST) and isinstance(cause, ConnectionError):",
        "if False:",
        "test_a_server_that_resets_the_connection_after_the_request",
    ),
    # Transactions
    "time_in_the_other_unit": Mutation(
        "fa4989f",
        "if record.timestamp < endpoint.source.begins_ms:",
        "if False:",
        "test_a_time_in_the_other_unit_is_unreadable_and_keeps_its_place",
    ),
    "failed_leverage_token": Mutation(
        "9d727b4",
        "tokens = money(token, amount) if status.moves else UNSET",
        "tokens = money(token, amount)",
        "test_a_failed_order_of_a_leverage_token_moved_nothing",
    ),
    "guessed_side": Mutation(
        "d6378a1",
        "    if side not in SIDES:\n        return None\n",
        "",
        "test_without_a_known_side_nothing_is_guessed",
    ),
    "unstated_balance": Mutation(
        "13740c0",
        'incomplete=("amount",) if balance.total is None else (),',
        "incomplete=(),",
        "test_a_balance_that_is_not_stated_says_so",
    ),
    "funding_in_tax_forms": Mutation(
        "5b32f48",
        '    "funding": Words("Other Income", "Other Fee"),\n',
        "",
        "test_cointracking_types",
    ),
    "row_seen_twice": Mutation(
        "f2aeb34",
        "if once.passes(keyed):",
        "if True:",
        "test_a_retry_repeats_nothing_that_the_collection_added",
    ),
    "same_row_of_two_queries": Mutation(
        "cb16e2b",
        "transactionId=make_id(context, kind, json.encode",
        "transactionId=make_id(context, endpoint.source.name, json.encode",
        "test_a_fill_of_two_queries_that_cannot_be_read_stands_once",
    ),
    "range_kept_in_part": Mutation(
        "29cc129",
        "if to_ms < oldest_ms:",
        "if to_ms > 0:",
        "test_a_range_of_which_something_is_kept_is_answered",
    ),
    "unreadable_rows_uncounted": Mutation(
        "82eb4d9",
        "UNREADABLE.labels(exchange).inc(unreadable - self._unreadable_counted)",
        "pass",
        "test_a_row_that_cannot_be_read_is_not_lost_in_silence",
    ),
    "first_row_without_a_time": Mutation(
        "fbda926",
        "    before = window.seen_ms\n",
        "    before = next((at for at in times if at is not None), None)\n",
        "test_the_first_of_a_page_stands_where_the_page_begins",
    ),
    "funding_line_by_its_id": Mutation(
        "4ef6ecd",
        "ids=Ids(native=native if isinstance(native, str) and native else None),",
        "ids=Ids(),",
        "test_an_unreadable_row_with_an_id_costs_no_other_row",
    ),
    "wait_for_the_master_keys": Mutation(
        "4f2eab0",
        "if time.monotonic() >= until:",
        "if False:",
        "test_a_change_that_never_ends_is_not_waited_for_for_ever",
    ),
    # Fast best prices: no defects of the past, but the ways in which the rule can be wrong
    "top_of_the_number_of_the_depth": Mutation(
        "064a685",
        "top.sequence <= self._top or top.sequence <= self.depth:",
        "top.sequence <= self._top or top.sequence < self.depth:",
        "test_the_newest_received_state_is_shown_whatever_happens_on_either_channel",
    ),
    "tops_in_order_of_arrival": Mutation(
        "064a685",
        "if self.off or top.sequence <= self._top or top.sequence <= self.depth:",
        "if self.off:",
        "test_the_newest_received_state_is_shown_whatever_happens_on_either_channel",
    ),
    "top_older_than_the_depth": Mutation(
        "064a685",
        "top.sequence <= self._top or top.sequence <= self.depth:",
        "top.sequence <= self._top:",
        "test_the_newest_received_state_is_shown_whatever_happens_on_either_channel",
    ),
    "top_that_is_not_dropped": Mutation(
        "064a685",
        "                    self._compare(book)\n                book.uncover()\n",
        "                    self._compare(book)\n",
        "test_the_newest_received_state_is_shown_whatever_happens_on_either_channel",
    ),
    "top_that_the_depth_passed_stays": Mutation(
        "064a685",
        "            if sequence < self._top:\n",
        "            if sequence <= self._top + 1:\n",
        "test_the_newest_received_state_is_shown_whatever_happens_on_either_channel",
    ),
    "top_written_into_the_depth": Mutation(
        "064a685",
        "refused = book.overlay(top.bids, top.asks, top.shape)",
        "refused = book.apply(top.bids, top.asks, top.shape)",
        "test_the_newest_received_state_is_shown_whatever_happens_on_either_channel",
    ),
    "top_of_an_unproven_counter": Mutation(
        "064a685",
        "        if not self._proven:\n            counts.unproven",
        "        if False:\n            counts.unproven",
        "test_the_newest_received_state_is_shown_whatever_happens_on_either_channel",
    ),
    "top_of_before_a_restart": Mutation(
        "064a685",
        "            self._proven = False\n            book.uncover()",
        "            book.uncover()",
        "test_the_newest_received_state_is_shown_whatever_happens_on_either_channel",
    ),
    "tops_that_are_not_compared": Mutation(
        "064a685",
        "        if book.overlay_agrees():",
        "        if True:",
        "test_two_disagreements_at_equal_numbers_end_it",
    ),
    # Numbers
    "levels_sent_twice": Mutation(
        "84b4cfc",
        "            self._before = self._now\n",
        "            pass\n",
        "test_the_delta_of_an_unchanged_merge_has_no_levels",
    ),
    # Nodes and operation
    "usage_of_a_slow_write": Mutation(
        "d127912",
        "await asyncio.to_thread(self._file.put, self._unwritten() if all_of_it else [])",
        "await asyncio.to_thread(self._file.put, [])",
        "test_usage_that_was_collected_during_a_slow_write_stays_in_the_file_after_it",
    ),
    "outage_of_the_database": Mutation(
        "698f587",
        '.UNKNOWN: "the database does not answer.",',
        '.UNKNOWN: "the credentials cannot be read.",',
        "test_readyz_names_the_database_from_the_first_second_of_its_outage",
    ),
    "wire_version": Mutation(
        "73860c9",
        "wire: WireVersion = WIRE_OMITTED",
        "wire: WireVersion = wire.VERSION",
        "test_a_heartbeat_states_the_version_of_its_sender_to_a_build_of_another",
    ),
    "outage_of_nats_in_the_log": Mutation(
        "8312471",
        "if text != self._logged:",
        "if True:",
        "test_an_outage_of_nats_is_a_few_lines_however_long_it_is",
    ),
    "what_is_no_request_in_the_log": Mutation(
        "4fcabd6",
        "setLevel(logging.WARNING if debug else logging.ERROR)",
        "setLevel(logging.WARNING)",
        "test_a_client_cannot_fill_the_log_with_what_is_no_request",
    ),
    "output_that_cannot_be_written": Mutation(
        "88bf0eb",
        "os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())",
        "pass",
        "test_an_output_that_cannot_be_written_is_one_line",
    ),
    "restore_over_other_tables": Mutation(
        "6627302",
        "    if tables:\n        whose",
        "    if ours:\n        whose",
        "test_a_database_that_is_not_empty_is_named_and_stays_as_it_is",
    ),
}


def only(folder: Path, pattern: str, text: str) -> Path:
    """The only file that contains a text, exactly once.

    Raises:
        LookupError: No file has it, or more than one place.
    """
    found = {
        path: count for path in folder.rglob(pattern) if (count := path.read_text().count(text))
    }
    if sum(found.values()) != 1:
        raise LookupError(f"in {sum(found.values())} places of {folder.name}: {text!r}")
    return next(iter(found))


def tests_named(name: str) -> list[str]:
    """The arguments of pytest that select all test functions of a name."""
    pattern = re.compile(rf"^ *(async )?def {name}\(", re.MULTILINE)
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    found = [str(path) for path in files if pattern.search(path.read_text())]
    if not found:
        raise LookupError(f"no test is named {name}")
    return [*found, "-k", name]


def fails(source: Path, tests: list[str]) -> bool:
    """Whether one of the tests fails on a source tree."""
    words = ["-n0", "-x", "-p", "no:cacheprovider", f"--timeout={TEST_TIMEOUT_S}"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words, *tests],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT_S,
    )
    if done.returncode not in (0, 1):
        raise RuntimeError(done.stdout[-2_000:])
    return done.returncode == 1


def found(source: Path, mutation: Mutation) -> bool:
    """Whether the mutation's test fails with it; the source is restored afterwards.

    Raises:
        LookupError: The text or the test is gone.
        RuntimeError: The test could not be run.
    """
    tests = tests_named(mutation.test)
    path = only(source, "*.py", mutation.old)
    whole = path.read_text()
    path.write_text(whole.replace(mutation.old, mutation.new))
    try:
        return fails(source, tests)
    finally:
        path.write_text(whole)


def main() -> None:
    """Apply the named mutations, or all; the status is 1 if one was not detected."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", choices=[*MUTATIONS, []], metavar="NAME")
    parser.add_argument("--list", action="store_true", help="print the names and end")
    given = parser.parse_args()
    if given.list:
        print("\n".join(MUTATIONS))
        return
    names = given.names or list(MUTATIONS)
    copies = SimpleQueue[Path]()

    def caught(name: str) -> bool:
        source = copies.get()
        try:
            caught = found(source, MUTATIONS[name])
        except (LookupError, RuntimeError) as error:
            caught = False
            print(error)
        finally:
            copies.put(source)
        print(f"{'found' if caught else 'MISSED':7}{name} ({MUTATIONS[name].commit})", flush=True)
        return caught

    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count()) as threads:
        for number in range(os.cpu_count() or 1):
            copies.put(Path(shutil.copytree(ROOT / "src", Path(folder, f"{number}", "src"))))
        missed = [
            name for name, ok in zip(names, threads.map(caught, names), strict=True) if not ok
        ]
    print(f"{len(missed)} missed" + (f": {' '.join(missed)}" if missed else ""))
    sys.exit(bool(missed))


if __name__ == "__main__":
    main()
