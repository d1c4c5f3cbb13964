"""Binance's market data events as a schema of Simple Binary Encoding, for a third-party codec.

The layout is that of the exchange's `stream_1_0.xml`, of the two events that are read here.
"""

import struct
from functools import cache
from io import StringIO
from typing import Any

import sbe

BEST_FIELDS = (
    "eventTime", "bookUpdateId", "priceExponent", "qtyExponent",
    "bidPrice", "bidQty", "askPrice", "askQty",
)  # fmt: skip
DEPTH_FIELDS = (
    "eventTime", "firstBookUpdateId", "lastBookUpdateId", "priceExponent", "qtyExponent"
)  # fmt: skip
SCHEMA = """\
<sbe:messageSchema xmlns:sbe="http://fixprotocol.io/2016/sbe" package="stream" id="1" version="0"
                   byteOrder="littleEndian" headerType="messageHeader">
<types>
  <composite name="messageHeader">
    <type name="blockLength" primitiveType="uint16"/>
    <type name="templateId" primitiveType="uint16"/>
    <type name="schemaId" primitiveType="uint16"/>
    <type name="version" primitiveType="uint16"/>
  </composite>
  <composite name="levelCount">
    <type name="blockLength" primitiveType="uint16"/>
    <type name="numInGroup" primitiveType="uint16"/>
  </composite>
  <composite name="shortText">
    <type name="length" primitiveType="uint8"/>
    <type name="varData" length="0" primitiveType="uint8" characterEncoding="UTF-8"/>
  </composite>
  <type name="number" primitiveType="int64"/>
  <type name="exponent" primitiveType="int8"/>
</types>
<sbe:message name="BestBidAsk" id="10001">
  <field id="1" name="eventTime" type="number"/>
  <field id="2" name="bookUpdateId" type="number"/>
  <field id="3" name="priceExponent" type="exponent"/>
  <field id="4" name="qtyExponent" type="exponent"/>
  <field id="5" name="bidPrice" type="number"/>
  <field id="6" name="bidQty" type="number"/>
  <field id="7" name="askPrice" type="number"/>
  <field id="8" name="askQty" type="number"/>
  <data id="200" name="symbol" type="shortText"/>
</sbe:message>
<sbe:message name="DepthDiff" id="10003">
  <field id="1" name="eventTime" type="number"/>
  <field id="2" name="firstBookUpdateId" type="number"/>
  <field id="3" name="lastBookUpdateId" type="number"/>
  <field id="4" name="priceExponent" type="exponent"/>
  <field id="5" name="qtyExponent" type="exponent"/>
  <group id="100" name="bids" dimensionType="levelCount">
    <field id="1" name="price" type="number"/>
    <field id="2" name="qty" type="number"/>
  </group>
  <group id="101" name="asks" dimensionType="levelCount">
    <field id="1" name="price" type="number"/>
    <field id="2" name="qty" type="number"/>
  </group>
  <data id="200" name="symbol" type="shortText"/>
</sbe:message>
</sbe:messageSchema>
"""


@cache
def schema() -> Any:
    return sbe.Schema.parse(StringIO(SCHEMA))


def decoded(frame: bytes) -> dict[str, Any]:
    """The fields of an event, as the third-party decoder reads them."""
    values: dict[str, Any] = schema().decode(frame).value
    length = values["symbol"]["length"]  # all that it reads of a text
    return values | {"symbol": frame[-length:].decode()}


def encoded(values: dict[str, Any], *, version: int = 0, schema_id: int = 1) -> bytes:
    """An event with these fields."""
    if "bookUpdateId" in values:
        names, form, template = BEST_FIELDS, "<qqbbqqqq", 10_001
    else:
        names, form, template = DEPTH_FIELDS, "<qqqbb", 10_003
    block = struct.pack(form, *(values[name] for name in names))
    frame = struct.pack("<HHHH", len(block), template, schema_id, version) + block
    for side in ("bids", "asks") if template == 10_003 else ():
        frame += struct.pack("<HH", 16, len(values[side]))
        frame += b"".join(struct.pack("<qq", each["price"], each["qty"]) for each in values[side])
    symbol = values["symbol"].encode()
    return frame + bytes([len(symbol)]) + symbol
