package spellings

import "github.com/mojo-patch/mojo-patch/onnx"

// Kind is a kind of block.
type Kind struct {
	// Name says what is spelled.
	Name string
	// Pattern is the pattern that finds it.
	Pattern string
	// Within is the pattern that takes its place where others read a value inside.
	Within string
	// minOpset is the oldest opset that the block is written for.
	minOpset int64
	write    func(w *writer) []*onnx.Value
}

// routes reports whether tokens are sent to experts.
func (k Kind) routes() bool { return k.Pattern == "MoE" || k.Pattern == "TopKRouter" }

// Kinds lists the kinds of blocks.
func Kinds() []Kind {
	return []Kind{
		{"RMSNorm", "RMSNorm", "", 13, writeRMSNorm},
		{"RMSNormalization", "RMSNorm", "", 23, writeRMSNormalization},
		{"AddRMSNorm", "AddRMSNorm", "RMSNorm", 13, writeAddRMSNorm},
		{"LayerNorm", "LayerNorm", "", 17, writeLayerNorm},
		{"SwiGLU", "SwiGLU", "", 13, writeSwiGLU},
		{"SwiGLU with a factor", "SwiGLU", "", 13, writeQuickGLU},
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

// writeNormRotary normalises the heads and rotates them in any of the forms.
func writeNormRotary(w *writer) []*onnx.Value {
	f := choose(w, form{wide: true, whole: true}, form{}, form{in: true, out: true}, form{in: true},
		form{in: true, out: true, wide: true, whole: true})
	f.partial, f.normed = w.chance(4), true
	return writeRotary(f)(w)
}

// writePartialRotary rotates some of the channels in any of the forms.
func writePartialRotary(w *writer) []*onnx.Value {
	f := choose(w, form{wide: true, whole: true}, form{}, form{in: true, out: true}, form{in: true},
		form{in: true, out: true, wide: true, whole: true})
	f.partial = true
	return writeRotary(f)(w)
}
