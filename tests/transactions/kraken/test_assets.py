"""Asset ids of Kraken: mapped to a currency and a wallet, and back."""

import pytest

from onebook.transactions.kraken.assets import asset_of, futures_asset
from onebook.transactions.kraken.instruments import listed
from transactions.kraken.native import SAMPLES

IDS = {
    "XXBT": ("BTC", "SPOT"),
    "XBT": ("BTC", "SPOT"),
    "XBT.M": ("BTC", "SPOT.M"),
    "XBT.F": ("BTC", "SPOT.F"),
    "XXDG": ("DOGE", "SPOT"),
    "ZEUR": ("EUR", "SPOT"),
    "EUR.HOLD": ("EUR", "SPOT.HOLD"),
    "EUR.M": ("EUR", "SPOT.M"),
    "USDT.F": ("USDT", "SPOT.F"),
    "USDC.B": ("USDC", "SPOT.B"),
    "DOT.S": ("DOT", "SPOT.S"),
    "DOT28.S": ("DOT", "SPOT.28.S"),
    "SOL03.S": ("SOL", "SPOT.03.S"),
    "DOT.P": ("DOT", "SPOT.P"),
    "AAPLx.T": ("AAPLx", "SPOT.T"),
    "XETH": ("ETH", "SPOT"),
    "ETH2": ("ETH", "SPOT.ETH2"),
    "ETH2.S": ("ETH", "SPOT.ETH2.S"),
    "ETH.F": ("ETH", "SPOT.F"),
    "FLOWH.S": ("FLOW", "SPOT.FLOWH.S"),
    # Coins whose plain ids begin with an X or a Z, or end with digits.
    "XTZ": ("XTZ", "SPOT"),
    "ZRX": ("ZRX", "SPOT"),
    "ZEUS": ("ZEUS", "SPOT"),
    "XCN": ("XCN", "SPOT"),
    "C98.S": ("C98", "SPOT.S"),
    "1INCH": ("1INCH", "SPOT"),
    # Codes that other exchanges use for other coins.
    "LUNA": ("LUNC", "SPOT"),
    "LUNA2": ("LUNA", "SPOT"),
    "XREP": ("REPV1", "SPOT"),
    "REPV2": ("REP", "SPOT"),
    "KFEE": ("KFEE", "SPOT"),
    "FEE": ("KFEE", "SPOT"),
    "NEVERSEEN": ("NEVERSEEN", "SPOT"),
}
SPELLINGS = {"XBT": "XXBT", "FEE": "KFEE"}  # two ids that no account has both of


@pytest.mark.parametrize("native", IDS)
def test_an_asset_id_is_a_currency_in_a_wallet(native: str) -> None:
    assert asset_of(native) == IDS[native]


def test_no_two_ids_share_a_currency_and_a_wallet() -> None:
    ids = [native for native in IDS if native not in SPELLINGS]
    assert len({asset_of(native) for native in ids}) == len(ids)


@pytest.mark.parametrize(
    ("native", "account", "expected"),
    [
        ("xbt", "flex", ("BTC", "FUTURES.FLEX")),
        ("BTC", "flex", ("BTC", "FUTURES.FLEX")),
        ("usd", "fi_xbtusd", ("USD", "FUTURES.FI_XBTUSD")),
        ("eur", None, ("EUR", "FUTURES")),
    ],
)
def test_codes_of_futures_are_in_small_letters(
    native: str, account: str | None, expected: tuple[str, str]
) -> None:
    assert futures_asset(native, account) == expected


@SAMPLES.needed
def test_recorded_assets_and_pairs_have_our_names() -> None:
    assets = SAMPLES.body("0_public_Assets.jkorf.json")["result"]
    for native, asset in assets.items():
        assert asset_of(native) == asset_of(asset["altname"])
    pairs = SAMPLES.body("0_public_AssetPairs.jkorf.json")["result"]
    assert {listed("spot", row).symbol for row in pairs.values()} <= {
        "ETH/BTC", "ETH/USD", "BTC/USD", "BTC/EUR", "ETH/EUR",
    }  # fmt: skip
