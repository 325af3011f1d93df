"""Patches and serves a model on two Ray nodes of this machine, and kills a replica and a node, or ranks, under clients.

usage: soak.py MODEL [--clients 200] [--seconds 60] …        (a decoder as exported, with a cache)

Every answer is compared with what mojo-patch generate gives; some clients hang up. It exits with 1 where an answer is
lost or another one. Everything is on 127.0.0.1 and in a temporary folder, and ends with this program.
"""

import argparse
import collections
import contextlib
import json
import logging
import os
import pathlib
import random
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

import mojo_patch
import yaml

import client

HERE = pathlib.Path(__file__).resolve().parent
NEAR_TIE = 1e-3  # behind a choice with less of a margin another order of additions may go on otherwise

# As on macOS, Ray listens only on the loopback address. It asks for a token, and sends its makers no statistics. Its
# proxy may start slowly: on a busy machine Serve would stop waiting.
RAY = {
    "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "120",
    "RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S": "120",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": secrets.token_hex(32),
}


def run(*command, **environment):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False,
                          env={**os.environ, **environment})
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}: {done.stdout}{done.stderr}")
    return done.stdout


def make_questions(original, count, max_tokens, vocabulary, seed=1):
    """Makes requests of random ids, with the tokens of mojo-patch generate."""
    chance = random.Random(seed)
    prompts = [[chance.randrange(3, vocabulary) for _ in range(chance.randint(1, 40))] for _ in range(count)]
    flags = [flag for ids in prompts for flag in ("--ids", ",".join(map(str, ids)))]
    told = run(mojo_patch.find_program(), "generate", original, *flags, "--max-tokens", max_tokens, "--ignore-eos",
               "--margins", "--json")
    questions = []
    for sequence in json.loads(told)["sequences"]:
        near = [i for i, margin in enumerate(sequence["margins"]) if margin < NEAR_TIE]
        tokens = sequence["ids"][:near[0] if near else None]
        if tokens:
            questions.append(({"ids": sequence["prompt_ids"], "max_tokens": len(tokens)}, tokens))
    return questions


def patch(model, folder, cluster, pool):
    """Patches the model as a task of Ray, into folder/patched."""
    originals = folder / "original"
    originals.mkdir()
    for file in pathlib.Path(model), pathlib.Path(model + ".data"):
        if file.exists():
            shutil.copy(file, originals / file.name.replace(pathlib.Path(model).name, "model.onnx", 1))
    cache = ["cache=paged=16"] if pool else ["cache=static", "past_length=rows"]
    run(sys.executable, HERE / "patch_folder.py", originals, folder / "patched", "last_logits=True", *cache,
        "require=True", RAY_ADDRESS=cluster.address)


def write_config(folder, options):
    """Writes serve.yaml with this model, a free port and as many replicas; returns its path and the URL."""
    config = yaml.safe_load((HERE / "serve.yaml").read_text())
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = config["http_options"]["port"] = free.getsockname()[1]
    [application] = config["applications"]
    room = options.max_tokens + 40
    model = str(folder / ("sharded" if options.ranks else "patched/model.onnx"))
    application["args"].update(model=model, rows=options.rows, room=room, threads=options.threads,
                               pool=options.pool)
    [deployment] = [d for d in application["deployments"] if d["name"] == "Model"]
    deployment["max_ongoing_requests"] = options.rows
    deployment["ray_actor_options"]["num_cpus"] = options.threads
    deployment["autoscaling_config"].update(min_replicas=options.replicas, max_replicas=options.max_replicas)
    path = folder / "serve.yaml"
    path.write_text(yaml.safe_dump(config))
    return path, f"http://127.0.0.1:{port}"


@contextlib.contextmanager
def two_nodes(folder, cpus):
    """Starts a cluster of two nodes with so many CPUs each."""
    from ray.cluster_utils import Cluster

    node = {"node_ip_address": "127.0.0.1", "object_store_memory": 80 << 20, "num_cpus": cpus}
    cluster = Cluster()
    try:
        cluster.add_node(include_dashboard=False, include_log_monitor=False, no_monitor=True,
                         temp_dir=str(folder / "ray"), **node)
        cluster.add_node(**node)
        cluster.worker = node
        yield cluster
    except BaseException:
        for path in [folder / "serve.log", *(folder / "ray").glob("session_latest/logs/serve/*.log")]:
            if path.exists():
                lines = path.read_text(errors="replace").splitlines()[-20:]
                print(f"{path.name}:", *lines, sep="\n  ", file=sys.stderr)
        raise
    finally:
        cluster.shutdown()


