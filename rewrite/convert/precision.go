package convert

import (
	"errors"
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/infer"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
)

// A PrecisionReport describes the changes that Precision made.
type PrecisionReport struct {
	From, To onnx.DataType
	// Initializers counts the constants (initializers and Constant nodes) whose type changed, and Values their
	// elements.
	Initializers int
	Values       int64
	// Missing counts those initializers whose data file is missing: only their types changed.
	Missing int
	// Kept counts the float32 constants that stay, because only float32 ops read them.
	Kept int
	// Float32 counts the nodes that compute in float32, by op.
	Float32 map[string]int
	// Casts is the number of added Cast nodes, and Removed the number of removed Casts from a type to itself.
	Casts, Removed int
	// OutOfRange lists the constants with finite elements beyond the largest number of the type. They became that
	// number, as the masks of PyTorch's exports do (torch.finfo(dtype).min).
	OutOfRange []OutOfRange
	// Inlined counts the calls of model-local functions that were replaced by their bodies.
	Inlined int
}

// An OutOfRange describes a constant with finite elements that a type cannot hold.
type OutOfRange struct {
	Name     string
	Elements int64
	// Largest is the largest magnitude among them.
	Largest float64
}

// Precision converts a float32 model to float16 or bfloat16, or a model of these types to float32, in memory: its
// graph, subgraphs, constants, inputs and outputs (keys and values of a cache, logits; integer ids and masks stay), as
// PyTorch exports a model of that type. Constants with more than a few elements are converted while the model is
// written. If their data file is missing, only their types change.
//
// Products (MatMul, Gemm, Conv, Einsum, Attention), elementwise ops between them (residuals, biases, gates and their
// activations, the application of rotary tables and masks) and ops that only move elements are computed in the half
// type. As in PyTorch's models of half types (and in the list of torch.autocast), these stay in float32, after Casts:
//
//   - norms: the square, the mean, epsilon, the root, and the product of the row with it. The product with the weight
//     is in float32 too if the row is its first factor or a Cast follows it (Gemma, OLMo 2, gpt-oss). Otherwise the
//     Cast comes before it (Llama). A SiLU gate before the square (Mamba-2) is in float32 too, and the weight then has
//     the type of the gated value;
//   - Softmax and LogSoftmax, the maximum subtracted before them, and other sums and means;
//   - values computed only from positions and other integers: rotary frequencies, their cosines and sines, masks made
//     by arithmetic. They are cast where they meet the hidden states;
//   - routers: the inputs of TopK and ArgMax, from the logits on, and the weights of the experts up to the sum over
//     them;
//   - ops without a kernel in the half type in the standard or a provider, and ops of other domains.
//
// The readers of a value share its Casts. A Cast goes where the fewest are needed: an op that only moves elements takes
// the type of its readers.
//
// The result must load in onnxruntime (1.31.1) with each of the providers, "cpu" and "cuda"; an empty list means both.
// For float16 this makes no difference: each provider has kernels, or onnxruntime puts Casts around the missing ones.
// For bfloat16 it does: the CPU provider moves bfloat16 elements but computes only LayerNormalization in it. A model
// for both providers therefore stores its weights, caches, inputs and outputs as bfloat16 and computes in float32. It
// runs everywhere, at float32's speed. A model only for "cuda" computes in bfloat16, as PyTorch's exports do, and like
// them does not load on the CPU.
//
// A model of a half type is first converted to float32, which is exact, even if the type stays: a PyTorch export in
// bfloat16 becomes one that loads on the CPU.
//
// Calls of model-local functions are inlined first. Nodes of the domain mojo compute in the half type if they can, and
// read quantized weights as stored; they are refused if the model has a half type already, in an opset before 15, or
// without their definition. Sequences of tensors are refused too. If Precision returns an error, the model must not be
// used.
func Precision(m *onnx.Model, to onnx.DataType, providers ...string) (*PrecisionReport, error) {
	return PrecisionExcept(m, to, nil, providers...)
}

