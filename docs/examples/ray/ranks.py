"""One replica on several processes: a Decoder or an Engine for a folder of mojo-patch shard.

The replica is rank 0 and answers. The other ranks are actors in its placement group, which repeat its calls in the same
order. All ranks have the same bits of the logits, and so the same tokens. If a rank ends or does not answer, the
replica ends with an error that names it, and Ray starts a new one.
"""

import json
import logging
import os
import pathlib
import socket
import threading

import ray
from ray.util.placement_group import get_current_placement_group

log = logging.getLogger("ray.serve")


def read_ranks(model):
    """Returns the number of ranks of a folder of mojo-patch shard, or 0 for another path."""
    plan = pathlib.Path(model) / "plan.json"
    return json.loads(plan.read_text(encoding="utf-8"))["ranks"] if plan.is_file() else 0


def end(error):
    """Ends this process: only new ones can connect."""
    log.critical("%s", error)
    os._exit(1)


def join(decoder, folder, rank, environment, *args):
    """Opens the model of a rank. The kernels read the environment, as torchrun sets it."""
    os.environ.update(environment, RANK=str(rank), LOCAL_RANK="0")
    return decoder(str(pathlib.Path(folder) / f"rank-{rank}.onnx"), *args)


@ray.remote(concurrency_groups={"watch": 1})
class Rank:
    """A rank above 0. Its calls run in order, except watch."""

    def __init__(self, decoder, folder, rank, environment, *args):
        self.rank = rank
        self.decoder = join(decoder, folder, rank, environment, *args)

    def ready(self):
        pass

    def call(self, name, *args):
        try:
            getattr(self.decoder, name)(*args)
        except Exception as e:
            end(f"rank {self.rank}: {name}: {e}")

    @ray.method(concurrency_group="watch")
    def watch(self):
        threading.Event().wait()


class Ranks:
    """start, step and stop are the decoder's, on all ranks."""

    def __init__(self, decoder, folder, ranks, *args):
        """Runs in a replica whose placement group has a bundle for each rank."""
        address = ray.util.get_node_ip_address()
        with socket.create_server((address, 0)) as free:
            environment = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": address, "MASTER_PORT": str(free.getsockname()[1])}
        group = get_current_placement_group()
        if group is None or len(group.bundle_specs) != ranks:
            raise RuntimeError(f"{folder} has {ranks} ranks: each needs a bundle of the replica's placement group")
        # Serve places the actors of a replica in its group: rank 0 fills one bundle.
        options = Rank.options(num_cpus=group.bundle_specs[0]["CPU"])
        self.others = [options.remote(decoder, folder, rank, environment, *args) for rank in range(1, ranks)]
        ready = [other.ready.remote() for other in self.others]
        self.decoder = join(decoder, folder, 0, environment, *args)
        ray.get(ready)
        session = self.decoder.session
        self.vocabulary = next(x.shape[-1] for x in session.get_outputs() if x.name == self.decoder.logits)
        for rank, other in enumerate(self.others, 1):
            threading.Thread(target=self.watch, args=(rank, ranks, other), daemon=True).start()

    @staticmethod
    def watch(rank, ranks, other):
        try:
            ray.get(other.watch.remote())
        except Exception as e:
            end(f"rank {rank} of {ranks} has ended: {e}")

    def fits(self, ids, max_tokens):
        if max(ids) >= self.vocabulary:
            raise ValueError(f"id {max(ids)}: the model has {self.vocabulary}")
        return self.decoder.fits(ids, max_tokens)

    def start(self, ids, max_tokens=None, *sampling):
        return self.call("start", ids, max_tokens, *sampling)

    def step(self):
        return self.call("step")

    def stop(self, row):
        return self.call("stop", row)

    def call(self, name, *args):
        for other in self.others:
            other.call.remote(name, *args)
        try:
            return getattr(self.decoder, name)(*args)
        except Exception as e:  # the kernels name the rank to blame
            end(f"rank 0: {name}: {e}")
