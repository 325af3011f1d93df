package reason

// A Code is a kind of reason, in lower case with hyphens.
type Code string

// Hint returns general advice about reasons of this kind, or "".
func (c Code) Hint() string { return hints[c] }

// Reasons why a site is refused or, for Target, why a target leaves it open.
const (
	Opset          Code = "opset"           // the model's opset lacks an op of the replacement
	Types          Code = "types"           // no kernel takes these types
	Unknown        Code = "unknown"         // a type, a shape or a value is unknown
	Signature      Code = "signature"       // the op does not accept these inputs, shapes or attributes
	Depends        Code = "depends"         // the matched nodes depend on other values than the op's inputs
	Unread         Code = "unread"          // the matched nodes do not read a value that the op would read
	Random         Code = "random"          // the matched nodes draw random numbers
	InFunction     Code = "in-function"     // the body of a function cannot call the definition
	NotAsked       Code = "not-asked"       // the kernel of a second op was not requested
	Conflict       Code = "conflict"        // the model has another function of this name
	Undefined      Code = "undefined"       // the pattern rewrites to an op that is not defined
	Differs        Code = "differs"         // the replacement computes something else
	Kernel         Code = "kernel"          // the kernel fails, or does not compute the op
	NodesFail      Code = "nodes-fail"      // the matched nodes fail on inputs that the op accepts
	Unchecked      Code = "unchecked"       // the check cannot be done
	MissingWeights Code = "missing-weights" // the check needs weights that are missing
	Target         Code = "target"          // the target has no ops for it
)

// Reasons why a pattern of text, or a built-in view, nearly matches.
const (
	Other         Code = "other"                // see the expected and found operands
	Computed      Code = "computed-shape"       // a dimension is computed in the graph and cannot be followed
	Dropout       Code = "dropout"              // a Dropout that is not the identity
	Cast          Code = "cast"                 // a cast that rounds
	Quantized     Code = "quantized"            // the block is quantized inside
	Between       Code = "between"              // an extra node is between the others
	Centered      Code = "centered"             // a tensor minus its mean
	NoEpsilon     Code = "no-epsilon"           // nothing is added to the mean before the root
	EpsilonAfter  Code = "epsilon-outside-root" // something is added to the root
	EpsilonTensor Code = "epsilon-tensor"       // epsilon is an input or a tensor
	NotConstant   Code = "not-constant"         // a number is computed
	EpsilonZero   Code = "epsilon-zero"         // epsilon is not greater than zero
	Axis          Code = "axis"                 // an axis other than the last
	AxisDropped   Code = "axis-dropped"         // a reduction does not keep its axis
	ScaleShape    Code = "scale-shape"          // the scale is not a vector as long as the last axis
	BiasShape     Code = "bias-shape"           // the bias is not a vector as long as the last axis
	NoScale       Code = "no-scale"             // a norm that is not multiplied with a scale
	MixedTypes    Code = "mixed-types"          // the types of the block do not fit together
	Routed        Code = "routed"               // rows are picked by data, as in an expert
	NotGated      Code = "not-gated"            // an activation that is not multiplied by a second projection
	GateDiffers   Code = "gate-differs"         // the activation is not of the gate
	UpShape       Code = "up-shape"             // gate and up have different shapes
	OtherConstant Code = "other-constant"       // another number than the op's
	Elsewhere     Code = "elsewhere"            // two places of the block read different values
	PairOfOne     Code = "pair-of-one"          // a rotated channel is made from one channel instead of two
	RotationTable Code = "rotation-table"       // no table of cosines and sines rotates the pairs
	RotationPairs Code = "rotation-pairs"       // channels are paired neither as halves nor as neighbors
	RotationInput Code = "rotation-input"       // the products have no input in common
)

// Neighborhoods of a node that usually belongs to a block, and that no pattern comes near to.
const (
	HeadSize     Code = "head-size"     // of a rotary embedding, perhaps
	MeanTaken    Code = "mean-taken"    // a mean that is subtracted
	RouterScores Code = "router-scores" // an activation that computes scores
)

// Limit is the reason for an unfinished search.
const Limit Code = "search-limit" // it took more steps than one place may take

// Reasons why no mixture of experts is found after a choice.
const (
	Router        Code = "router"         // the op cannot compute the router's function
	NoRegion      Code = "no-region"      // no part of the graph takes tokens through the chosen experts
	NoTokens      Code = "no-tokens"      // the result after the choice does not depend on the tokens
	Capacity      Code = "capacity"       // experts may drop tokens
	Experts       Code = "experts"        // the op cannot compute the experts' function
	ExpertsAbsent Code = "experts-absent" // the graph holds fewer experts than the router has
	FixedCounts   Code = "fixed-counts"   // the number of tokens for each expert is a constant
	ExpertWeights Code = "expert-weights" // the op cannot read the experts' weights as they are stored
	// another tool has quantized the experts' weights
	ExpertsQuantized Code = "experts-quantized"
)

// Reasons why a softmax between two products is not attention that the op computes.
const (
	AttentionRead  Code = "attention-read"  // scores or weights are read outside of the block
	AttentionOther Code = "attention-other" // a step that the op does not have
)

