"""Checks what ptxas -v said of the CUDA kernels: no spills, and no more registers or shared memory than the budget.

    python check_ptxas.py BUDGET LOG...            exits with 1 on a kernel that spills or is over its budget
    python check_ptxas.py --write BUDGET LOG...    writes the budget that holds now, to be read before it is committed

A line of BUDGET is a kernel's function name, its registers for a thread, and its static shared memory for a block, in
bytes; they hold for every instance of a template and every machine code. A fourth column, a list such as 80,100, says
that the line holds for those capabilities alone. Registers are given out in eights, so a budget is a multiple of 8 (or
255, the most there are). # begins a comment. A kernel without a line, and a line without a kernel, are errors.
"""
import re
import sys

ENTRY = re.compile(r"Compiling entry function '(\S+)' for 'sm_(\w+)'")
SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"Used (\d+) registers")
SHARED = re.compile(r"(\d+) bytes smem")


def function(mangled):
    """The name of a function, without namespaces and template arguments."""
    rest = mangled[2:] if mangled.startswith("_Z") else ""
    name = mangled
    rest = re.sub(r"^NK?", "", rest)
    while found := re.match(r"L?(\d+)", rest):
        size = int(found[1])
        name, rest = rest[found.end():found.end() + size], rest[found.end() + size:]
    return name


def kernels(paths):
    """Yields (function, capability, registers, shared memory, spilled bytes, mangled name) of the logs."""
    for path in paths:
        entry, spilled = None, 0
        with open(path) as log:
            for line in log:
                if found := ENTRY.search(line):
                    entry, spilled = found, 0
                elif entry and (found := SPILLS.search(line)):
                    spilled = int(found[2]) + int(found[3])
                elif entry and (found := USED.search(line)):
                    shared = SHARED.search(line)
                    yield (
                        function(entry[1]),
                        entry[2],
                        int(found[1]),
                        int(shared[1]) if shared else 0,
                        spilled,
                        entry[1],
                    )
                    entry = None


def read(path):
    """The lines of a budget: (function, set of capabilities or None, registers, shared memory)."""
    lines = []
    with open(path) as file:
        for number, line in enumerate(file, 1):
            fields = line.split("#")[0].split()
            if not fields:
                continue
            try:
                name, registers, shared, *where = fields
                lines.append((name, set(where[0].split(",")) if where else None, int(registers), int(shared)))
            except ValueError:
                sys.exit(f"{path}:{number}: expected NAME REGISTERS SHARED [CAPABILITIES], found {line.strip()!r}")
    return lines


def main():
    arguments = sys.argv[1:]
    write = arguments[:1] == ["--write"]
    if write:
        arguments = arguments[1:]
    if len(arguments) < 2:
        sys.exit(__doc__)
    path, *logs = arguments
    found = list(kernels(logs))
    if write:
        most = {}
        for name, _, registers, shared, _, _ in found:
            before = most.get(name, (0, 0))
            most[name] = max(before[0], min(255, -(-registers // 8) * 8)), max(before[1], shared)
        with open(path, "w") as file:
            file.write("# What each kernel may use: tools/check_ptxas.py explains the columns.\n")
            file.write("# name, registers of a thread, bytes of static shared memory of a block\n")
            for name, (registers, shared) in sorted(most.items()):
                file.write(f"{name:40} {registers:4} {shared:6}\n")
        return
    budget = read(path)
    wrong, met, missing = [], set(), {}
    for name, capability, registers, shared, spilled, mangled in found:
        at = f"{name} for sm_{capability} ({mangled})"
        if spilled:
            wrong.append(f"{at} spills {spilled} bytes")
        lines = [b for b in budget if b[0] == name and (b[1] is None or capability in b[1])]
        # A line for the capability goes before one for all.
        lines.sort(key=lambda b: b[1] is None)
        if not lines:
            before = missing.get(name, (0, 0))
            missing[name] = max(before[0], registers), max(before[1], shared)
            continue
        met.update(b[0] for b in lines)
        _, _, most, most_shared = lines[0]
        if registers > most:
            wrong.append(f"{at} uses {registers} registers, {most} are its budget")
        if shared > most_shared:
            wrong.append(f"{at} uses {shared} bytes of shared memory, {most_shared} are its budget")
    for name, (registers, shared) in missing.items():
        wrong.append(
            f"{name} has no line in {path}: it uses up to {registers} registers and {shared} bytes of shared memory"
        )
    for name in dict.fromkeys(b[0] for b in budget):
        if name not in met:
            wrong.append(f"{path} has a line for {name}, and there is no such kernel")
    if not found:
        wrong.append("there is no kernel in the logs")
    for line in wrong:
        print(line)
    if wrong:
        sys.exit(1)
    print(f"{len(found)} CUDA kernels of {len(met)} functions: no spills, all within {path}")


if __name__ == "__main__":
    main()
