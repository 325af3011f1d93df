"""The commands on a divided model, started as launchers do: launchers_test.py MOJO_PATCH MODEL GOLDEN [MPI...]

Each rank is a process, connected by TCP or by an MPI, the prefix of an installation of MPICH or Open MPI. If a rank is
killed or stopped, or opens another model, the others must end, and one of them must name it.
"""
import contextlib
import glob
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time

from ranks_test import ALLOWED, environment

LIMIT = 30  # seconds until all ranks must have ended
# A rank writes its process id, and then becomes the command, which writes to files: launchers hold lines back.
RANK = 'r=${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-$RANK}}; echo $$ >"$0/pid-$r"; exec "$@" >"$0/out-$r" 2>"$0/error-$r"'


@contextlib.contextmanager
def started(mpi, commands):
    """Starts a command for each rank, and returns the processes started here and the folder of pids and errors."""
    with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as store:
        lines = [["sh", "-c", RANK, folder, *c] for c in commands]
        start = lambda line, env: subprocess.Popen(line, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if mpi:
            library, = glob.glob(os.path.join(mpi, "lib", "libmpi.so.[14]*"))
            parts = [p for line in lines for p in (":", "-n", "1", *line)][1:]
            jobs = [start([os.path.join(mpi, "bin", "mpiexec"), *parts],
                          environment(MOJO_MPI_LIBRARY=os.path.abspath(library), **ALLOWED))]
        else:
            # As torchrun does, whose agent listens at the port.
            env = environment(WORLD_SIZE=str(len(lines)), MASTER_ADDR="127.0.0.1",
                              MASTER_PORT=str(store.getsockname()[1]), TORCHELASTIC_USE_AGENT_STORE="True")
            jobs = [start(line, env | dict(RANK=str(r))) for r, line in enumerate(lines)]
        try:
            yield jobs, folder
        finally:
            for rank in range(len(lines)):
                with contextlib.suppress(OSError, ValueError):
                    os.kill(int(read(folder, f"pid-{rank}")), signal.SIGKILL)
            for job in jobs:
                job.kill()
                job.wait()


def read(folder, name):
    with open(os.path.join(folder, name)) as f:
        return f.read()


def succeed(mpi, command, words):
    """The command succeeds as two ranks, and rank 0 prints the words."""
    with started(mpi, [command] * 2) as (jobs, folder):
        codes = [job.wait(timeout=60) for job in jobs]
        text = read(folder, "out-0") + read(folder, "error-0")
        assert not any(codes) and words in text, f"{mpi}: {command}: {codes}\n{text}"
        other = read(folder, "out-1") + read(folder, "error-1")
        assert not other, f"{mpi}: rank 1 prints {other}"


def ended(pid):
    """Whether a process has ended. Its parent may not have read its exit code yet."""
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def fail(mpi, commands, sent, words):
    """Rank 1 gets a signal, or none, and the others end. One of them says the words, unless the launcher ended all."""
    with started(mpi, commands) as (jobs, folder):
        out = os.path.join(folder, "out-0")
        if sent:
            begin = time.monotonic()
            while not (os.path.exists(out) and os.path.getsize(out) > 99):  # they generate
                assert time.monotonic() < begin + 60, f"{mpi}: no text after 60 s"
                time.sleep(0.05)
        pids = [int(read(folder, f"pid-{r}")) for r in range(len(commands))] if sent else []
        if sent:
            os.kill(pids[1], sent)
        begin = time.monotonic()
        while not (all(job.poll() is not None for job in jobs) or
                   pids and all(ended(p) for r, p in enumerate(pids) if r != 1)):
            assert time.monotonic() < begin + LIMIT, f"{mpi}: ranks run {LIMIT} s after {sent or 'their start'}"
            time.sleep(0.05)
        for job in jobs:
            assert job.poll() != 0, f"{mpi}: success after {sent or words}"
        errors = [read(folder, f"error-{r}") for r in range(len(commands)) if r != 1]
        # A launcher of MPI ends all ranks as soon as one is killed, before they can say anything.
        if not (mpi and sent == signal.SIGKILL):
            assert any(words in e for e in errors), f"{mpi}: {words!r} is not in {errors}"


def main(program, model, golden, *mpis):
    with tempfile.TemporaryDirectory() as temp:
        divided, other = os.path.join(temp, "divided"), os.path.join(temp, "other")
        for folder, over in ((divided, "1000"), (other, "1M")):
            subprocess.run([program, "shard", model, "--ranks", "2", "-q", "-o", folder, "--collective-over", over],
                           check=True)
        generate = lambda folder: [program, "generate", folder, "--ids", "1,2,3", "--ignore-eos"]
        for mpi in (None, *mpis):
            succeed(mpi, [program, "diff", divided, "--golden", golden], "PASSED")
            succeed(mpi, [program, "run", divided], "logits")
            succeed(mpi, [program, "bench", divided, "--runs", "3"], "rank-0.onnx")
            succeed(mpi, [*generate(divided), "--max-tokens", "8"], "8 generated")
        for mpi in (None, *mpis):
            endless = [[*generate(divided), "--max-tokens", "1000000"]] * 2
            fail(mpi, endless, signal.SIGKILL, "rank 1 has ended")
            fail(mpi, endless, signal.SIGSTOP, "rank 1 did not answer within 8 s")
            fail(mpi, [generate(divided), generate(other)], None, "rank 1 runs a model of another plan")
            missing = [program, "run", os.path.join(temp, "missing")]
            fail(mpi, [missing, [program, "run", divided]], None, "no such file")
            print(f"{mpi or 'TCP'}: ranks that are killed or stopped, and another model")


if __name__ == "__main__":
    main(*sys.argv[1:])
