"""Tokens per second of docs/examples/ray/serve.py over one and two replicas, beside the model as exported.

usage: ray_serve.py EXPORTED PATCHED ROWS PAGED [--clients 16] [--rounds 3] [--seconds 10]

PATCHED is of mojo-patch apply --last-logits, ROWS with --cache static --past-length=rows, PAGED with --cache paged=16.
exported.py serves the first two. One Ray instance serves all forms; they are asked in turns.
"""

import argparse
import collections
import logging
import os
import pathlib
import socket
import statistics
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PATHS = [str(ROOT / "docs" / "examples" / "ray"), str(ROOT / "bench" / "serving")]
sys.path[:0] = PATHS


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("exported")
    parser.add_argument("patched")
    parser.add_argument("rows")
    parser.add_argument("paged")
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--vocabulary", type=int, default=49152)
    parser.add_argument("--forms", help="with replicas",
                        default="exported1,patched1,rows1,paged1,exported2,patched2,rows2")
    options = parser.parse_args()
    import soak

    os.environ.update(soak.RAY, PYTHONPATH=os.pathsep.join([*PATHS, os.environ.get("PYTHONPATH", "")]))
    import ray
    from exported import Batches
    from ray import serve as ray_serve

    import serve
    from decoder import Decoder
    from engine import Engine

    questions = soak.make_questions(os.path.abspath(options.exported), 16, options.max_tokens, options.vocabulary)
    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as temp:
        ray.init(num_cpus=20, include_dashboard=False, _temp_dir=temp, logging_level=logging.ERROR, log_to_driver=False)
        try:
            with socket.create_server(("127.0.0.1", 0)) as free:
                port = free.getsockname()[1]
            ray_serve.start(http_options={"host": "127.0.0.1", "port": port})
            forms = [(form[:-1], int(form[-1])) for form in options.forms.split(",")]
            targets = []
            for name, replicas in forms:
                path = os.path.abspath(getattr(options, name))
                rows, room, threads = options.clients // replicas, options.max_tokens + 40, 2 // replicas
                if name in ("rows", "paged"):
                    deployment, args = serve.Model, (Decoder if name == "rows" else Engine, path, rows, room, threads)
                else:
                    deployment, args = Batches, (path, rows, threads)
                model = deployment.options(num_replicas=replicas, max_ongoing_requests=rows).bind(*args)
                ingress = serve.Ingress.options(max_ongoing_requests=1000).bind(model, room)
                form = f"{name}{replicas}"
                targets.append(ray_serve.RunTarget(ingress, name=form, route_prefix=f"/{form}"))
            ray_serve.run_many(targets)
            rates = collections.defaultdict(list)
            for turn in range(options.rounds + 1):  # the first one warms up
                for name, replicas in forms:
                    clients = soak.Clients(options.clients, f"http://127.0.0.1:{port}/{name}{replicas}", questions)
                    for thread in clients.threads:
                        thread.start()
                    time.sleep(2)
                    begin, before = time.monotonic(), clients.events
                    time.sleep(options.seconds if turn else 1)
                    rate = (clients.events - before) / (time.monotonic() - begin)
                    clients.finish()
                    if clients.wrong:
                        sys.exit(f"{name}: {clients.wrong[0]}")
                    if turn:
                        rates[name, replicas].append(rate)
        finally:
            ray.shutdown()
    for (name, replicas), values in rates.items():
        print(f"{name}, {replicas} replicas of {2 // replicas} threads, {options.clients} clients: "
              f"{statistics.median(values):.1f} tokens/s ({min(values):.1f} to {max(values):.1f})")


if __name__ == "__main__":
    main()
