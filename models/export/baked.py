#!/usr/bin/env python3
"""Exports models in which the sizes of the example are baked, for `mojo-patch apply --free`.

    baked.py OUT [NAME …]

Each goes to OUT/NAME: model.onnx, golden.npz with PyTorch's outputs, first at the exported sizes and then at others,
and truth.json: which names to free, and whether that must be refused because the file does not say enough.
"""

import json
import pathlib
import sys
import warnings

import numpy as np
import torch
import transformers
from torch import nn
from torch.nn import functional as F

WIDTH, HEADS = 16, 4
made = {}


def add(name, module, example, *, sizes, free="batch,sequence", others=None, exporters=("ts", "dynamo"), dynamic=(),
        refuse=False):
    """Registers exports of a module; example makes its inputs by name from sizes."""
    for e in exporters:
        for kind in [""] + (["-named"] if dynamic and e == "ts" else []):
            made[f"{name}-{e}{kind}"] = (module, example, sizes, others or [], e, dynamic if kind else (), free, refuse)


def vectors(batch, sequence):
    return {"x": torch.randn(batch, sequence, WIDTH)}


def tokens(batch, sequence):
    return {"input_ids": torch.randint(0, 60, (batch, sequence))}


BOTH = {"x": {0: "batch", 1: "sequence"}}
IDS = {"input_ids": {0: "batch", 1: "sequence"}}
OTHERS = [(1, 7), (3, 9), (2, 17), (5, 4)]


class Attention(nn.Module):
    """Attention with the sizes as Python's numbers; the form is how heads are made."""

    def __init__(self, form="view", causal=False, heads=HEADS, width=WIDTH):
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.form, self.causal, self.heads = form, causal, heads

    def forward(self, x):
        b, n, w = map(int, x.shape)
        h, d = self.heads, w // self.heads
        q, k, v = self.qkv(x).chunk(3, -1)
        if self.form == "flat":  # heads times batch
            q, k, v = (t.view(b, n, h, d).transpose(1, 2).reshape(b * h, n, d) for t in (q, k, v))
        else:
            q, k, v = (t.view(b, n, h, d).transpose(1, 2) for t in (q, k, v))
        s = q @ k.transpose(-1, -2) / d**0.5
        if self.causal:
            s = s + torch.full((n, n), float("-inf")).triu(1)
        y = s.softmax(-1) @ v
        if self.form == "flat":
            y = y.view(b, h, n, d)
        return self.out(y.transpose(1, 2).reshape(b, n, w))


class Lambda(nn.Module):
    def __init__(self, f, **parts):
        super().__init__()
        self.f = f
        for k, v in parts.items():
            setattr(self, k, v)

    def forward(self, *args, **kwargs):
        return self.f(self, *args, **kwargs)


def attention_cases():
    add("view", Attention(), vectors, sizes=(2, 10), others=OTHERS, dynamic=BOTH)
    add("causal", Attention(causal=True), vectors, sizes=(2, 10), others=OTHERS, dynamic=BOTH)
    add("flat", Attention("flat", True), vectors, sizes=(3, 6), others=OTHERS, dynamic=BOTH)
    add("batchisheads", Attention(causal=True), vectors, sizes=(4, 6), others=OTHERS, dynamic=BOTH)
    add("lengthiswidth", Attention(causal=True), vectors, sizes=(2, 16), others=OTHERS)
    add("lengthishead", Attention(causal=True), vectors, sizes=(3, 4), others=OTHERS)
    add("one", Attention(causal=True), vectors, sizes=(1, 5), others=OTHERS)


