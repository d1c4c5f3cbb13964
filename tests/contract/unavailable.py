"""Errors of exchanges that cannot serve a request for now, by book channel.

The envelope is that of the exchange's refusals. Codes and words are those of its page or of ccxt's
table of exceptions; where neither has any (`PLAIN`), words that any server may use.
"""

from typing import Final

PLAIN: Final = "Internal server error"

FRAMES: Final[dict[str, tuple[str, ...]]] = {
    "backpack": ('{"id":null,"error":{"code":5000,"message":"SERVER_ERROR"}}',),
    "bequant": (
        '{"error":{"code":503,"message":"Service Unavailable"},"id":1}',
        '{"error":{"code":504,"message":"Gateway"},"id":1}',
    ),
    "binance": (
        '{"error":{"code":-1001,"msg":"Internal error; unable to process your request."},"id":1}',
        '{"code":-1008,"msg":"Server is currently overloaded with other requests.","id":1}',
        '{"code":-1004,"msg":"Server is busy, please wait and try again","id":1}',
    ),
    "binance.sbe": (
        '{"code":-1008,"msg":"Server is currently overloaded with other requests.","id":1}',
    ),
    "binanceus": (
        '{"code":-1007,"msg":"Timeout waiting for response from backend server.","id":1}',
    ),
    "bingx": (
        '{"id":"1","code":100500,"msg":"Internal system error"}',
        '{"id":"1","code":100503,"msg":"Server busy"}',
        '{"id":"1","code":100421,"msg":"The current system is busy, please try again later"}',
    ),
    "bitfinex": (
        '{"event":"error","msg":"not ready","code":11000,"channel":"book"}',
        '{"event":"error","msg":"temporarily_unavailable","code":10000}',
    ),
    "bitflyer": ('{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"Internal error"}}',),
    "bitget": (
        '{"event":"error","code":40015,"msg":"System error, please try again later"}',
        '{"event":"error","code":40010,"msg":"Request timed out"}',
        '{"event":"error","code":40200,"msg":"Server upgrade, please try again later"}',
        '{"event":"error","code":30019,"msg":"Api is offline or unavailable"}',
        '{"event":"error","code":30037,"msg":"endpoint is offline or unavailable"}',
        '{"event":"error","code":30038,"msg":"Matching engine is being upgraded. '
        'Please try in about 1 minute."}',
        '{"event":"error","code":30030,"msg":"endpoint request failed. Please try again"}',
    ),
    "bithumb": ('{"error":{"name":"INTERNAL_ERROR","message":""}}',),
    "bitstamp": (
        '{"event":"bts:error","channel":"","data":{"code":null,"message":'
        '"Bitstamp.net is under scheduled maintenance."}}',
    ),
    "bitvavo": (
        '{"action":"subscribe","errorCode":107,"error":"The matching engine is overloaded."}',
        '{"action":"subscribe","errorCode":109,"error":"The engine did not respond in time."}',
    ),
    "bybit": (
        '{"success":false,"ret_msg":"Internal System Error.","op":"subscribe","req_id":"1"}',
        '{"success":false,"ret_msg":"Service is restarting","op":"subscribe","req_id":"1"}',
    ),
    "cex": (
        '{"e":"order_book_subscribe","oid":"9","data":{"error":"Service temporarily unavailable"}}',
    ),
    "coinbase": ('{"type":"error","message":"Failed to subscribe","reason":"under maintenance"}',),
    "coinbase.advanced": (f'{{"type":"error","message":"{PLAIN}"}}',),
    "cryptocom": (
        '{"id":1,"method":"subscribe","code":50001,"message":"ERR_INTERNAL"}',
        '{"id":1,"method":"subscribe","code":40801,"message":"REQUEST_TIMEOUT"}',
    ),
    "deribit": (
        '{"jsonrpc":"2.0","id":1,"error":{"code":11094,"message":"internal_server_error"}}',
        '{"jsonrpc":"2.0","id":1,"error":{"code":11051,"message":"system_maintenance"}}',
        '{"jsonrpc":"2.0","id":1,"error":{"code":10040,"message":"retry"}}',
        '{"jsonrpc":"2.0","id":1,"error":{"code":13888,"message":"timed_out"}}',
    ),
    "gate": (
        '{"time":1,"id":1,"channel":"spot.obu","event":"subscribe",'
        '"error":{"code":3,"message":"service"}}',
    ),
    "gemini": ('{"id":"1","status":500,"error":{"code":-1000,"msg":"Internal Server Error"}}',),
    "hitbtc": (
        '{"error":{"code":500,"message":"Internal"},"id":1}',
        '{"error":{"code":503,"message":"Service Unavailable","description":"Try later"},"id":1}',
    ),
    "htx": (
        '{"status":"error","id":"1","err-code":"gateway-internal-error","err-msg":"x"}',
        '{"status":"error","id":"1","err-code":"bad-request","err-msg":"system-maintenance"}',
    ),
    "hyperliquid": (f'{{"channel":"error","data":"{PLAIN}"}}',),
    "hyperliquid.slow": (f'{{"channel":"error","data":"{PLAIN}"}}',),
    "independentreserve": (f'{{"Event":"Error","Data":"{PLAIN}","Time":1}}',),
    "kraken": (
        '{"method":"subscribe","success":false,"error":"EService:Unavailable"}',
        '{"method":"subscribe","success":false,"error":"EGeneral:Internal error"}',
        '{"method":"subscribe","success":false,"error":"EService:Busy"}',
    ),
    "kucoin": (f'{{"id":"1","result":false,"message":"{PLAIN}"}}',),
    "kucoin.classic": ('{"id":"1","type":"error","code":500,"data":"x"}',),
    "lbank": (f'{{"status":"error","message":"{PLAIN}"}}',),
    "mexc": (
        '{"id":1,"code":500,"msg":"Internal error"}',
        '{"id":1,"code":503,"msg":"Service not available, please try again"}',
    ),
    "okx": (
        '{"event":"error","code":"50001","msg":"Service temporarily unavailable. Try again later"}',
        '{"event":"error","code":"50013","msg":"Systems are busy. Please try again later."}',
        '{"event":"error","code":"50026","msg":"System error. Try again later"}',
        '{"event":"error","code":"50005","msg":"API is offline or unavailable"}',
        '{"event":"error","code":"60016","msg":"Buffer is full, cannot write data"}',
        '{"event":"error","code":"63999","msg":"Internal system error"}',
    ),
    "okxus": (
        '{"event":"error","code":"50004","msg":"API endpoint request timeout"}',
        '{"event":"error","code":"50001","msg":"Matching engine upgrading."}',
    ),
    "p2b": (
        '{"error":{"code":2,"message":"internal error"},"result":null,"id":1}',
        '{"error":{"code":3,"message":"service unavailable"},"result":null,"id":1}',
        '{"error":{"code":5,"message":"service timeout"},"result":null,"id":1}',
    ),
    "phemex": (f'{{"error":{{"code":6000,"message":"{PLAIN}"}},"id":1,"result":null}}',),
    "poloniex": ('{"event":"error","message":"please try again later"}',),
    "upbit": ('{"error":{"name":"INTERNAL_SERVER_ERROR","message":""}}',),
    "whitebit": (
        '{"id":1,"result":null,"error":{"code":2,"message":"internal error"}}',
        '{"id":1,"result":null,"error":{"code":3,"message":"service unavailable"}}',
        '{"id":1,"result":null,"error":{"code":5,"message":"service timeout"}}',
    ),
    "woo": ('{"id":"1","cmd":"SUBSCRIBE","success":false,"data":"Under maintenance"}',),
    "xt": ('{"id":"1","code":1,"msg":"SERVER_ERROR"}',),
}