@contextlib.contextmanager
def serving(folder, config, cluster):
    """Runs serve run."""
    program = os.path.join(os.path.dirname(sys.executable), "serve")
    command = [program, "run", "--address", cluster.address, str(config)]
    with open(folder / "serve.log", "w") as log, subprocess.Popen(command, stdout=log, stderr=log) as serve:
        try:
            yield serve
        finally:
            serve.kill()


def replicas(cluster, name="ServeReplica:decoder:Model"):
    """The processes of the model's replicas, the first node's first, or of actors of another name."""
    import psutil  # which comes with ray

    found = []
    for node in cluster.list_all_nodes():
        for process in psutil.Process(node.all_processes["raylet"][0].process.pid).children():
            with contextlib.suppress(psutil.Error):  # it has just ended
                if name in " ".join(process.cmdline()):
                    found.append(process)
    return found


class Clients:
    """Threads that ask until the time is over, and counts of the results."""

    def __init__(self, count, url, questions):
        self.url, self.questions = url, questions
        self.counts, self.events = collections.Counter(), 0
        self.wrong, self.times = [], []
        self.lock, self.over = threading.Lock(), threading.Event()
        self.threads = [threading.Thread(target=self.ask, args=(i,), daemon=True) for i in range(count)]

    def ask(self, number):
        chance = random.Random(number)
        while not self.over.is_set():
            request, tokens = chance.choice(self.questions)
            self.ask_one(request, tokens, len(tokens) // 2 if chance.random() < 0.05 else None)

    def ask_one(self, request, tokens, hang_up=None):
        begin = time.monotonic()
        got = []
        try:
            for event in client.generate(self.url, request):
                got.append(event["token"])
                self.events += 1
                if len(got) == hang_up:
                    tokens = tokens[:hang_up]
                    break
            error = None if got == tokens else f"{request}: {got}, and not {tokens}"
        except Exception as e:
            error = f"{request}: {e!r}"
        with self.lock:
            self.times.append(time.monotonic() - begin)
            self.counts.update(answers=1, hung_up=int(hang_up is not None))
            if error:
                self.wrong.append(error)

    def finish(self, seconds=180):
        self.over.set()
        deadline = time.monotonic() + seconds
        for thread in self.threads:
            thread.join(max(0, deadline - time.monotonic()))
        lost = sum(thread.is_alive() for thread in self.threads)
        if lost:
            self.wrong.append(f"{lost} requests are not answered {seconds} s after the end")


class Reconnections(logging.Handler):
    def __init__(self):
        super().__init__()
        self.count = 0

    def emit(self, record):
        self.count += 1


def resumptions(folder):
    """How often a request went on at another replica, by the logs of the ingress."""
    logs = (folder / "ray").glob("session_latest/logs/serve/replica_decoder_Ingress_*.log")
    return sum(path.read_text(errors="replace").count("going on at token") for path in logs)


def moved(folder, reconnections):
    """How many requests went on elsewhere, by the ingress or by their client."""
    return resumptions(folder) + reconnections.count


def served(folder):
    """How many replicas of the model have answered a request so far."""
    logs = (folder / "ray").glob("session_latest/logs/serve/replica_decoder_Model_*.log")
    return sum("CALL generate" in path.read_text(errors="replace") for path in logs)


def soak(options, folder):
    reconnections = Reconnections()
    logging.getLogger("client").addHandler(reconnections)
    questions = make_questions(options.model, options.questions, options.max_tokens, options.vocabulary)
    config, url = write_config(folder, options)
    cpus = -(-options.max_replicas * (options.ranks or 1) // 2) * options.threads
    with two_nodes(folder, cpus) as cluster, contextlib.ExitStack() as stack:
        patch(options.model, folder, cluster, options.pool)
        if options.ranks:
            run(mojo_patch.find_program(), "shard", folder / "patched" / "model.onnx", "--ranks", options.ranks,
                "--collective-over", 1000, "-o", folder / "sharded")
        logging.disable()
        for last in [False, False, True]:
            serve = stack.enter_context(serving(folder, config, cluster))
            wait("the first answer", lambda serve=serve: serve.poll() is not None or ready(url, questions[0]))
            if serve.poll() is None:
                break
            # Ray waits for its proxies for a minute, whatever the load. They go on starting.
            if last or "not available after" not in (folder / "serve.log").read_text(errors="replace"):
                sys.exit("serve run has ended")
        wait("replicas", lambda: len(replicas(cluster)) >= options.replicas)
        logging.disable(logging.NOTSET)
        clients = Clients(options.clients, url, questions)
        begin = time.monotonic()
        for thread in clients.threads:
            thread.start()
        time.sleep(options.seconds / 3)
        kills = 0
        losses = [("replica", kill_replica), ("node", kill_node)]
        if options.ranks:
            losses = [(f"rank, by {sent.name},", lambda c, sent=sent: lose_rank(c, folder, sent))
                      for sent in (signal.SIGKILL, signal.SIGSTOP)]
        for name, kill in losses:
            before = moved(folder, reconnections)
            # Killed between two requests, a replica loses none: then the next one is killed.
            while options.kill and moved(folder, reconnections) == before:
                wait("an answer of each replica", lambda kills=kills: served(folder) >= options.replicas + kills)
                print(f"replicas: {len(replicas(cluster))}, answers: {clients.counts['answers']}; a {name} is lost")
                kill(cluster)
                kills += 1
                wait("a request that goes on elsewhere, or an answer of a new replica",
                     lambda before=before, kills=kills: moved(folder, reconnections) > before
                     or served(folder) >= options.replicas + kills)
            time.sleep(options.seconds / 3)
        rate = clients.events / (time.monotonic() - begin)
        print("replicas at the end:", len(replicas(cluster)))
        clients.finish()
        print(f"{resumptions(folder)} requests went on at another replica, {reconnections.count} were sent again")
    return clients, rate


def wait(what, condition, seconds=1200):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            sys.exit(f"waited {seconds} s for {what}")
        time.sleep(0.2)


def ready(url, question):
    try:
        return [event["token"] for event in client.generate(url, question[0], tries=1)] == question[1]
    except OSError:
        return False


def kill_replica(cluster):
    replicas(cluster)[0].kill()


def named_ranks(folder):
    """The errors in the replicas' logs that name a rank above 0."""
    logs = (folder / "ray").glob("session_latest/logs/serve/replica_decoder_Model_*.log")
    return {line for path in logs for line in re.findall(r"CRITICAL.*\brank [1-9].*", path.read_text(errors="replace"))}


def lose_rank(cluster, folder, sent):
    """Kills or stops a rank above 0: within 10 s, the replica must have ended with an error that names the rank."""
    replica, rank = replicas(cluster)[0], replicas(cluster, "ray::Rank")[0]
    before, begin = named_ranks(folder), time.monotonic()
    rank.send_signal(sent)
    replica.wait(10)
    seconds = time.monotonic() - begin
    if not (named := named_ranks(folder) - before):
        sys.exit(f"a rank got {sent.name}, and no log names it")
    print(f"its replica ended after {seconds:.1f} s: {named.pop()}")


def kill_node(cluster):
    [node] = cluster.worker_nodes
    cluster.remove_node(node, allow_graceful=False)
    cluster.add_node(**cluster.worker)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--max-replicas", type=int, help="scaled up to under load (default: --replicas)")
    parser.add_argument("--threads", type=int, default=1, help="of a replica")
    parser.add_argument("--pool", type=int, help="serve a model with pools of blocks, of so many tokens per replica")
    parser.add_argument("--ranks", type=int, help="divide each replica over so many processes; kill and stop one of "
                        "them instead of a replica and a node")
    parser.add_argument("--rows", type=int, help="of a replica (default: half of what the clients need)")
    parser.add_argument("--questions", type=int, default=16)
    parser.add_argument("--max-tokens", type=int, default=200)
    parser.add_argument("--vocabulary", type=int, default=160)
    parser.add_argument("--no-kill", dest="kill", action="store_false")
    parser.add_argument("--limit", type=int, default=1500, help="seconds after which it gives up")
    options = parser.parse_args()
    options.max_replicas = options.max_replicas or options.replicas
    # With fewer rows than clients every replica is busy whenever it is killed.
    options.rows = options.rows or max(1, min(16, options.clients // (2 * options.max_replicas)))
    os.environ.update(RAY)  # before Ray is imported
    os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    signal.signal(signal.SIGALRM, lambda *_: sys.exit(f"not done in {options.limit} s"))
    signal.alarm(options.limit)
    with tempfile.TemporaryDirectory(prefix="soak-", ignore_cleanup_errors=True) as temp:
        os.environ["RAY_TMPDIR"] = temp
        clients, rate = soak(options, pathlib.Path(temp))
    times = sorted(clients.times)
    print(f"{clients.counts['answers']} answers, {clients.counts['hung_up']} of them cut off by the client; "
          f"{rate:.1f} tokens/s; "
          f"an answer took {times[len(times) // 2]:.2f} s, at most {times[-1]:.2f} s")
    for error in clients.wrong[:10]:
        print("wrong:", error)
    sys.exit(bool(clients.wrong))


if __name__ == "__main__":
    main()
