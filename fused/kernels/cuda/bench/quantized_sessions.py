"""QMoE and Linear beside onnxruntime's own ops for quantized weights, in sessions of its CUDA provider, in one run.

    python quantized_sessions.py libmojo_ops_cuda.so [--only mxfp4,int4,e4m3,linear] [--tokens 1,8,64,512,4096]
        [--rounds 15]

  com.microsoft.QMoE                            experts: MXFP4 (fp4), whole numbers in blocks of 32 (int4), E4M3 with
                                                scales for 128 x 128 (fp8, which the wheel of 1.31.1 is built without);
                                                activations are not rounded
  com.microsoft.MatMulNBits                     whole numbers in blocks of 32, 4 and 8 bits
  com.microsoft.MatMulBlockQuantizedFp8Weight   E4M3 with scales for 128 columns; activations are not rounded

Weights are in the models, so that onnxruntime may repack them. A time is that between events around the replay of a
CUDA graph, after L2 was emptied; every round times each contender, and the number is the median. Each is checked
against float32. onnxruntime's QMoE takes logits: its softmax and top k are in its time.
"""
import argparse
import statistics

import onnxruntime
import sessions
import torch
from moe_peers import Clock, Inputs, Shape, activated, cells, print_row, table
from onnx import helper

E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
EXPERTS = {"gpt-oss-20b": Shape(32, 4, 2880, 2880, True), "deepseek-v3, an eighth": Shape(256, 8, 7168, 256)}