def chunked(m, x):
    b, n, w = map(int, x.shape)
    y = x.view(b, n // 4, 4, w)
    y = (y @ y.transpose(-1, -2)).softmax(-1) @ y
    return m.out(y.reshape(b, n, w))


def cls(m, x):
    b, n, w = map(int, x.shape)
    y = torch.cat([m.token.expand(b, 1, w), x], 1)
    return m.att(y)[:, 0]


def places(m, input_ids):
    n = int(input_ids.shape[1])
    return m.att(m.words(input_ids) + m.places(torch.arange(n)))


def sinusoids(m, x):
    n = int(x.shape[1])
    rates = 10000 ** (-torch.arange(0, WIDTH, 2) / WIDTH)
    angles = torch.arange(n)[:, None] * rates
    return m.att(x + torch.cat([angles.sin(), angles.cos()], -1))


def recurrent(m, x):
    h = torch.zeros(1, int(x.shape[0]), WIDTH)
    return m.rnn(x, h)[0]


def last(m, x):
    b, n, _ = map(int, x.shape)
    return m.att(x)[torch.arange(b), n - 1]


def buffered(m, x):
    n = int(x.shape[1])
    q = x @ x.transpose(-1, -2)
    return q.masked_fill(~m.mask[:n, :n], -1e9).softmax(-1) @ x


def grouped(m, x):
    b, n, w = map(int, x.shape)
    q = m.q(x).view(b, n, 4, 4).transpose(1, 2)
    k = m.k(x).view(b, n, 2, 4).transpose(1, 2)
    k = k[:, :, None].expand(b, 2, 2, n, 4).reshape(b, 4, n, 4)
    s = (q @ k.transpose(-1, -2)).masked_fill(torch.ones(n, n).triu(1).bool(), -1e4)
    return (s.softmax(-1) @ k).transpose(1, 2).reshape(b, n, w)


def mixed(m, x):
    b, n, w = map(int, x.shape)
    y = m.out(x.reshape(b * n, w))
    return F.gelu(y).view(b, n, w)


def image(m, x):
    b = int(x.shape[0])
    return m.out(m.conv(x).relu().view(b, 8 * 4 * 4))


def patches(m, x):
    b = int(x.shape[0])
    y = m.conv(x).flatten(2).transpose(1, 2)
    y = torch.cat([m.token.expand(b, -1, -1), y], 1) + m.places
    return m.att(y)[:, 0]


@torch.jit.script
def sums(x: torch.Tensor, n: int):
    y = torch.zeros_like(x[:, 0])
    out = torch.zeros_like(x[:, 0])
    for i in range(n):
        y = torch.tanh(y + x[:, i])
        out = out * 0.5 + y
    return out


def past(m, x, past_keys, past_values):
    b, n, w = map(int, x.shape)
    p = int(past_keys.shape[2])
    q, k, v = (t.view(b, n, 4, 4).transpose(1, 2) for t in m.qkv(x).chunk(3, -1))
    k, v = torch.cat([past_keys, k], 2), torch.cat([past_values, v], 2)
    mask = torch.arange(p + n)[None, :] > torch.arange(p, p + n)[:, None]
    s = (q @ k.transpose(-1, -2)).masked_fill(mask, -1e4)
    return (s.softmax(-1) @ v).transpose(1, 2).reshape(b, n, w), k, v


def with_past(batch, sequence, past):
    return {"x": torch.randn(batch, sequence, WIDTH), "past_keys": torch.randn(batch, 4, past, 4),
            "past_values": torch.randn(batch, 4, past, 4)}


def block_cases():
    linear = nn.Linear(WIDTH, WIDTH)
    add("chunked", Lambda(chunked, out=linear), vectors, sizes=(2, 12), others=[(1, 8), (3, 16), (2, 4)])
    add("cls", Lambda(cls, token=nn.Parameter(torch.randn(1, 1, WIDTH)), att=Attention()), vectors, sizes=(2, 6),
        others=OTHERS)
    learnt = Lambda(places, words=nn.Embedding(60, WIDTH), places=nn.Embedding(32, WIDTH), att=Attention())
    add("places", learnt, tokens, sizes=(2, 6), free="batch", others=[(1, 6), (5, 6)], dynamic=IDS)
    add("sinusoids", Lambda(sinusoids, att=Attention(causal=True)), vectors, sizes=(2, 10), others=OTHERS)
    add("lstm", Lambda(lambda m, x: m.rnn(x)[0], rnn=nn.LSTM(WIDTH, WIDTH, batch_first=True)), vectors, sizes=(3, 6),
        others=OTHERS, dynamic=BOTH)
    add("gru", Lambda(recurrent, rnn=nn.GRU(WIDTH, WIDTH, batch_first=True)), vectors, sizes=(3, 6), others=OTHERS)
    add("last", Lambda(last, att=Attention()), vectors, sizes=(3, 6), others=OTHERS, dynamic=BOTH)
    add("buffered", Lambda(buffered, mask=torch.ones(32, 32).tril().bool()), vectors, sizes=(2, 6), others=OTHERS)
    add("grouped", Lambda(grouped, q=linear, k=nn.Linear(WIDTH, 8)), vectors, sizes=(2, 7), others=OTHERS, dynamic=BOTH)
    add("mixed", Lambda(mixed, out=linear), vectors, sizes=(4, 5), others=OTHERS, dynamic=BOTH)
    pixels = lambda batch: {"x": torch.randn(batch, 3, 8, 8)}  # noqa: E731
    add("image", Lambda(image, conv=nn.Conv2d(3, 8, 3, 2, 1), out=nn.Linear(128, 5)), pixels, sizes=(8,), free="batch",
        others=[(1,), (3,), (11,)], dynamic={"x": {0: "batch"}})
    add("patches", Lambda(patches, conv=nn.Conv2d(3, 16, 4, 4), token=nn.Parameter(torch.randn(1, 1, WIDTH)),
        places=nn.Parameter(torch.randn(1, 5, WIDTH)), att=Attention()), pixels, sizes=(2,), free="batch",
        others=[(1,), (3,), (5,)])
    add("loop", Lambda(lambda m, x: sums(x, int(x.shape[1]))), vectors, sizes=(2, 6), others=OTHERS, exporters=("ts",))
    add("past", Lambda(past, qkv=nn.Linear(WIDTH, 48)), with_past, sizes=(2, 3, 5), free="batch,sequence,past",
        others=[(1, 1, 9), (3, 4, 2), (2, 6, 11)])


def refused_cases():
    add("bymean", Lambda(lambda m, x: x.sum(1) / int(x.shape[1])), vectors, sizes=(2, 10), others=OTHERS, refuse=True)
    learnt = Lambda(places, words=nn.Embedding(60, WIDTH), places=nn.Embedding(32, WIDTH), att=Attention())
    add("learntplaces", learnt, tokens, sizes=(2, 6), others=OTHERS, refuse=True)
    add("window", Lambda(lambda m, x: windowed(x)), vectors, sizes=(2, 6), others=OTHERS, refuse=True)
    add("unrolled", Lambda(lambda m, x: sum(t * 0.5**i for i, t in enumerate(x.unbind(1)))), vectors, sizes=(2, 5),
        others=OTHERS, refuse=True)
    add("contrast", Lambda(lambda m, x: (x[:, 0] @ x[:, 0].T).softmax(-1) @ x[:, 0] + int(x.shape[0])), vectors,
        sizes=(3, 5), free="batch", others=[(2, 5), (4, 5)], refuse=True)


def windowed(x):
    """The window of 6 is the model's, and the length of the example is as long."""
    n = int(x.shape[1])
    i, j = torch.arange(n)[:, None], torch.arange(n)[None, :]
    seen = (j <= i) & (j > i - 6)
    return (x @ x.transpose(-1, -2)).masked_fill(~seen, -1e9).softmax(-1) @ x


def model_cases():
    small = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48,
             "vocab_size": 64, "attn_implementation": "eager"}
    t = transformers
    llama = t.LlamaForCausalLM(t.LlamaConfig(num_key_value_heads=2, max_position_embeddings=64, **small))
    qwen = t.Qwen2ForCausalLM(t.Qwen2Config(num_key_value_heads=2, max_position_embeddings=64, **small))
    bert = t.BertModel(t.BertConfig(max_position_embeddings=64, **small), add_pooling_layer=False)
    gpt2 = t.GPT2LMHeadModel(t.GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=64, n_positions=64,
                             attn_implementation="eager"))
    out = lambda f: lambda m, input_ids: f(m.model(input_ids=input_ids, **m.more))  # noqa: E731
    for name, model, take, more in [
        ("llama", llama, lambda r: r.logits, {"use_cache": False}), ("qwen2", qwen, lambda r: r.logits,
        {"use_cache": False}), ("gpt2", gpt2, lambda r: r.logits, {"use_cache": False}),
        ("bert", bert, lambda r: r.last_hidden_state, {})]:
        m = Lambda(out(take), model=model)
        m.more = more
        rows = name in ("gpt2", "bert")  # their rows of learnt places are folded
        add(name, m, tokens, sizes=(2, 6), others=[(1, 6), (5, 6)] if rows else OTHERS,
            free="batch" if rows else "batch,sequence")
    vit = t.ViTModel(t.ViTConfig(**{k: v for k, v in small.items() if k != "vocab_size"}, image_size=8, patch_size=4),
                     add_pooling_layer=False)
    add("vit", Lambda(lambda m, x: m.model(pixel_values=x).last_hidden_state, model=vit),
        lambda batch: {"x": torch.randn(batch, 3, 8, 8)}, sizes=(2,), free="batch", others=[(1,), (5,)])


