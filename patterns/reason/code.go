package reason

// Code is a kind of reason, in lower case with hyphens.
type Code string

// Hint returns what is generally known about reasons of this kind and what to do about them, "" where nothing is.
func (c Code) Hint() string { return hints[c] }

// Why a site is refused, or left open by a target (Target).
const (
	Opset          Code = "opset"           // the model's opset lacks what the replacement needs
	Types          Code = "types"           // no kernel takes these types
	Unknown        Code = "unknown"         // a type, a shape or a value is not known
	Signature      Code = "signature"       // the op does not take these inputs, shapes or attributes
	Depends        Code = "depends"         // the matched nodes depend on other values than the op's inputs
	Unread         Code = "unread"          // the matched nodes do not read what the op would
	Random         Code = "random"          // the matched nodes draw random numbers
	InFunction     Code = "in-function"     // the body of a function cannot call the definition
	NotAsked       Code = "not-asked"       // the kernel of a second op was not asked for
	Conflict       Code = "conflict"        // the model has another function of that name
	Undefined      Code = "undefined"       // the pattern rewrites to what nothing defines
	Differs        Code = "differs"         // the replacement computes something else
	Kernel         Code = "kernel"          // the kernel fails, or computes something else than the op
	NodesFail      Code = "nodes-fail"      // the matched nodes fail where the op does not
	Unchecked      Code = "unchecked"       // the check is not possible
	MissingWeights Code = "missing-weights" // the check needs weights that are not there
	Target         Code = "target"          // the target has nothing for it
)

// Why a pattern of text, or a built-in view, does not match where it comes near.
const (
	Other         Code = "other"                // what is expected and what is found say it all
	Computed      Code = "computed-shape"       // a dimension is computed in the graph and could not be followed
	Dropout       Code = "dropout"              // a Dropout that is no identity
	Cast          Code = "cast"                 // a cast that rounds
	Quantized     Code = "quantized"            // the block is quantised inside
	Between       Code = "between"              // one node stands between the others
	Centered      Code = "centered"             // a tensor less its own mean
	NoEpsilon     Code = "no-epsilon"           // nothing is added to the mean before the root
	EpsilonAfter  Code = "epsilon-outside-root" // something is added to the root
	EpsilonTensor Code = "epsilon-tensor"       // epsilon is an input or a tensor
	NotConstant   Code = "not-constant"         // a number is computed
	EpsilonZero   Code = "epsilon-zero"         // epsilon is not greater than zero
	Axis          Code = "axis"                 // another axis than the last one
	AxisDropped   Code = "axis-dropped"         // a reduction does not keep its axis
	ScaleShape    Code = "scale-shape"          // the scale is no vector as long as the last axis
	BiasShape     Code = "bias-shape"           // the bias is no vector as long as the last axis
	NoScale       Code = "no-scale"             // a norm that is not multiplied with a scale
	MixedTypes    Code = "mixed-types"          // the types of the block do not fit together
	Routed        Code = "routed"               // rows are picked by data, as in an expert
	NotGated      Code = "not-gated"            // an activation that is not multiplied with a second projection
	GateDiffers   Code = "gate-differs"         // the activation is of another value than the gate
	UpShape       Code = "up-shape"             // gate and up have different shapes
	OtherConstant Code = "other-constant"       // another number than the op's
	Elsewhere     Code = "elsewhere"            // two places of the block read different values
	PairOfOne     Code = "pair-of-one"          // a rotated channel is made of one channel rather than of two
	RotationTable Code = "rotation-table"       // no table of cosines and sines rotates the pairs
	RotationPairs Code = "rotation-pairs"       // channels are paired neither as halves nor as neighbours
	RotationInput Code = "rotation-input"       // the products have no input in common
)

// What stands around a node that a block is usually recognised by, and that no pattern comes near to.
const (
	HeadSize     Code = "head-size"     // of a rotary embedding, perhaps
	MeanTaken    Code = "mean-taken"    // a mean that is subtracted
	RouterScores Code = "router-scores" // an activation that makes scores
)

// Limit is why a search was not brought to an end.
const Limit Code = "search-limit" // it took more steps than there are for one place

// Why no mixture of experts is found behind a choice.
const (
	Router        Code = "router"         // the op cannot say what the router computes
	NoRegion      Code = "no-region"      // no part of the graph takes tokens through the chosen experts
	NoTokens      Code = "no-tokens"      // what comes together behind the choice does not depend on the tokens
	Capacity      Code = "capacity"       // experts may drop tokens
	Experts       Code = "experts"        // what becomes of the tokens is not what the op computes
	ExpertsAbsent Code = "experts-absent" // the graph holds fewer experts than the router has
	FixedCounts   Code = "fixed-counts"   // how many tokens each expert gets is a constant
	ExpertWeights Code = "expert-weights" // the experts' weights are not stored in a way that the op reads
	// the experts' weights are quantised by another tool
	ExpertsQuantized Code = "experts-quantized"
)

// Why a softmax between two products is no attention that the op computes.
const (
	AttentionRead  Code = "attention-read"  // scores or weights are read outside of the block
	AttentionOther Code = "attention-other" // a step that the op does not have
)