var hints = map[Code]string{
	Opset: "convert the model to a newer opset (onnx.version_converter) or export it with one, and compare the " +
		"results with the results of the old model",
	Types: "the kernels take float32, float16 and bfloat16: export the model in one of these types, with one type " +
		"throughout the block",
	Unknown: "types or shapes are unknown: run shape inference (onnx.shape_inference.infer_shapes, or onnxruntime's " +
		"symbolic shape inference), or export with a fixed size for the last axis and named dynamic axes for the " +
		"others",
	Depends: "the block reads a value that is not an input of the op, or that is computed too late for the op to " +
		"read it",
	Limit: "the graph around the node is too large for the search, which has a time limit that grows with the " +
		"model: cut out the part in which you expect a block (mojo-patch extract) and inspect that part",
	Random:     "the model has an op that is only used in training: call model.eval() before the export",
	InFunction: "inline the functions first (--inline all, or onnx.inliner.inline_local_functions)",
	Differs: "on hard inputs (large, tiny, zero) the block and the op return different results: the block has " +
		"another constant, casts in another order, or another formula that looks similar",
	Kernel: "on these inputs the difference between the kernel and the op's definition is larger than rounding " +
		"explains. Run mojo-patch kernels: if it fails, the kernel library has another version or does not fit this " +
		"machine; if it passes, please report the site. --check-kernels off applies the patch without this check",
	NodesFail: "the export contains only the branches that its sample tokens took: export with an implementation " +
		"without a loop over the experts that are hit (experts_implementation=\"batched_mm\" in transformers)",
	Computed: "a dimension is computed in the graph and is unknown here: fold constants (onnxruntime's offline " +
		"optimization at level basic), or export with named dynamic axes",
	Dropout: "the model has a Dropout in training mode: call model.eval() before the export, and do not export with " +
		"training=TrainingMode.TRAINING",
	Cast:      "the block has a cast that the pattern does not have. The cast rounds, so it cannot be removed",
	Quantized: "the block is quantized inside: patch the model first and quantize it afterwards",
	Between: "there is another node between the nodes of the pattern: if that node changes nothing, a simplifier " +
		"can remove it; otherwise this is another block",
	Centered: "the block subtracts the mean first: it is a LayerNorm, not an RMSNorm. LayerNorm has its own " +
		"patterns and its own op",
	NoEpsilon: "nothing is added to the mean before the root. The op adds epsilon there, so its results differ for " +
		"rows near zero",
	EpsilonAfter: "the block seems to add epsilon outside the root. The op adds it inside, to the mean of the " +
		"squares",
	EpsilonTensor: "epsilon must be one constant number: pass it to the module as a Python number, not as an input " +
		"or a tensor",
	NotConstant: "the number must be a constant: if it is computed from constants, fold them (onnxruntime's offline " +
		"optimization at level basic)",
	EpsilonZero: "with an epsilon of zero or less, the norm of a row of zeros is undefined: the op needs an epsilon " +
		"above zero",
	Axis: "the op only works over the last axis: if the channels are on another axis, transpose before and after " +
		"the block and export again",
	AxisDropped: "the reduction drops its axis: the export must keep the axis, or restore it with Unsqueeze",
	ScaleShape: "the scale must be one vector as long as the last axis. A scale for each head, or one number, is a " +
		"different function: if all its values agree with such a vector, expand the parameter before the export",
	BiasShape: "the bias must be one vector as long as the last axis",
	NoScale:   "the norm has no weight: its result is not multiplied by a scale. Add a weight of ones to the module",
	MixedTypes: "the types do not fit together: a cast is missing, or is in another place than in the modules of " +
		"known exporters. The result of the norm has the type of x, or the type of the scale if the scale comes " +
		"last",
	ExpertsQuantized: "apply --quantized mojo turns such experts into mojo.QMoE if their row length is a multiple " +
		"of 32. Otherwise patch the model first and quantize it afterwards (mojo-patch quantize)",
	Routed: "the experts of a mixture work on rows that the data selects; this op only replaces dense layers",
	NotGated: "the activation is not multiplied by a second projection: this is a plain SiLU or GELU, not a gated " +
		"unit",
	GateDiffers: "the activation is computed from another value than the one it is multiplied by: the gate is " +
		"scaled or clamped, or this is not a gated unit",
	UpShape: "gate and up must have the same shape: a tensor that is broadcast is not a second projection",
	OtherConstant: "the formula has another number than the op: this is another activation, or another " +
		"approximation",
	Elsewhere: "two places of the block read different values, but the op reads one value for both",
	PairOfOne: "the halves seem to be swapped, or the same half is used twice: a rotation pairs each channel with a " +
		"channel of the other half",
	RotationTable: "a minus sign seems to be missing, or both halves have one: a rotation negates exactly one half",
	RotationPairs: "the two parts are not halves: a rotation pairs channel i with i + r/2, or 2i with 2i + 1",
	RotationInput: "the products have no input in common (the rotated tensor is not the one multiplied by the " +
		"cosines), or the tables have more axes than the input",
	HeadSize: "if this is a rotary embedding, the size of the head is unknown: run shape inference, or export with " +
		"a fixed hidden size",
	MeanTaken:    "the block subtracts a mean: it belongs to a LayerNorm, not to an RMSNorm",
	RouterScores: "this activation computes the scores of a router and is not a gate",
	AttentionRead: "something outside the block reads its scores or weights, which the op does not return: export " +
		"without output_attentions",
	AttentionOther: "the op computes softmax(scale * queries * keys + mask) * values. The mask follows from " +
		"positions, or is a tensor that is added. A block that computes anything else stays as it is",
	ExpertsAbsent: "the trace followed the experts that its sample tokens went to: export with a sample that " +
		"reaches all experts, or with an implementation without a loop over experts " +
		"(experts_implementation=\"batched_mm\" in transformers)",
	FixedCounts: "the trace recorded the numbers of tokens as constants: export with an implementation that does " +
		"not read them (experts_implementation=\"batched_mm\" in transformers), or with dynamo=True",
}
