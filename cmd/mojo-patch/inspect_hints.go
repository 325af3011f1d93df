package main

import (
	"regexp"

	"github.com/mojo-patch/mojo-patch/patterns/reason"
)

// hint is what is generally known about a reason without a code. It is found by the words of the reason: of a difference, or of what
// stands around a node ("around …").
type hint struct {
	when string // a regular expression
	text string
}

// hints are tried in order; the first one that fits is given.
var hints = []hint{
	// Experts of a mixture.
	{`experts, the graph holds .* absent$`, "the trace followed the experts that its sample tokens went to: export with a sample that reaches all, or with an implementation that has no " +
		"loop over them (experts_implementation=\"batched_mm\" in transformers)"},
	{`splits the rows of the experts by the sizes`, "the trace took the numbers of tokens for constants: export with an implementation that does not read them " +
		"(experts_implementation=\"batched_mm\" in transformers), or by dynamo"},

	// Facts that are not known.
	{`(shapes|is|and|of) unknown( or not|,| and| \(|$)|not known|not enough is known|found .* of a tensor of unknown shape`, "types or shapes are not known here: run shape inference (onnx.shape_inference.infer_shapes, or the symbolic one of " +
		"onnxruntime), or export with a fixed size for the last axis and named dynamic axes for the others"},
	{`shapes .*\[[^\]]*\?`, "a dimension is computed in the graph and could not be followed: fold constants (onnxruntime's offline optimisation at level basic), or " +
		"export with named dynamic axes"},

	// Between the others.
	{`found Dropout`, "a Dropout in training mode is left in: call model.eval() before the export, and do not export with training=TrainingMode.TRAINING"},
	{`found (Cast|CastLike)`, "a cast stands where none is expected: it rounds, so it cannot be left out"},
	{`found (DequantizeLinear|QuantizeLinear|MatMulNBits)`, "the block is quantised inside: patch the model first and quantise it afterwards"},
	{`stands between`, "one node stands between the others: if it changes nothing, a simplifier removes it; if it does, this is another block"},
	{`made before`, "a value that the block reads is made after the block begins: the parts cannot be joined where they stand"},

	// Norms.
	{`difference from its own mean`, "the mean is subtracted first: this is a LayerNorm and no RMSNorm; LayerNorm has patterns and an op of its own"},
	{`expected .*Sub.*, found .*ReduceMean|at ReduceMean .*expected .*Add`, "nothing is added to the mean before the root: the op has an epsilon greater than zero"},
	{`expected .*(Sqrt|Pow).*, found Add`, "epsilon seems to be added outside the root; the op adds it to the mean of the squares, inside"},
	{`constant of one element \(epsilon\), found the (graph input|constant tensor)`, "epsilon must be one constant number: give it to the module as a Python number, not as an input or a tensor"},
	{`constant of one element`, "the number must be a constant: fold constants (onnxruntime's offline optimisation at level basic) where it is computed from constants"},
	{`epsilon > 0`, "an epsilon of zero or less makes the norm undefined for a row of zeros; the op wants one above zero"},
	{`axes=|axis=|of another axis`, "the op works over the last axis alone: where the channels are another axis, transpose around the block before the export"},
	{`keepdims|without its axis kept`, "the reduction drops its axis: the export must keep it, or restore it with Unsqueeze"},
	{`rank\(scale\)|dim\(scale|one number for each channel|!?weighted`, "the scale must be one vector as long as the last axis; a scale per head or a single number is another function: expand the parameter before " +
		"the export if that is the same"},
	{`rank\((bias|beta)\)|dim\((bias|beta)`, "the bias must be one vector as long as the last axis"},
	{`another Mul \(for the product of .*scale`, "the normalised value is not multiplied by a scale: a norm without weight; give the module a weight of ones"},
	{`type\(.*\) ==|after ==`, "the types do not fit together: a cast is missing, or stands at another place than in the modules that exporters know; the norm's result has the type of " +
		"x, or of the scale where the scale comes last"},

	// Gated units.
	{`of a dense layer`, "a mixture's experts work on rows that are picked by data; only dense layers are fused"},
	{`another Mul \(for the product of .*up\)`, "the activation is not multiplied by a second projection: it is plain SiLU or GELU and no gated unit"},
	{`is gate elsewhere`, "the activation is taken of another value than the one that it is multiplied by: a scaled or clamped variant of the gate, or no gated unit"},
	{`gate and up of one shape`, "gate and up must have one shape: one that is broadcast is no second projection"},
	{`expected the constant .*found the constant`, "the formula has another number than the op: another activation, or an approximation of its own"},

	// Rotary embeddings.
	{`one channel of the input rather than of two`, "the halves seem to be swapped, or the same half is taken twice: a rotation pairs each channel with one of the other half"},
	{`no table of cosines and sines`, "a minus sign seems to be missing, or to stand at both halves: a rotation has it at one of the two"},
	{`pair channels in another way`, "the two parts are not halves: a rotation pairs channel i with i + r/2, or 2i with 2i + 1"},
	{`no tensor as wide as the result`, "the products have no input in common (another tensor is rotated than the one that is multiplied by the cosines), or the tables have more axes " +
		"than the input"},
	{`^around (Neg|Sub) of (Slice|Split|Gather)`, "if this is a rotary embedding, the size of the head is not known: run shape inference, or export with a fixed hidden size"},

	// Nodes that nothing comes near to.
	{`^around ReduceMean .*Sub`, "a mean that is subtracted belongs to a LayerNorm, not to an RMSNorm"},
	{`^around (Sigmoid|Swish) .*(TopK|GatherElements|Add)`, "the scores of a router, not a gate"},
	{`^around (Sigmoid|Swish|Gelu|Erf) `, ""},
	{`elsewhere in the block`, "two places of the block read different values where the op has one"},
}

var compiledHints = func() []*regexp.Regexp {
	list := make([]*regexp.Regexp, len(hints))
	for i, h := range hints {
		list[i] = regexp.MustCompile(h.when)
	}
	return list
}()

// hintOf returns the hint of a reason: that of its code, or by its text where it has none.
func hintOf(r *reason.Reason, text string) string {
	if r.Code != "" {
		return r.Code.Hint()
	}
	return hintFor(text)
}

func hintFor(reason string) string {
	for i, h := range hints {
		if compiledHints[i].MatchString(reason) {
			return h.text
		}
	}
	return ""
}