var hints = map[Code]string{
	Opset: "convert the model (onnx.version_converter) or export it with a newer opset, and compare its results with " +
		"those of the old one",
	Types: "the kernels take float32, float16 and bfloat16: export the model in one of these, with one type " +
		"throughout the block",
	Unknown: "types or shapes are not known here: run shape inference (onnx.shape_inference.infer_shapes, or the " +
		"symbolic one of onnxruntime), or export with a fixed size for the last axis and named dynamic axes for the " +
		"others",
	Depends: "the block reads a value that is no input of the op, or one that is made too late: it cannot be " +
		"replaced where it stands",
	Limit: "the graph around the node is too large to be searched within the time that a model of its size is given: " +
		"extract the part that you expect a block in (mojo-patch extract), and inspect that",
	Random:     "a training-mode op is left in: call model.eval() before the export",
	InFunction: "inline the functions first (--inline all, or onnx.inliner.inline_local_functions)",
	Differs: "on hard inputs (large, tiny, zero) the block computes something else than the op: another constant, " +
		"another order of casts, or a formula that only resembles it",
	Kernel: "on these inputs the kernel is further from the op's definition than roundings explain. Run mojo-patch " +
		"kernels: if it fails, the kernel library is of another version or does not fit this machine; if it passes, " +
		"please report the site. --check-kernels off applies the patch without this check",
	NodesFail: "the export has in it what its sample tokens did: export with an implementation that has no loop over " +
		"the experts that are hit (experts_implementation=\"batched_mm\" in transformers)",
	Computed: "a dimension is computed in the graph and could not be followed: fold constants (onnxruntime's offline " +
		"optimisation at level basic), or export with named dynamic axes",
	Dropout: "a Dropout in training mode is left in: call model.eval() before the export, and do not export with " +
		"training=TrainingMode.TRAINING",
	Cast:      "a cast stands where none is expected: it rounds, so it cannot be left out",
	Quantized: "the block is quantised inside: patch the model first and quantise it afterwards",
	Between: "one node stands between the others: if it changes nothing, a simplifier removes it; if it does, this " +
		"is another block",
	Centered: "the mean is subtracted first: this is a LayerNorm and no RMSNorm; LayerNorm has patterns and an op of " +
		"its own",
	NoEpsilon:    "nothing is added to the mean before the root, and the op would give numbers where the block gives none",
	EpsilonAfter: "epsilon seems to be added outside the root; the op adds it to the mean of the squares, inside",
	EpsilonTensor: "epsilon must be one constant number: give it to the module as a Python number, not as an input " +
		"or a tensor",
	NotConstant: "the number must be a constant: fold constants (onnxruntime's offline optimisation at level basic) " +
		"where it is computed from constants",
	EpsilonZero: "an epsilon of zero or less makes the norm undefined for a row of zeros; the op wants one above " +
		"zero",
	Axis: "the op works over the last axis alone: where the channels are another axis, transpose around the block " +
		"before the export",
	AxisDropped: "the reduction drops its axis: the export must keep it, or restore it with Unsqueeze",
	ScaleShape: "the scale must be one vector as long as the last axis; a scale per head or a single number is " +
		"another function: expand the parameter before the export if that is the same",
	BiasShape: "the bias must be one vector as long as the last axis",
	NoScale: "the normalised value is not multiplied by a scale: a norm without weight; give the module a weight of " +
		"ones",
	MixedTypes: "the types do not fit together: a cast is missing, or stands at another place than in the modules " +
		"that exporters know; the norm's result has the type of x, or of the scale where the scale comes last",
	ExpertsQuantized: "apply --quantized mojo makes mojo.QMoE of such experts where their rows are whole blocks of " +
		"32; others stay, or the model is patched first and quantised afterwards (mojo-patch quantize)",
	Routed:   "a mixture's experts work on rows that are picked by data; only dense layers are fused",
	NotGated: "the activation is not multiplied by a second projection: it is a plain SiLU or GELU, not a gated unit",
	GateDiffers: "the activation is taken of another value than the one that it is multiplied by: a scaled or " +
		"clamped variant of the gate, or no gated unit",
	UpShape:       "gate and up must have one shape: one that is broadcast is no second projection",
	OtherConstant: "the formula has another number than the op: another activation, or an approximation of its own",
	Elsewhere:     "two places of the block read different values where the op has one",
	PairOfOne: "the halves seem to be swapped, or the same half is taken twice: a rotation pairs each channel with " +
		"one of the other half",
	RotationTable: "a minus sign seems to be missing, or to stand at both halves: a rotation has it at one of the " +
		"two",
	RotationPairs: "the two parts are not halves: a rotation pairs channel i with i + r/2, or 2i with 2i + 1",
	RotationInput: "the products have no input in common (another tensor is rotated than the one that is multiplied " +
		"by the cosines), or the tables have more axes than the input",
	HeadSize: "if this is a rotary embedding, the size of the head is not known: run shape inference, or export with " +
		"a fixed hidden size",
	MeanTaken:     "a mean that is subtracted belongs to a LayerNorm, not to an RMSNorm",
	RouterScores:  "the scores of a router, not a gate",
	AttentionRead: "export without output_attentions: the op gives no scores and no weights",
	AttentionOther: "the op computes softmax(scale * queries * keys + mask) * values, with a mask that follows from " +
		"positions or a tensor that is added: a block that computes something else stays as it is",
	ExpertsAbsent: "the trace followed the experts that its sample tokens went to: export with a sample that reaches " +
		"all, or with an implementation that has no loop over them (experts_implementation=\"batched_mm\" in " +
		"transformers)",
	FixedCounts: "the trace took the numbers of tokens for constants: export with an implementation that does not " +
		"read them (experts_implementation=\"batched_mm\" in transformers), or by dynamo",
}
