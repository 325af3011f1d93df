"""Runs one rank of a model that was divided by `mojo-patch shard`, and compares with recorded outputs.

usage: torchrun --nproc-per-node 2 --no-python python sharded.py FOLDER GOLDEN.npz, or mpirun -n 2 python sharded.py …
(pip install onnxruntime numpy, and the wheel of `make wheel`)
"""

import os
import sys
from pathlib import Path

import mojo_patch
import numpy as np
import onnxruntime as ort

# Every launcher says which rank it started. The kernels read the same variables, and connect the ranks.
RANKS = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "RANK", "SLURM_PROCID")
rank = next((int(os.environ[name]) for name in RANKS if name in os.environ), None)
if rank is None:
    sys.exit("start this program with mpirun, torchrun or srun")

options = ort.SessionOptions()
options.register_custom_ops_library(mojo_patch.get_library_path())
model = Path(sys.argv[1]) / f"rank-{rank}.onnx"
session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])

# All ranks run on the same inputs. (A rank of a model with caches has its own heads in them.)
golden = np.load(sys.argv[2])
logits = session.run(["logits"], {x.name: golden[f"0.in.{x.name}"] for x in session.get_inputs()})[0]

want = golden["0.out.logits"]
difference = np.abs(logits - want).max() / np.abs(want).max()
if rank == 0:
    print(f"logits: largest difference {difference:.2g} of the largest magnitude")
if not difference < 1e-5:
    sys.exit(f"rank {rank}: that is too much")
