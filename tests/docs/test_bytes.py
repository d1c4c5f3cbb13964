"""The program behind a table of docs/performance.md runs."""

import re
import sys

from docs.examples import ROOT, finished


async def test_the_bytes_of_each_form_of_a_view_are_counted():
    words = str(ROOT / "bench" / "bytes.py"), "--seconds", "0.5"
    status, out, errors = await finished(sys.executable, *words, PYTHONDONTWRITEBYTECODE="1")
    assert (status, errors) == (0, "")
    assert out.startswith("Simulated market, six exchanges, 0 s: ")
    counted = re.findall(r"^\| (\d+) \| (\w+) \| (\w+) \| ([\d,]+) \| ([\d,]+) \|", out, re.M)
    assert len(counted) == 8
    for *_, plain, compressed in counted:
        assert 0 < int(compressed.replace(",", "")) < int(plain.replace(",", ""))
