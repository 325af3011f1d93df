"""Markdown tables: medians, with the quartiles in brackets."""

import statistics


def spread(values, digits):
    """The median and the quartiles of values."""
    if len(values) == 1:
        return f"{values[0]:.{digits}f}"
    low, middle, high = (f"{v:.{digits}f}" for v in statistics.quantiles(values, n=4, method="inclusive"))
    return f"{middle} ({low} to {high})"


def table(header, rows):
    """A table whose columns after the first are numbers."""
    lines = [f"| {' | '.join(header)} |", f"| --- |{' ---: |' * (len(header) - 1)}"]
    return "\n".join(lines + [f"| {' | '.join(row)} |" for row in rows]) + "\n"


def agreement(tokens, want):
    """How many tokens equal PyTorch's before the first that differs."""
    equal = next((i for i, (a, b) in enumerate(zip(tokens, want)) if a != b), len(want))
    return f"{equal} of {len(want)}"


def figures(chosen, results, want):
    rows = []
    for c in chosen:
        r = results[c.name]
        patch = "-"
        if c.patch:
            patch = " / ".join(f"{statistics.median(p[k] for p in c.patch):.1f}" for k in ("wall", "cpu"))
        rows.append([
            c.name, "-" if c.nodes is None else str(c.nodes), patch, spread(r["load"], 2), f"{r['peak']:.0f}",
            spread([1000 * s for s in r["prefill"]], 0), spread([1 / s for s in r["decode"]], 1),
            agreement(r["tokens"], want),
        ])  # fmt: skip
    header = [
        "",
        "nodes",
        "patching, s: wall / CPU",
        "load, s",
        "peak memory, MiB",
        "prefill of 128, ms",
        "decode of 64, tokens/s",
        "tokens as PyTorch's",
    ]
    return table(header, rows)


def ratios(chosen, results):
    """Speeds relative to the first model in the same round; above 1 is faster."""
    base, rows = results[chosen[0].name], []
    for c in chosen[1:]:
        r = results[c.name]
        rows.append([c.name] + [spread([a / b for a, b in zip(base[k], r[k])], 2) for k in ("prefill", "decode")])
    return table([f"speed over {chosen[0].name}, within rounds", "prefill", "decode"], rows)


def kinds(profiles):
    """Number, milliseconds and share of the nodes of each kind in a run; kinds below 1 % everywhere are one row."""
    columns = [(name, part) for part in ("decode", "prefill") for name in profiles]
    found = {column: profiles[column[0]][column[1]]["kinds"] for column in columns}
    totals = {column: sum(ms for _, ms in kinds.values()) for column, kinds in found.items()}
    every = sorted({k for kinds in found.values() for k in kinds}, key=lambda k: -found[columns[0]].get(k, (0, 0))[1])
    large = [k for k in every if any(found[c].get(k, (0, 0))[1] >= 0.01 * totals[c] for c in columns)]

    def cell(column, names):
        entries = [found[column][k] for k in names if k in found[column]]
        if not entries:
            return "-"
        count, ms = sum(n for n, _ in entries), sum(t for _, t in entries)
        return f"{count:.0f}: {ms:.2f} ms, {100 * ms / totals[column]:.1f} %"

    rows = [[k] + [cell(c, [k]) for c in columns] for k in large]
    rest = [k for k in every if k not in large]
    rows.append([f"{len(rest)} other kinds"] + [cell(c, rest) for c in columns])
    rows.append(["all nodes"] + [cell(c, every) for c in columns])
    rows.append(["the run"] + [f"{profiles[n][p]['run']:.2f} ms" for n, p in columns])
    return table(["nodes: time in a run"] + [f"{part}, {name}" for name, part in columns], rows)