class Matrices:
    """Random weights of a format: [experts, n, k], as numbers and as the ops store them."""

    def __init__(self, kind, experts, n, k):
        self.kind, self.n, self.k = kind, n, k
        size = (experts, n, k)
        spread = k**-0.5
        if kind == "mxfp4":
            self.codes = torch.randint(0, 16, size, device="cuda", dtype=torch.uint8)
            self.scale = torch.randint(119, 122, (experts, n, k // 32), device="cuda", dtype=torch.uint8)
        elif kind == "e4m3":
            self.codes = torch.randn(size, device="cuda", dtype=torch.bfloat16).to(torch.float8_e4m3fn)
            self.scale = (torch.rand(experts, -(-n // 128), k // 128, device="cuda") + 0.5) * spread
        else:
            bits, block = kind
            self.codes = torch.randint(0, 2**bits, size, device="cuda", dtype=torch.uint8)
            scale = (torch.rand(experts, n, k // block, device="cuda") + 0.5) * 4 * spread / 2**bits
            self.scale = scale.bfloat16().half()  # exact in both

    def number(self, expert):
        """A matrix in float32."""
        codes, scale = self.codes[expert], self.scale[expert]
        if self.kind == "mxfp4":
            values = torch.cat([E2M1, -E2M1]).cuda()[codes.int()]
            return (values.view(self.n, -1, 32) * torch.exp2(scale.float() - 127)[..., None]).view(self.n, self.k)
        if self.kind == "e4m3":
            rows = scale.repeat_interleave(128, 0)[:self.n]
            return codes.float() * rows.repeat_interleave(128, 1)
        bits, block = self.kind
        values = codes.float() - 2**(bits - 1)
        return (values.view(self.n, -1, block) * scale.float()[..., None]).view(self.n, self.k)

    def panels(self):
        """Codes and scales as mojo.Linear stores them, of each expert."""
        e, n, k = self.codes.shape
        p, b = n // 16, k // 32
        codes = self.codes.view(torch.uint8)
        if self.kind == "e4m3" or self.kind[0] == 8:
            words = codes.view(e, p, 16, b, 8, 4)
        else:
            halves = codes.view(e, p, 16, b, 2, 4, 4)
            words = halves[:, :, :, :, 0] | halves[:, :, :, :, 1] << 4
        codes = words.permute(0, 1, 3, 4, 2, 5).reshape(e, p, b, -1, 64).contiguous()
        if self.kind == "e4m3":
            return codes, self.scale.repeat_interleave(8, 1)[:, :p, :, None].contiguous()
        return codes, self.scale.view(e, p, 16, -1).transpose(2, 3).contiguous()

    def rows(self):
        """Codes of rows, two in a byte if they have 4 bits."""
        if self.kind == "e4m3" or self.kind[0] == 8:
            return self.codes
        return self.codes[..., 0::2] | self.codes[..., 1::2] << 4

    def columns(self):
        """Codes of columns, two rows' in a byte: [experts, k, n / 2], as QMoE has MXFP4."""
        turned = self.codes.transpose(1, 2)
        return turned[..., 0::2] | turned[..., 1::2] << 4

    def attributes(self, prefix=""):
        """Attributes of mojo.Linear, or of QMoE's matrix."""
        code, zero, block = {"mxfp4": ("e2m1", 0, 32), "e4m3": ("e4m3", 0, 128)}.get(self.kind) or (
            f"int{self.kind[0]}", 2**(self.kind[0] - 1), self.kind[1])
        return {f"{prefix}code": code, f"{prefix}zero": zero, f"{prefix}block": block}

    def activations(self):
        return "fp8" if self.kind == "e4m3" else "float"


def close(got, want, most):
    off = ((got.float() - want).norm() / want.norm()).item()
    if not off < most:
        raise RuntimeError(f"wrong: relative error {off:.2g}")
    return off


def attempt(name, make, said):
    try:
        return make()
    except Exception as error:
        torch.cuda.synchronize()
        said.append(f"{name}: {type(error).__name__}: {str(error)[:300]}")
        return None


def timed(nodes, y, want, stream, clock, rounds, said):
    """Microseconds of (node, feeds, weights, library, allowed error) by name."""
    calls = {}
    for name, (node, feeds, weights, library, most) in nodes.items():
        def make():
            y.fill_(float("nan"))
            torch.cuda.synchronize()
            call = sessions.session(node, feeds, {"y": y}, stream, library, weights)
            return call, close(y, want, most)
        if made := attempt(name, make, said):
            calls[name] = made[0]
            said.append(f"{name}: relative error {made[1]:.2g}")
    us = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            us[name].append(clock.once(call, stream))
    return {name: statistics.median(t) for name, t in us.items()}


def reference(shape, up, down, biases, inputs):
    x, y = inputs.x.float(), torch.zeros(inputs.x.shape, device="cuda")
    for e in inputs.ids.unique().tolist():
        token, slot = torch.where(inputs.ids == e)
        h = x[token] @ up.number(e).T + biases[0][e]
        gate, lift = (h[:, 0::2], h[:, 1::2])
        out = activated(gate, lift, shape.clamped) @ down.number(e).T + biases[1][e]
        y.index_add_(0, token, out * inputs.weights[token, slot, None])
    return y


def experts_nodes(shape, up, down, biases, inputs, library):
    """Ours and theirs, with interleaved gate and up."""
    alpha, limit, offset = shape.activation()
    names = [m + "_" + part for m in ("gate_up", "down") for part in ("codes", "scale")]
    inputs_of = ["x", "weights", "ids", *names, *[""] * 6, "gate_up_bias", "down_bias"]
    ours = helper.make_node("QMoE", inputs_of, ["y"], domain="mojo", activation="silu", alpha=alpha, limit=limit,
                            up_offset=offset, packing="interleaved", hidden=shape.hidden, inner=shape.inner,
                            activations=up.activations(), **up.attributes("gate_up_"), **down.attributes("down_"))
    weights = dict(zip(names, (*up.panels(), *down.panels())), gate_up_bias=biases[0], down_bias=biases[1])
    feeds = {"x": inputs.x, "weights": inputs.weights, "ids": inputs.ids}
    nodes = {"mojo.QMoE": (ours, feeds, weights, library, 5e-2 if up.kind == "e4m3" else 2e-2)}
    kind = {"mxfp4": "fp4", "e4m3": "fp8"}.get(up.kind, "int")
    ends = ["globals1", "globals2"] if kind == "fp4" else []
    more = {"weights_prepacked": 0} if kind == "int" else {}
    if limit:
        more["swiglu_limit"] = limit
    theirs = helper.make_node("QMoE", ["x", "logits", "fc1", "fc1_scales", "fc1_bias", "fc2", "fc2_scales", "fc2_bias",
                                       *[""] * 7, *ends][:None if ends else 8], ["y"], domain="com.microsoft",
                              k=shape.k, activation_type="swiglu", swiglu_fusion=1, activation_alpha=alpha,
                              activation_beta=offset, normalize_routing_weights=1, quant_type=kind,
                              expert_weight_bits=8 if kind == "fp8" else 4,
                              block_size=128 if kind == "fp8" else 32, **more)
    stored = {}
    for name, m in (("fc1", up), ("fc2", down)):
        stored[name] = m.columns() if m.kind == "mxfp4" else m.rows()
        stored[name + "_scales"] = m.scale.view(torch.float8_e8m0fnu) if m.kind == "mxfp4" else (
            m.scale if m.kind == "e4m3" else m.scale.bfloat16())
    stored["fc1_bias"], stored["fc2_bias"] = biases[0].bfloat16(), biases[1].bfloat16()
    if up.kind == "mxfp4":
        stored["globals1"] = stored["globals2"] = torch.ones(shape.experts, device="cuda")
    feeds = {"x": inputs.x, "logits": inputs.logits(shape)}
    nodes["com.microsoft.QMoE"] = theirs, feeds, stored, None, 2e-2
    return nodes


def time_experts(options, clock, stream, said):
    table(["experts, k, H, I", "weights", "T", "mojo.QMoE", "com.microsoft.QMoE", "ours over theirs"])
    for name, kind in (("gpt-oss-20b", "mxfp4"), ("gpt-oss-20b", (4, 32)), ("deepseek-v3, an eighth", "e4m3")):
        if (kind if isinstance(kind, str) else "int4") not in options.only:
            continue
        shape = EXPERTS[name]
        up = Matrices(kind, shape.experts, 2 * shape.inner, shape.hidden)
        down = Matrices(kind, shape.experts, shape.hidden, shape.inner)
        biases = [0.1 * torch.randn(shape.experts, n, device="cuda").bfloat16().float()
                  for n in (2 * shape.inner, shape.hidden)]
        for tokens in options.tokens:
            inputs = Inputs(shape, tokens)
            inputs.weights = inputs.weights.bfloat16().float()
            want = reference(shape, up, down, biases, inputs)
            nodes = experts_nodes(shape, up, down, biases, inputs, options.library)
            here = []
            us = timed(nodes, torch.empty_like(inputs.x), want, stream, clock, options.rounds, here)
            said += [f"{name} {kind} T {tokens}, {text}" for text in here]
            print_row(shape, kind, tokens, *cells(nodes, us), *over(us, list(nodes)))
            torch.cuda.empty_cache()


def over(us, names):
    return [f"{us[names[0]] / us[names[1]]:.2f}" if len(us) == 2 else "-"]


def time_linear(options, clock, stream, said):
    table(["weights", "[n, k]", "T", "mojo.Linear", "onnxruntime's", "ours over theirs"])
    for kind in ((4, 32), (8, 32), "e4m3"):
        for n, k in ((4096, 4096), (14336, 4096)):
            m = Matrices(kind, 1, n, k)
            codes, scale = (t[0].contiguous() for t in m.panels())
            ours = helper.make_node("Linear", ["x", "codes", "scale"], ["y"], domain="mojo", n=n, k=k,
                                    activations=m.activations(), **m.attributes())
            if kind == "e4m3":
                theirs = helper.make_node("MatMulBlockQuantizedFp8Weight", ["x", "b", "scales"], ["y"],
                                          domain="com.microsoft", block_size=128)
                stored = {"b": m.codes[0], "scales": m.scale[0].repeat_interleave(128, 0)[:n].contiguous()}
            else:
                theirs = helper.make_node("MatMulNBits", ["x", "b", "scales"], ["y"], domain="com.microsoft", N=n, K=k,
                                          bits=kind[0], block_size=kind[1])
                stored = {"b": m.rows()[0].view(n, k // kind[1], -1), "scales": m.scale[0].bfloat16()}
            for tokens in options.tokens:
                x = torch.randn(tokens, k, device="cuda", dtype=torch.bfloat16)
                want, y = x.float() @ m.number(0).T, torch.empty(tokens, n, device="cuda", dtype=torch.bfloat16)
                nodes = {"mojo.Linear": (ours, {"x": x}, {"codes": codes, "scale": scale}, options.library,
                                         5e-2 if kind == "e4m3" else 1e-2),
                         "onnxruntime": (theirs, {"x": x}, stored, None, 1e-2)}
                here = []
                us = timed(nodes, y, want, stream, clock, options.rounds, here)
                said += [f"linear {kind} {n} {k} T {tokens}, {text}" for text in here]
                print_row(kind, [n, k], tokens, *cells(nodes, us), *over(us, list(nodes)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library")
    parser.add_argument("--only", default="mxfp4,int4,e4m3,linear")
    parser.add_argument("--tokens", default="1,8,64,512,4096")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    options.tokens = [int(t) for t in options.tokens.split(",")]
    torch.manual_seed(1)
    print(f"{torch.cuda.get_device_name()}, onnxruntime {onnxruntime.__version__}; bfloat16, microseconds\n")
    clock, stream, said = Clock(), torch.cuda.Stream(), []
    with torch.no_grad():
        time_experts(options, clock, stream, said)
        if "linear" in options.only:
            print()
            time_linear(options, clock, stream, said)
    print()
    print("\n".join(said))


if __name__ == "__main__":
    main()
