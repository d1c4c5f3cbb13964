"""A REST client for a node under load: rest.py URL COUNT, the key on standard input.

GET and POST on the port that the WebSocket clients use; prints how many answered and how fast.
"""

import json
import statistics
import sys
import time

import httpx

KINDS = ("GET /api/v1/health", "POST /api/v1/authenticate", "GET /api/v1/session-status")
PAUSE_S = 0.02


def main() -> None:
    url, count = sys.argv[1], int(sys.argv[2])
    key = sys.stdin.read().strip()
    answered, failed, took = 0, 0, []
    with httpx.Client(base_url=url) as http:
        token = ""
        for number in range(count):
            method, path = KINDS[number % len(KINDS)].split()
            body = {"json": {"api_key": key}} if method == "POST" else {}
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            began = time.perf_counter()
            answer = http.request(method, path, headers=headers, **body)
            took.append(time.perf_counter() - began)
            token = answer.json().get("session_token", token)
            if answer.status_code == 200:
                answered += 1
            else:
                failed += 1
            time.sleep(PAUSE_S)
    facts = {"answered": answered, "failed": failed, "p50 ms": statistics.median(took) * 1e3}
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