// PrecisionExcept is Precision with additional float32 nodes: those in wide. An output of the model that such a node
// computes is float32 too.
func PrecisionExcept(m *onnx.Model, to onnx.DataType, wide map[*onnx.Node]bool, providers ...string) (*PrecisionReport,
	error) {
	if m == nil || m.Graph == nil {
		return nil, errors.New("no model to convert")
	}
	switch to {
	case onnx.Float, onnx.Float16, onnx.BFloat16:
	default:
		return nil, fmt.Errorf("cannot convert to %s: choose float32, float16 or bfloat16", to)
	}
	for _, p := range providers {
		if p != "cpu" && p != "cuda" {
			return nil, fmt.Errorf("unknown provider %q: only the half types of cpu and cuda are known",
				p)
		}
	}
	if len(providers) == 0 {
		providers = []string{"cpu", "cuda"}
	}
	if err := precisionFits(m, to); err != nil {
		return nil, err
	}
	r := &PrecisionReport{From: onnx.Float, To: to, Float32: map[string]int{}}
	if len(m.Functions) > 0 {
		calls, err := new(edit.Change).InlineFunctions(m, func(f *onnx.Function) bool {
			return f.Domain == fused.Domain
		})
		if err != nil {
			return nil, err
		}
		r.Inlined = calls
	}
	if half := HalfType(m); half != onnx.Undefined {
		r.From = half
		if err := widen(m, r); err != nil {
			return nil, err
		}
	}
	if to == onnx.Float {
		return r, nil
	}
	p := &precision{model: m, to: to, providers: providers, report: r, opset: m.Opset(""), wide: wide,
		combinations: map[*onnx.Node]*fused.Combination{}}
	if err := p.removeCasts(); err != nil {
		return nil, err
	}
	p.facts = infer.Analyze(m)
	if err := p.check(); err != nil {
		return nil, err
	}
	p.assign(m.Graph)
	p.settle(m.Graph)
	if err := p.rewrite(); err != nil {
		return nil, err
	}
	return r, nil
}

// precisionFits returns an error if the model cannot be converted to the type.
func precisionFits(m *onnx.Model, to onnx.DataType) error {
	opset := m.Opset("")
	if opset < fused.MinOpset {
		return fmt.Errorf("the model has opset %d: only opset %d and newer can be converted to %s", opset,
			fused.MinOpset, to)
	}
	half := HalfType(m)
	for _, g := range m.Graphs() {
		for _, n := range g.Nodes {
			switch {
			case n.Domain == fused.Domain && !(half == onnx.Undefined && takesTypes(m, n)):
				return fmt.Errorf("node %q (mojo.%s): the model is already patched: convert it to %s before you "+
					"patch it",
					n.Name, n.OpType, to)
			case onnx.IsStandardDomain(n.Domain) && slices.Contains(sequenceOps, n.OpType):
				return fmt.Errorf("node %q (%s): models with sequences or optional values cannot be converted to %s",
					n.Name, n.OpType, to)
			}
		}
	}
	return nil
}

var sequenceOps = []string{"SequenceConstruct", "SequenceEmpty", "SequenceInsert", "SequenceErase", "SequenceAt",
	"SequenceMap", "SplitToSequence", "ConcatFromSequence", "Optional", "OptionalGetElement"}

// HalfType returns the half type of constants, Casts, inputs or outputs of the model, which Precision first converts to
// float32. It returns Undefined if there is no half type.
func HalfType(m *onnx.Model) onnx.DataType {
	found := onnx.Undefined
	look := func(t onnx.DataType) {
		if t.IsHalf() {
			found = t
		}
	}
	for _, g := range m.Graphs() {
		for _, v := range g.Initializers() {
			if !onlyFused(v) {
				look(v.Const.DataType)
			}
		}
		for _, v := range append(slices.Clone(g.Inputs), g.Outputs...) {
			t, _ := v.Type()
			look(t.DataType)
		}
		for _, n := range g.Nodes {
			if n.Is("Cast") {
				look(onnx.DataType(n.AttrInt("to", 0)))
			}
			for _, a := range n.Attributes {
				if a.Tensor != nil {
					look(a.Tensor.DataType)
				}
			}
		}
	}
	return found
}

