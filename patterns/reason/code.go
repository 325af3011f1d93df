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
	Depends        Code = "depends"         // the matched nodes depend on more than the op's inputs, or on what it makes
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

var hints = map[Code]string{
	Opset: "convert the model (onnx.version_converter) or export it with a newer opset, and compare its results with those of the old one",
	Types: "the kernels take float32, float16 and bfloat16: export the model in one of these, with one type throughout the block",
	Unknown: "types or shapes are not known here: run shape inference (onnx.shape_inference.infer_shapes, or the symbolic one of " +
		"onnxruntime), or export with a fixed size for the last axis and named dynamic axes for the others",
	Depends:    "the block reads a value that is no input of the op, or one that is made too late: it cannot be replaced where it stands",
	Random:     "a training-mode op is left in: call model.eval() before the export",
	InFunction: "inline the functions first (--inline all, or onnx.inliner.inline_local_functions)",
	Differs: "on hard inputs (large, tiny, zero) the block computes something else than the op: another constant, another order of " +
		"casts, or a formula that only resembles it",
	Kernel: "the kernel library is of another version, or broken on this machine: mojo-patch kernels tries each of its kernels",
	NodesFail: "the export has in it what its sample tokens did: export with an implementation that has no loop over the experts that are hit " +
		"(experts_implementation=\"batched_mm\" in transformers)",
}
