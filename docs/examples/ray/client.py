"""Asks the server of serve.py and prints the tokens as they come.

usage: client.py [URL] '{"ids": [1, 2, 3], "max_tokens": 20}'
"""

import http.client
import json
import logging
import sys
import time
import urllib.error
import urllib.request

log = logging.getLogger("client")


def generate(url, request, tries=10, timeout=120):
    """Yields events. If a connection breaks, asks again from the last token received."""
    tokens = []
    for attempt in range(tries):
        body = json.dumps({**request, "tokens": tokens}).encode()
        try:
            with urllib.request.urlopen(urllib.request.Request(url, body), timeout=timeout) as answer:
                for line in answer:
                    if line == b"data: [DONE]\n":
                        return
                    if line.startswith(b"data: "):
                        event = json.loads(line[len("data: "):])
                        tokens.append(event["token"])
                        yield event
        except urllib.error.HTTPError as e:
            if e.code < 500:
                raise
            error = e
        except (OSError, http.client.HTTPException) as e:
            error = e
        else:
            error = "the stream has no end"
        log.warning("asking again after %d tokens: %s", len(tokens), error)
        time.sleep(0.1 * 2**min(attempt, 5))
    raise ConnectionError(f"{url} did not answer {tries} times; {len(tokens)} tokens came")


if __name__ == "__main__":
    *url, body = sys.argv[1:] or ["--help"]
    if body.startswith("-") or len(url) > 1:
        print(__doc__)
        sys.exit(0)
    for event in generate(*url or ["http://127.0.0.1:8000"], json.loads(body)):
        print(event.get("text", event["token"]), end="" if "text" in event else " ", flush=True)
    print()