type precision struct {
	edit      edit.Change
	model     *onnx.Model
	to        onnx.DataType
	providers []string
	opset     int64
	facts     *infer.Facts
	report    *PrecisionReport

	// castBefore and castAfter hold the removed Casts from float32 to itself. TorchScript leaves them where the model
	// changes types, so they show where a norm in float32 ends.
	castBefore map[onnx.Use]bool
	castAfter  map[*onnx.Value]bool

	kinds   map[*onnx.Value]kind
	float32 map[*onnx.Node]bool // the nodes that compute in float32
	wide    map[*onnx.Node]bool // the nodes in float32 that the caller named
	scores  map[*onnx.Node]bool // the nodes that a choice depends on, starting at the logits
	squares map[*onnx.Node]bool // the nodes whose results are summed
	angles  map[*onnx.Node]bool // the nodes that compute angles
	holders map[*onnx.Graph]*onnx.Node

	combinations map[*onnx.Node]*fused.Combination // of fused ops

	// gates maps the SiLU gates of a norm's input, and their products, to the gated value.
	gates map[*onnx.Node]*onnx.Value
}

func (p *precision) isFloat(v *onnx.Value) bool {
	return v != nil && p.dataType(v) == onnx.Float
}

func (p *precision) dataType(v *onnx.Value) onnx.DataType {
	if v.Const != nil {
		return v.Const.DataType
	}
	if t := p.facts.DataType(v); t != onnx.Undefined {
		return t
	}
	t, _ := v.Type()
	return t.DataType
}

// check returns an error for values of unknown type, since a Cast might be missing there, and for subgraphs that cannot
// return the type.
func (p *precision) check() error {
	var err error
	p.model.Graph.Walk(func(g *onnx.Graph) {
		for _, n := range g.Nodes {
			if p.to == onnx.BFloat16 && p.opset < 16 && len(n.Subgraphs()) > 0 && slices.ContainsFunc(n.Outputs,
				p.isFloat) && err == nil {
				err = fmt.Errorf("node %q (%s) cannot return bfloat16 in opset %d: convert the model to opset 16 or "+
					"newer first", n.Name, n.OpType, p.opset)
			}
			for _, v := range n.Outputs {
				if v != nil && err == nil && p.dataType(v) == onnx.Undefined {
					err = fmt.Errorf("the type of %q, an output of node %q (%s), is not known: declare it "+
						"(value_info) to convert the model", v.Name, n.Name, n.OpType)
				}
			}
		}
	})
	return err
}

// removeCasts removes the Casts from float32 to float32 and records their positions. CastLike becomes Cast if the type
// is known.
func (p *precision) removeCasts() error {
	p.castBefore, p.castAfter = map[onnx.Use]bool{}, map[*onnx.Value]bool{}
	p.facts = infer.Analyze(p.model)
	p.model.Graph.Walk(func(g *onnx.Graph) {
		for _, n := range g.Nodes {
			if n.Input(1) != nil {
				plainCast(&p.edit, n, p.dataType(n.Input(1)))
			}
			x, y := n.Input(0), n.OutputValue(0)
			if !n.Is("Cast") || onnx.DataType(n.AttrInt("to", 0)) != onnx.Float || !p.isFloat(x) || y == nil {
				continue
			}
			p.castAfter[x] = true
			for _, u := range y.Uses() {
				p.castBefore[u] = true
			}
			p.edit.Reread(y, x)
			if !y.IsOutput() {
				p.edit.Drop(n)
				p.report.Removed++
			}
		}
	})
	return p.edit.Finish()
}
