package spellings

import (
	"strings"

	"github.com/mojo-patch/mojo-patch/internal/spellings/blocks"
	"github.com/mojo-patch/mojo-patch/internal/spellings/experts"
	"github.com/mojo-patch/mojo-patch/internal/spellings/writer"
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
	write    func(w *writer.Writer) []*onnx.Value
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
		{"RMSNorm", "RMSNorm", "", 13, blocks.WriteRMSNorm},
		{"RMSNormalization", "RMSNorm", "", 23, blocks.WriteRMSNormalization},
		{"AddRMSNorm", "AddRMSNorm", "RMSNorm", 13, blocks.WriteAddRMSNorm},
		{"RMSNorm, gate after", "GatedRMSNorm", "", 13, blocks.WriteGatedRMSNorm(false)},
		{"RMSNorm, gate before", "GatedRMSNorm", "", 13, blocks.WriteGatedRMSNorm(true)},
		{"RMSNorm to int8", "NormQuantize", "RMSNorm", 13, blocks.WriteNormQuantize(onnx.Int8, false)},
		{"RMSNorm to float8", "NormQuantize", "RMSNorm", 19, blocks.WriteNormQuantize(onnx.Float8E4M3FN, false)},
		{"AddRMSNorm to int8", "NormQuantize", "AddRMSNorm", 13, blocks.WriteNormQuantize(onnx.Int8, true)},
		{"AddRMSNorm to float8", "NormQuantize", "AddRMSNorm", 19, blocks.WriteNormQuantize(onnx.Float8E4M3FN, true)},
		{"LayerNorm", "LayerNorm", "", 17, blocks.WriteLayerNorm},
		{"AddLayerNorm", "AddLayerNorm", "LayerNorm", 13, blocks.WriteAddLayerNorm},
		{"GELU with a bias, tanh", "BiasGELU", "", 13, blocks.WriteBiasGELU("tanh")},
		{"GELU with a bias, erf", "BiasGELU", "", 13, blocks.WriteBiasGELU("erf")},
		{"GELU with a bias, sigmoid", "BiasGELU", "", 13, blocks.WriteBiasGELU("sigmoid")},
		{"SwiGLU", "SwiGLU", "", 13, blocks.WriteSwiGLU},
		{"SwiGLU with a factor", "SwiGLU", "", 13, blocks.WriteQuickGLU},
		{"SwiGLU, the standard's ops", "SwiGLU", "", 24, blocks.WriteSwish},
		{"SwiGLU, clamped", "ClampedSwiGLU", "", 13, blocks.WriteClampedSwiGLU},
		{"GeGLU, tanh", "GeGLU", "", 13, blocks.WriteGeGLU(true)},
		{"GeGLU, erf", "GeGLU", "", 13, blocks.WriteGeGLU(false)},
		{"rotary, halves", rotary, "", 13, blocks.WriteRotary(blocks.Form{Wide: true, Whole: true})},
		{"rotary, half by half", rotary, "", 13, blocks.WriteRotary(blocks.Form{})},
		{"rotary, pairs", rotary, "", 13, blocks.WriteRotary(blocks.Form{In: true, Out: true, Wide: true,
			Whole: true})},
		{"rotary, pair by pair", rotary, "", 13, blocks.WriteRotary(blocks.Form{In: true, Out: true})},
		{"rotary, pairs to halves", rotary, "", 13, blocks.WriteRotary(blocks.Form{In: true})},
		{"rotary, part of the channels", rotary, "", 13, blocks.WritePartialRotary},
		{"rotary, complex numbers", rotary, "", 13, blocks.WriteComplexRotary},
		{"RotaryEmbedding", rotary, "", 23, blocks.WriteRotaryEmbedding},
		{"RMSNorm and rotary", "NormRotary", rotary, 13, blocks.WriteNormRotary},
		{"attention", "Attention", "", 13, blocks.WriteAttention},
		{blocks.Latents, "Attention", "", 13, blocks.WriteLatent},
		{"linear attention", "LinearAttention", "", 14, blocks.WriteLinear},
		{"router, scores first", "TopKRouter", "", 13, experts.WriteRouter("scores")},
		{"router, choice first", "TopKRouter", "", 13, experts.WriteRouter("choice")},
		{"router, corrected choice", "TopKRouter", "", 13, experts.WriteRouter("corrected")},
		{"router, groups", "TopKRouter", "", 13, experts.WriteRouter("groups")},
		{"router of one expert", "TopKRouter", "", 13, experts.WriteRouter("one")},
		{"experts, gathered", "MoE", "", 13, experts.WriteGathered},
		{"experts, grouped", "MoE", "", 13, experts.WriteGrouped},
		{"experts, masked", "MoE", "", 13, experts.WriteDense},
		{"experts, all at once", "MoE", "", 13, experts.WriteTogether},
		{"experts, one by one", "MoE", "", 13, experts.WriteIndexed},
		{"experts, in branches", "MoE", "", 13, experts.WriteBranches},
		{"experts, in a Loop", "MoE", "", 13, experts.WriteLoop},
	}
}

const rotary = "RotaryEmbedding"

// Composed lists kinds whose spellings are not chosen from a list of forms: an identity of algebra writes each step of
// a block's formula, and other identities write its steps in turn. Possibly no exporter ever wrote the result, so a
// pattern need not know it; Pattern is the op that it should become.
func Composed() []Kind {
	return []Kind{
		{composed + "RMSNorm", "RMSNorm", "", 13, blocks.WriteComposedNorm},
		{composed + "gated unit", "GLU", "", 13, blocks.WriteComposedGate},
		{composed + "rotary embedding", rotary, "", 13, blocks.WriteComposedRotary},
		{composed + "router", "TopKRouter", "", 13, experts.WriteComposedRouter},
	}
}

const composed = "composed "
