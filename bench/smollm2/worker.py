"""A contender in a separate process, to measure its load time and its memory."""

import multiprocessing
import time


def peak():
    """The most memory that this process ever had resident, in MiB."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM"))


def generate(decoder, prompt, tokens, clock):
    """Seconds of the prefill and of one token, and the tokens."""
    decoder.reset()
    start = clock()
    best = [decoder.step(prompt)]
    middle = clock()
    for _ in range(tokens):
        best.append(decoder.step(best[-1:]))
    return middle - start, (clock() - middle) / tokens, best


def maker(kind):
    """The class that runs a model: kind is "onnxruntime" or "llama"."""
    if kind == "llama":
        from llama import Llama as make
    else:
        from decoder import Decoder as make
    return make


def _serve(pipe, kind, arguments, cpu_time):
    make, clock = maker(kind), time.thread_time if cpu_time else time.perf_counter
    start = clock()
    try:
        decoder = make(**arguments)
    except Exception as error:  # onnxruntime's have no common class
        pipe.send({"error": f"{type(error).__name__}: {error}"})
        return
    pipe.send({"load": clock() - start})
    while job := pipe.recv():
        prompt, tokens = job
        decoder.reset()
        decoder.step(prompt)  # after the others' turns memory has to be brought back, and threads wake up
        prefill, decode, best = generate(decoder, prompt, tokens, clock)
        pipe.send({"prefill": prefill, "decode": decode, "tokens": best, "peak": peak()})


class Worker:
    """kind is "onnxruntime" or "llama"; arguments are for Decoder or Llama. load is the seconds that loading took. With
    cpu_time seconds are CPU seconds of one thread, which computes all.
    """

    def __init__(self, kind, arguments, cpu_time=False):
        if cpu_time:
            arguments = arguments | {"threads": 1}
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, kind, arguments, cpu_time), daemon=True)
        self.process.start()
        theirs.close()
        self.load = self._answer()["load"]

    def _answer(self):
        try:
            answer = self.pipe.recv()
        except EOFError:
            self.process.join()
            raise RuntimeError(f"the process ended with exit code {self.process.exitcode}") from None
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer

    def run(self, prompt, tokens):
        """Prefills and decodes; seconds of the prefill and of one token, the tokens, and the peak of memory."""
        self.pipe.send((prompt, tokens))
        return self._answer()

    def close(self):
        self.pipe.send(None)
        self.process.join()
