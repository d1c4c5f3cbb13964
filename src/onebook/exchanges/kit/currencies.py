"""Currency codes that differ between exchanges: a table from each exchange's codes to ours.

The same code can be different coins on different exchanges (REP on Kraken is the old token, MEME on
Poloniex is another coin than elsewhere), and one coin can have several codes (XBT, XDG, UST on
Bitfinex). A code without a row is used unchanged. A coin that has a usual code elsewhere gets that
code; a coin under another coin's code gets its name, in capitals, without blanks and signs. The
identity guard finds differences that are not in the table by price (`streams/identity.py`), and
operators override rows with `feeds.overrides.<exchange>.currencies`.

Unless a row states another source, it is a fact from ccxt 4.5.90, `commonCurrencies` of the
exchange's class (https://github.com/ccxt/ccxt, 2026-11), without codes that ccxt has only for
deposits (USDTTRON), derivatives (USTF0) or Kraken's asset ids (XXBT, ZUSD), which do not occur in
spot lists. A row for a code that the exchange no longer lists has no effect; the rows of Poloniex,
HTX, Gate and HitBTC are the oldest.
"""

from collections.abc import Mapping
from typing import Final

# Codes with the same meaning on every exchange that has no row for them.
EVERYWHERE: Final = {
    "XBT": "BTC",
    "BCHSV": "BSV",
}

# HitBTC and Bequant share one engine and its list of currencies.
_HITBTC: Final = {
    "AUTO": "CUBE",
    "BDP": "BIDIPASS",
    "BET": "DAOCASINO",
    "BIT": "BITREWARDS",
    "BOX": "BOXTOKEN",
    "CPT": "CRYPTAUR",  # CPT elsewhere is Contents Protocol
    "GET": "THEMIS",
    "GMT": "GMTTOKEN",
    "HSR": "HC",
    "IQ": "IQCASH",
    "LNC": "LINKERCOIN",
    "PLA": "PLAYCHIP",
    "PNT": "PENTA",
    "SBTC": "SUPERBITCOIN",
    "STEPN": "GMT",
    "STX": "STOX",
    "TV": "TOKENVILLE",
    "XMT": "MTL",
    "XPNT": "PNT",
}

