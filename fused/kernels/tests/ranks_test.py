"""Ranks in real processes: ranks_test.py LIBRARY PROGRAM [MPI...]

PROGRAM is mojo_ranks_test. It connects its processes by TCP, and with each MPI, the prefix of an installation of MPICH
or Open MPI, by that library. Then models of collective ops run in onnxruntime, each rank in a process.
"""
import glob
import os
import signal
import socket
import subprocess
import sys
import time

import numpy as np
from onnx import helper

import harness as h

# Open MPI refuses root, and more ranks than cores, unless it is told.
ALLOWED = dict(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
               PRTE_MCA_rmaps_default_mapping_policy=":oversubscribe")


def environment(**more):
    """This process's environment without the variables of a launcher."""
    launchers = ("OMPI_", "PMI", "SLURM_", "RANK", "WORLD_SIZE", "MASTER_", "MOJO_COLLECTIVE", "TORCHELASTIC")
    return {k: v for k, v in os.environ.items() if not k.startswith(launchers)} | more


def with_mpi(prefix, program):
    """Runs the program as 2 and 4 ranks, and as 3 of which one stops: later, while it loads its model, and before."""
    library, = glob.glob(os.path.join(prefix, "lib", "libmpi.so.[14]*"))
    env = environment(MOJO_MPI_LIBRARY=library, MOJO_COLLECTIVE_TIMEOUT="2", **ALLOWED)
    mpiexec = os.path.join(prefix, "bin", "mpiexec")
    for ranks in (2, 4):
        subprocess.run([mpiexec, "-n", str(ranks), program, "--rank"], env=env, check=True, timeout=100)
    for at in (3, 0, -1):
        words = "rank 1 did not answer within 2 s" if at >= 0 else "MPI did not connect the ranks within 3 s"
        env |= {} if at >= 0 else dict(MOJO_COLLECTIVE_JOIN_TIMEOUT="3")
        job = subprocess.Popen([mpiexec, "-n", "3", program, "--stopped-rank", str(at)], env=env, text=True,
                               start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        named, begin = [], time.monotonic()
        while len(named) < 2 and time.monotonic() < begin + 30:
            line = job.stdout.readline()
            named += [line] if words in line else []
            if not line:
                break
        os.killpg(job.pid, signal.SIGKILL)
        job.wait()
        assert len(named) == 2, f"{prefix}, {at}: {named}: the other two ranks do not name the one that stopped"
    print(f"{prefix}: 2 and 4 ranks, and one that stops")


def model(rank, ranks):
    """A product that the ranks split: each has some columns of X and rows of W. Then each rank has all sums."""
    ids = dict(rank=rank, ranks=ranks, plan="p")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["part"]),
             helper.make_node("AllReduce", ["part"], ["sum"], domain="mojo", **ids),
             helper.make_node("AllGather", ["sum"], ["y"], domain="mojo", axis=-1, **ids)]
    info = lambda name: helper.make_tensor_value_info(name, 1, [None, None])
    graph = helper.make_graph(nodes, "g", [info("x"), info("w")], [info("sum"), info("y")])
    return helper.make_model(graph, ir_version=8, opset_imports=[
        helper.make_opsetid("", 18), helper.make_opsetid("mojo", 1)])


def one_rank():
    """Runs the model as the rank of the environment."""
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    r = np.random.default_rng(5)
    x, w = r.integers(-9, 9, (3, 8 * ranks)).astype(np.float32), r.integers(-9, 9, (8 * ranks, 50)).astype(np.float32)
    mine = slice(8 * rank, 8 * rank + 8)
    session = h.session(model(rank, ranks))
    for _ in range(20):
        total, y = session.run(None, {"x": x[:, mine], "w": w[mine]})
        np.testing.assert_array_equal(total, x @ w)
        np.testing.assert_array_equal(y, np.concatenate([x @ w] * ranks, -1))


def in_onnxruntime(library):
    """Starts a process for each rank of a model."""
    for ranks in (2, 3):
        with socket.create_server(("127.0.0.1", 0)) as s:
            port = s.getsockname()[1]
        env = environment(WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        children = [subprocess.Popen([sys.executable, __file__, library, "--rank"], env=env | dict(RANK=str(r)))
                    for r in range(ranks)]
        assert [c.wait(timeout=100) for c in children] == [0] * ranks, f"{ranks} ranks in onnxruntime"
    for load, words in (True, 'start N processes with "mpirun'), (False, "AllReduce"):
        try:
            h.session(model(0, 2), load=load)
            error = "it opens"
        except Exception as e:  # onnxruntime has a class for each code
            error = str(e)
        assert words in error, f"a model of two ranks in one process: {error}"
    print("onnxruntime: 2 and 3 ranks")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit("usage: ranks_test.py LIBRARY PROGRAM [MPI...]")
    h.library = sys.argv[1]
    if sys.argv[2] == "--rank":
        one_rank()
        sys.exit()
    subprocess.run([sys.argv[2]], env=environment(), check=True, timeout=200)
    in_onnxruntime(sys.argv[1])
    for at in sys.argv[3:]:
        with_mpi(at, sys.argv[2])
