package spellings

import (
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// Kind is a kind of block.
type Kind struct {
	// Name describes the block.
	Name string
	// Pattern is the pattern that finds the block.
	Pattern string
	// Within is the pattern that finds it if an inner value has other readers.
	Within string
	// minOpset is the oldest opset for the block.
	minOpset int64
	write    func(w *writer) []*onnx.Value
}

// routes reports whether the block sends tokens to experts.
func (k Kind) routes() bool { return k.Pattern == "MoE" || k.Pattern == "TopKRouter" }

// attends reports whether the block is attention.
func (k Kind) attends() bool { return k.Pattern == "Attention" }

// composed reports whether the kind is one of Composed.
func (k Kind) composed() bool { return strings.HasPrefix(k.Name, composed) }

// Kinds lists the kinds of blocks.
func Kinds() []Kind {
	return []Kind{
		{"RMSNorm", "RMSNorm", "", 13, writeRMSNorm},
		{"RMSNormalization", "RMSNorm", "", 23, writeRMSNormalization},
		{"AddRMSNorm", "AddRMSNorm", "RMSNorm", 13, writeAddRMSNorm},
		{"RMSNorm, gate after", "GatedRMSNorm", "", 13, writeGatedRMSNorm(false)},
		{"RMSNorm, gate before", "GatedRMSNorm", "", 13, writeGatedRMSNorm(true)},
		{"RMSNorm to int8", "NormQuantize", "RMSNorm", 13, writeNormQuantize(onnx.Int8, false)},
		{"RMSNorm to float8", "NormQuantize", "RMSNorm", 19, writeNormQuantize(onnx.Float8E4M3FN, false)},
		{"AddRMSNorm to int8", "NormQuantize", "AddRMSNorm", 13, writeNormQuantize(onnx.Int8, true)},
		{"AddRMSNorm to float8", "NormQuantize", "AddRMSNorm", 19, writeNormQuantize(onnx.Float8E4M3FN, true)},
		{"LayerNorm", "LayerNorm", "", 17, writeLayerNorm},
		{"AddLayerNorm", "AddLayerNorm", "LayerNorm", 13, writeAddLayerNorm},
		{"GELU with a bias, tanh", "BiasGELU", "", 13, writeBiasGELU("tanh")},
		{"GELU with a bias, erf", "BiasGELU", "", 13, writeBiasGELU("erf")},
		{"GELU with a bias, sigmoid", "BiasGELU", "", 13, writeBiasGELU("sigmoid")},
		{"SwiGLU", "SwiGLU", "", 13, writeSwiGLU},
		{"SwiGLU with a factor", "SwiGLU", "", 13, writeQuickGLU},
		{"SwiGLU, the standard's ops", "SwiGLU", "", 24, writeSwish},
		{"SwiGLU, clamped", "ClampedSwiGLU", "", 13, writeClampedSwiGLU},
		{"GeGLU, tanh", "GeGLU", "", 13, writeGeGLU(true)},
		{"GeGLU, erf", "GeGLU", "", 13, writeGeGLU(false)},
		{"rotary, halves", rotary, "", 13, writeRotary(form{wide: true, whole: true})},
		{"rotary, half by half", rotary, "", 13, writeRotary(form{})},
		{"rotary, pairs", rotary, "", 13, writeRotary(form{in: true, out: true, wide: true, whole: true})},
		{"rotary, pair by pair", rotary, "", 13, writeRotary(form{in: true, out: true})},
		{"rotary, pairs to halves", rotary, "", 13, writeRotary(form{in: true})},
		{"rotary, part of the channels", rotary, "", 13, writePartialRotary},
		{"rotary, complex numbers", rotary, "", 13, writeComplexRotary},
		{"RotaryEmbedding", rotary, "", 23, writeRotaryEmbedding},
		{"RMSNorm and rotary", "NormRotary", rotary, 13, writeNormRotary},
		{"attention", "Attention", "", 13, writeAttention},
		{latents, "Attention", "", 13, writeLatent},
		{"linear attention", "LinearAttention", "", 14, writeLinear},
		{"router, scores first", "TopKRouter", "", 13, writeRouter("scores")},
		{"router, choice first", "TopKRouter", "", 13, writeRouter("choice")},
		{"router, corrected choice", "TopKRouter", "", 13, writeRouter("corrected")},
		{"router, groups", "TopKRouter", "", 13, writeRouter("groups")},
		{"router of one expert", "TopKRouter", "", 13, writeRouter("one")},
		{"experts, gathered", "MoE", "", 13, writeGathered},
		{"experts, grouped", "MoE", "", 13, writeGrouped},
		{"experts, masked", "MoE", "", 13, writeDense},
		{"experts, all at once", "MoE", "", 13, writeTogether},
		{"experts, one by one", "MoE", "", 13, writeIndexed},
		{"experts, in branches", "MoE", "", 13, writeBranches},
		{"experts, in a Loop", "MoE", "", 13, writeLoop},
	}
}

const rotary = "RotaryEmbedding"

// writeGatedRMSNorm writes a norm with a SiLU gate before or after it, over all channels or in groups.
func writeGatedRMSNorm(first bool) func(*writer) []*onnx.Value {
	return func(w *writer) []*onnx.Value {
		last, groups := choose(w, 4, 6, 8), choose(w, 1, 1, 2)
		dims := append(w.rows(1, 2, last), dim{"", last})
		n := w.newNorm(dims)
		if w.chance(3) {
			n.scaleType = onnx.Float
		}
		in := w.enter(w.input("x", w.typ, dims), w.input("gate", w.typ, dims), n.scaleOf(n.scaleType, dims))
		x, scale := w.cast(in[0], onnx.Float), in[2]
		a := w.cast(in[1], onnx.Float)
		switch {
		case w.wrong("gate without its sigmoid"):
		case w.wrong("sigmoid without the gate"):
			a = w.op("Sigmoid", a)
		case w.wrong("gate of the other sign"):
			a = w.op("Mul", a, w.sigmoid(w.op("Neg", a), onnx.Float))
		case w.chance(3):
			a = w.op("Div", a, w.onePlusExp(a, onnx.Float))
		default:
			a = w.op("Mul", a, w.sigmoid(a, onnx.Float))
		}
		if first {
			x = w.product(x, a)
		}
		shape := w.op("Shape", choose(w, in[0], x))
		if groups > 1 || w.chance(3) {
			rest := w.op("Slice", shape, w.ints(0), w.ints(-1), w.ints(0))
			x = w.op("Reshape", x, w.op("Concat", rest, w.ints(int64(groups), int64(last/groups)),
				onnx.IntAttr("axis", 0)))
			n.rank, n.size = n.rank+1, last/groups
		}
		y := n.normalize(x, nil)
		grid := n.rank > len(dims) && w.chance(2) // the scale has groups
		if grid {
			scale = w.op("Reshape", scale, w.ints(int64(groups), int64(last/groups)))
		}
		inner := n.scaleType == w.typ && w.chance(2) // the scale follows the cast back
		if inner {
			y = w.cast(y, w.typ)
		} else {
			scale = w.cast(scale, onnx.Float)
		}
		if grid {
			y = w.product(y, scale)
		}
		if n.rank > len(dims) {
			y = w.op("Reshape", y, shape)
		}
		if !grid {
			y = w.product(y, scale)
		}
		if first && inner {
			return []*onnx.Value{y}
		}
		if !first {
			y = w.product(w.cast(y, onnx.Float), a)
		}
		return []*onnx.Value{w.cast(y, w.typ)}
	}
}

// writeNormRotary normalizes the heads and rotates them in any form.
func writeNormRotary(w *writer) []*onnx.Value {
	f := choose(w, form{wide: true, whole: true}, form{}, form{in: true, out: true}, form{in: true},
		form{in: true, out: true, wide: true, whole: true})
	f.partial, f.normed = w.chance(4), true
	return writeRotary(f)(w)
}

// writePartialRotary rotates some of the channels in any form.
func writePartialRotary(w *writer) []*onnx.Value {
	f := choose(w, form{wide: true, whole: true}, form{}, form{in: true, out: true}, form{in: true},
		form{in: true, out: true, wide: true, whole: true})
	f.partial = true
	return writeRotary(f)(w)
}