TABLE: Final[Mapping[str, Mapping[str, str]]] = {
    "bequant": _HITBTC,
    "binance": {
        "YOYO": "YOYOW",
    },
    "binanceus": {
        "YOYO": "YOYOW",
    },
    "bingx": {
        "NAP": "$NAP",  # the NAP of Solana
        "OMNI": "OMNICAT",
        "SNOW": "SNOWMAN",  # SNOW elsewhere is SnowSwap
        "TRUMP": "TRUMPMAGA",
        "TRUMPSOL": "TRUMP",
    },
    "bitfinex": {
        "ALG": "ALGO",
        "AMP": "AMPL",
        "ATO": "ATOM",
        "BCHABC": "XEC",
        "BCHN": "BCH",
        "DAT": "DATA",
        "DOG": "MDOGE",  # a millionth of DOGE
        "DSH": "DASH",
        "EDO": "PNT",
        "EUS": "EURS",
        "EUT": "EURT",
        "HTX": "HT",
        "IDX": "ID",
        "IOT": "IOTA",
        "IQX": "IQ",
        "LUNA": "LUNC",
        "LUNA2": "LUNA",
        "MNA": "MANA",
        "ORS": "ORSGROUP",
        "PAS": "PASS",
        "QSH": "QASH",
        "QTM": "QTUM",
        "RBT": "RBTC",
        "SNG": "SNGLS",
        "STJ": "STORJ",
        "TERRAUST": "USTC",
        "TSD": "TUSD",
        "UDC": "USDC",
        "UST": "USDT",  # Tether; Terra's UST is TERRAUST
        "VSY": "VSYS",
        "WAX": "WAXP",
        "XCH": "XCHF",
        "YGG": "YEED",
        "YYW": "YOYOW",
        "ZBT": "ZB",
    },
    "bitget": {
        "APX": "ASTROPEPEX",
        "DEGEN": "DEGENREBORN",
        "EVA": "EVADORE",  # EVA elsewhere is EverValue Coin
        "JADE": "JADEPROTOCOL",
        "OMNI": "BITGETOMNI",  # not Omni Network; its only name is omni
        "TONCOIN": "TON",
    },
    "bithumb": {
        "FTC": "FTC2",
        "SOC": "SODACOIN",
    },
    "bitstamp": {
        "UST": "USTC",
    },
    "bitvavo": {
        "MIOTA": "IOTA",
    },
    "coinbase": {
        "CGLD": "CELO",
    },
    "cryptocom": {
        "USD_STABLE_COIN": "USDC",
    },
    "gate": {
        "88MPH": "MPH",
        "ASS": "ASSF",
        "AXIS": "AXISDEFI",
        "BIFI": "BITCOINFILE",  # BIFI elsewhere is Beefy Finance
        "BOX": "DEFIBOX",
        "BYN": "BEYONDFI",
        "EGG": "GOOSEFINANCE",
        "GTC": "GAMECOM",  # GTC elsewhere is Gitcoin
        "GTC_BSC": "GAMECOM_BSC",
        "GTC_HT": "GAMECOM_HT",
        "HIT": "HITCHAIN",
        "MM": "MILLION",  # MM elsewhere is MilliMeter
        "MPH": "MORPHER",  # MPH elsewhere is 88MPH
        "ORT": "XREATORS",
        "POINT": "GATEPOINT",
        "RAI": "RAIREFLEXINDEX",  # RAI elsewhere is RAI Finance
        "SBTC": "SUPERBITCOIN",
        "TNC": "TRINITYNETWORKCREDIT",
        "TRAC": "TRACO",  # TRAC elsewhere is OriginTrail
        "VAI": "VAIOT",
    },
    "hitbtc": _HITBTC,
    "htx": {
        "BIFI": "BITCOINFILE",  # BIFI elsewhere is Beefy Finance
        "FUD": "FTXUSERSDEBT",
        "GET": "THEMIS",  # GET elsewhere is GET Protocol
        "GTC": "GAMECOM",  # GTC elsewhere is Gitcoin
        "HIT": "HITCHAIN",
        "NGL": "GFNGL",
        "PNT": "PENTA",  # PNT elsewhere is pNetwork
        "SBTC": "SUPERBITCOIN",
        "SOUL": "SOULSAVER",
    },
    "hyperliquid": {  # `spotCurrencyMapping` of ccxt: coins bridged from other chains
        "HPENGU": "PENGU",
        "UBONK": "BONK",
        "UBTC": "BTC",
        "UDZ": "2Z",
        "UETH": "ETH",
        "UFART": "FARTCOIN",
        "UPUMP": "PUMP",
        "USDT0": "USDT",
        "USOL": "SOL",
        "UUUSPX": "SPX",
        "UXPL": "XPL",
        "XAUT0": "XAUT",
    },
    "independentreserve": {
        "PLA": "PLAYCHIP",
    },
    "kraken": {
        "LUNA": "LUNC",  # the old chain kept its code when Terra was split
        "LUNA2": "LUNA",
        "REP": "REPV1",
        "REPV2": "REP",
        "UST": "USTC",
        "XBT": "BTC",
        "XDG": "DOGE",
    },
    "kucoin": {
        "ALT": "APTOSLAUNCHTOKEN",
        "BIFI": "BIFIF",
        "FUD": "FTXUSERSDEBT",
        "KALT": "ALT",  # AltLayer
        "VAI": "VAIOT",
        "WAX": "WAXP",
    },
    "lbank": {
        "HIT": "HIVER",
        "PNT": "PENTA",
        "VET_ERC20": "VEN",
        "XBT": "XBT",  # not Bitcoin
    },
    "mexc": {
        "BEYONDPROTOCOL": "BEYOND",
        "BIFI": "BIFIF",
        "BYN": "BEYONDFI",
        "COFI": "COFIX",  # COFI elsewhere is CoinFi
        "DFI": "DFISTARTER",
        "DFT": "DFUTURE",
        "EGC": "EGORASCREDIT",
        "FLUX": "FLUX1",
        "FLUX1": "FLUX",
        "FREE": "FREEROSSDAO",  # FREE elsewhere is FREE Coin
        "GAS": "GASDAO",
        "GASNEO": "GAS",
        "GMT": "GMTTOKEN",  # GMT elsewhere is STEPN's
        "HERO": "STEPHERO",  # HERO elsewhere is Metahero
        "MIMO": "MIMOSA",
        "PROS": "PROSFINANCE",  # PROS elsewhere is Prosper
        "SIN": "SINCITYTOKEN",
        "SOUL": "SOULSWAP",
        "STEPN": "GMT",
        "XBT": "XBT",  # not Bitcoin
    },
    "okx": {
        "AE": "AET",  # the ERC-20 token of Aeternity
    },
    "okxus": {
        "AE": "AET",
    },
    "poloniex": {
        "AIR": "AIRCOIN",
        "APH": "APHRODITECOIN",
        "BCC": "BTCTALKCOIN",
        "BDG": "BADGERCOIN",
        "BTM": "BITMARK",
        "CON": "COINO",
        "GOLD": "GOLDEAGLES",
        "GPUC": "GPU",
        "HOT": "HOTCOIN",
        "ITC": "INFORMATIONCOIN",
        "KEY": "KEYCOIN",
        "MASK": "NFTXHASHMASKSINDEX",
        "MEME": "DEGENERATORMEME",
        "PLX": "PARALLAXCOIN",
        "REPV2": "REP",
        "SOC": "SOCC",
        "STR": "XLM",
        "TRADE": "UNITRADE",
        "UST": "USTC",
        "XAP": "APICOIN",
    },
    "upbit": {
        "TON": "TOKAMAKNETWORK",  # TON elsewhere is Toncoin
    },
}

_NO_ROWS: Final[Mapping[str, str]] = {}


def symbol_of(exchange: str, codes: str, own: Mapping[str, str] = _NO_ROWS) -> str:
    """Translate a pair of an exchange's currency codes (`XBT/USDT`) into our symbol.

    Args:
        exchange: The CCXT id.
        codes: Base and quote, in capitals.
        own: The operator's rows for this exchange, which take precedence.
    """
    base, _, quote = codes.partition("/")
    return f"{currency_of(exchange, base, own)}/{currency_of(exchange, quote, own)}"


def currency_of(exchange: str, code: str, own: Mapping[str, str] = _NO_ROWS) -> str:
    """Translate an exchange's currency code (`XBT`) into ours; see `symbol_of`."""
    for table in (own, TABLE.get(exchange, _NO_ROWS), EVERYWHERE):
        if code in table:
            return table[code]
    return code
