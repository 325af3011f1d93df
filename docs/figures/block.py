#!/usr/bin/env python3
"""Draws the MLP of a Llama block before and after apply: writes block-light.svg and block-dark.svg beside itself."""
from pathlib import Path

THEMES = {
    "light": {"text": "#1f2328", "line": "#8c959f", "plain": "#f6f8fa", "edge": "#d0d7de", "fused": "#ddf4ff",
              "fused_edge": "#54aeff", "kept": "#fff8c5", "kept_edge": "#d4a72c"},
    "dark": {"text": "#e6edf3", "line": "#6e7681", "plain": "#161b22", "edge": "#3d444d", "fused": "#0d2d4f",
             "fused_edge": "#388bfd", "kept": "#2d2a12", "kept_edge": "#9e6a03"},
}
WIDTH, HEIGHT, BOX_W, BOX_H = 760, 584, 104, 26

# Nodes as (name, op, x, y, kind); edges as (from, to). "in" and "out" names are values.
BEFORE = [
    ("x", "x", 60, 44, "value"), ("attention", "attention", 180, 44, "value"),
    ("add", "Add", 120, 88, "norm"), ("pow", "Pow", 200, 124, "norm"), ("mean", "ReduceMean", 200, 160, "norm"),
    ("eps", "Add", 200, 196, "norm"), ("sqrt", "Sqrt", 200, 232, "norm"), ("rec", "Reciprocal", 200, 268, "norm"),
    ("mul", "Mul", 120, 304, "norm"), ("scale", "Mul", 120, 340, "norm"),
    ("gate", "MatMul", 60, 384, "kept"), ("up", "MatMul", 240, 384, "kept"),
    ("sigmoid", "Sigmoid", 126, 424, "glu"), ("silu", "Mul", 60, 464, "glu"), ("product", "Mul", 150, 508, "glu"),
    ("down", "MatMul", 150, 552, "kept"),
]
BEFORE_EDGES = [
    ("x", "add"), ("attention", "add"), ("add", "pow"), ("pow", "mean"), ("mean", "eps"), ("eps", "sqrt"),
    ("sqrt", "rec"), ("add", "mul"), ("rec", "mul"), ("mul", "scale"), ("scale", "gate"), ("scale", "up"),
    ("gate", "sigmoid"), ("gate", "silu"), ("sigmoid", "silu"), ("silu", "product"), ("up", "product"),
    ("product", "down"),
]
AFTER = [
    ("x", "x", 540, 44, "value"), ("attention", "attention", 660, 44, "value"),
    ("norm", "AddRMSNorm", 600, 214, "fused"), ("gate", "MatMul", 530, 384, "kept"), ("up", "MatMul", 670, 384, "kept"),
    ("glu", "GLU", 600, 466, "fused"), ("down", "MatMul", 600, 552, "kept"),
]
AFTER_EDGES = [
    ("x", "norm"),
    ("attention", "norm"),
    ("norm", "gate"),
    ("norm", "up"),
    ("gate", "glu"),
    ("up", "glu"),
    ("glu", "down"),
]
FILLS = {"norm": "fused", "glu": "fused", "fused": "fused", "kept": "kept", "value": "plain"}


def edge(a, b, colors):
    """A line from the bottom of one box to the top of another."""
    (_, _, x1, y1, _), (_, _, x2, y2, _) = a, b
    top, bottom = y1 + BOX_H / 2, y2 - BOX_H / 2 - 2
    bend = (top + bottom) / 2
    return (f'<path d="M{x1} {top} C{x1} {bend} {x2} {bend} {x2} {bottom}" fill="none" stroke="{colors["line"]}" '
            f'stroke-width="1.2" marker-end="url(#tip)"/>')


def box(node, colors):
    _, op, x, y, kind = node
    fill = FILLS[kind]
    stroke, dash, weight = colors.get(fill + "_edge", colors["edge"]), "", "400"
    if kind in ("norm", "glu"):
        fill, dash = "plain", ' stroke-dasharray="4 2"'
    if kind == "fused":
        weight = "600"
    width = BOX_W if kind != "value" else 80
    return (f'<rect x="{x - width / 2}" y="{y - BOX_H / 2}" width="{width}" height="{BOX_H}" rx="6" '
            f'fill="{colors[fill]}" stroke="{stroke}"{dash}/>'
            f'<text x="{x}" y="{y + 4}" text-anchor="middle" font-weight="{weight}">{op}</text>')


def draw(colors):
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace" font-size="12" '
        f'fill="{colors["text"]}">',
        "<title>The MLP of a Llama block as torch.onnx exports it, and after mojo-patch apply</title>",
        f'<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" markerHeight="6" orient="auto">'
        f'<path d="M0 0 L8 4 L0 8 z" fill="{colors["line"]}"/></marker></defs>',
        '<g font-family="system-ui, sans-serif" font-size="14" font-weight="600" text-anchor="middle">'
        '<text x="150" y="18">as exported: 14 nodes</text><text x="600" y="18">patched: 5 nodes</text></g>',
        f'<g font-family="system-ui, sans-serif" font-size="14" text-anchor="middle">'
        f'<text x="400" y="268">mojo-patch apply</text>'
        f'<path d="M335 284 H460" stroke="{colors["line"]}" stroke-width="2" marker-end="url(#tip)"/></g>',
    ]
    for nodes, edges in ((BEFORE, BEFORE_EDGES), (AFTER, AFTER_EDGES)):
        by_name = {n[0]: n for n in nodes}
        parts += [edge(by_name[a], by_name[b], colors) for a, b in edges]
        parts += [box(n, colors) for n in nodes]
    return "\n".join(parts + ["</svg>", ""])


for name, colors in THEMES.items():
    (Path(__file__).parent / f"block-{name}.svg").write_text(draw(colors))