def export(out, name):
    module, example, sizes, others, exporter, dynamic, free, refuse = made[name]
    torch.manual_seed(len(name))
    module.eval()
    given = example(*sizes)
    outputs = module(**given)
    count = len(outputs) if isinstance(outputs, tuple) else 1
    folder = out / name
    folder.mkdir(parents=True, exist_ok=True)
    names = ["y"] if count == 1 else ["y"] + [f"y{i}" for i in range(1, count)]
    options = {"input_names": list(given), "output_names": names, "dynamic_axes": dict(dynamic) or None}
    if exporter == "ts":
        torch.onnx.export(module, tuple(given.values()), folder / "model.onnx", dynamo=False, opset_version=17,
                          **options)
    else:
        torch.onnx.export(module, (), folder / "model.onnx", kwargs=given, dynamo=True, external_data=False,
                          input_names=options["input_names"], output_names=names, verbose=False)
    arrays = {}
    for i, s in enumerate([sizes, *others]):
        given = example(*s)
        y = module(**given)
        for k, v in given.items():
            arrays[f"{i}.in.{k}"] = v.numpy()
        for k, v in zip(names, y if isinstance(y, tuple) else (y,)):
            arrays[f"{i}.out.{k}"] = v.detach().numpy()
    np.savez(folder / "golden.npz", n=np.int64(1 + len(others)), **arrays)
    (folder / "truth.json").write_text(json.dumps({"free": free, "refuse": refuse}))


def main():
    warnings.simplefilter("ignore")
    torch.manual_seed(1)
    for cases in attention_cases, block_cases, refused_cases, model_cases:
        cases()
    out, names = pathlib.Path(sys.argv[1]), sys.argv[2:] or list(made)
    for name in names:
        try:
            with torch.no_grad():
                export(out, name)
        except Exception as e:
            print(f"{name}: {type(e).__name__}: {str(e)[:300]}")
    print(len(list(out.glob("*/truth.json"))), "exports")


main()
