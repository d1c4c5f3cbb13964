"""The program behind a table of docs/performance.md still runs."""

import re
import sys

from docs.examples import ROOT, finished


async def test_the_bytes_of_each_form_of_a_view_are_counted():
    words = str(ROOT / "bench" / "bytes.py"), "--seconds", "0.5"
    status, out, errors = await finished(sys.executable, *words, PYTHONDONTWRITEBYTECODE="1")
    assert (status, errors) == (0, "")
    assert out.startswith("Simulated market, six exchanges, 0 s: ")
    counted = re.findall(r"^\| (\d+) \| (\w+) \| (\w+) \| ([\d,]+) \| ([\d,]+) \|", out, re.M)
    assert len(counted) == 12
    for _, _, form, plain, compressed in counted:
        sizes = [int(each.replace(",", "")) for each in (compressed, plain)]
        assert 0 < sizes[0] < sizes[1] or (form == "protobuf" and sizes[0] == sizes[1])
