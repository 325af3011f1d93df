"""python -m mojo_patch: the program, if its folder is not on PATH."""

import os
import subprocess
import sys

from ._command import find_program

if __name__ == "__main__":
    command = [find_program(), *sys.argv[1:]]
    if os.name == "nt":
        sys.exit(subprocess.call(command))
    os.execv(command[0], command)
