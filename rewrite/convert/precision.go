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

// PrecisionReport says what Precision did.
type PrecisionReport struct {
	From, To onnx.DataType
	// Initializers and Values count the constants (initializers and Constant nodes) whose type changed, and their
	// elements.
	Initializers int
	Values       int64
	// Missing counts those among them whose elements lie in a file that is missing: only their types changed.
	Missing int
	// Kept counts the float32 constants that stay: those that only ops in float32 read.
	Kept int
	// Float32 counts the nodes that compute in float32, by op.
	Float32 map[string]int
	// Casts is the number of Cast nodes that were put in, Removed that of Casts of a type to itself that were taken
	// out.
	Casts, Removed int
	// OutOfRange lists the constants with finite elements beyond the greatest number of the type. They became that
	// number, as the masks of PyTorch's exports do (torch.finfo(dtype).min).
	OutOfRange []OutOfRange
	// Inlined counts the calls of model-local functions that their bodies took the place of.
	Inlined int
}

// OutOfRange is a constant with finite elements that a type cannot hold.
type OutOfRange struct {
	Name     string
	Elements int64
	// Largest is the greatest magnitude among them.
	Largest float64
}

// Precision converts a float32 model to float16 or bfloat16, or a model of these types to float32, in memory: its
// graph, its subgraphs, its inputs and outputs (the keys and values of a cache, the logits; ids and masks of integers
// stay) and its constants, as PyTorch exports a model of that type. Constants of more than a few elements are converted
// while the model is written; of those whose data file is missing only the types change.
//
// In the half type are computed products (MatMul, Gemm, Conv, Einsum, Attention), what is elementwise between them
// (residuals, biases, gates and their activations, the application of rotary tables and masks) and what only moves
// elements. In float32, behind Casts, as in PyTorch's models of half types (and in the list of torch.autocast), stay
//
//   - norms: the square, the mean, epsilon, the root, and the product of the row with it; the product with the weight
//     too where the row is its first factor or a Cast follows it (Gemma, OLMo 2, gpt-oss), else the Cast comes before
//     it (Llama); before the square a SiLU gate of what is normalised (Mamba-2), whose weight then is of the type of
//     what is gated;
//   - Softmax and LogSoftmax, the greatest score taken off before, and other sums and means;
//   - what is computed from positions and other integers alone: rotary frequencies, their cosines and sines, masks made
//     by arithmetic. It is cast where it meets the hidden states;
//   - routers: what TopK and ArgMax choose by, from the logits on, and the weights of the experts up to the sum over
//     them;
//   - ops that the standard or a provider has no kernel for in the half type, and ops of other domains.
//
// Casts of one value are shared, and put where the fewest are needed: an op that only moves elements takes the type of
// what reads it.
//
// The providers, "cpu" and "cuda", are those in whose onnxruntime (1.31.1) the result has to load; none means both. For
// float16 that makes no difference: each provider has kernels, or onnxruntime puts Casts around those it lacks. For
// bfloat16 it does: the CPU provider moves bfloat16 about and computes nothing but LayerNormalization in it. A model
// for both therefore stores its weights, caches, inputs and outputs as bfloat16 and computes in float32, which runs
// everywhere, at float32's speed; one for "cuda" alone computes in bfloat16 as PyTorch's exports do, and does not load
// on the CPU, as they do not.
//
// A model of a half type is taken to float32 first, which is exact, also where the type stays: an export of PyTorch in
// bfloat16 becomes one that loads on the CPU.
//
// Calls of model-local functions are inlined first. Nodes of the domain mojo are refused: a model is converted before
// it is patched. So are sequences of tensors. After an error the model is of no use.
func Precision(m *onnx.Model, to onnx.DataType, providers ...string) (*PrecisionReport, error) {
	return PrecisionExcept(m, to, nil, providers...)
}

// PrecisionExcept is Precision with more nodes that compute in float32: those of wide, which are nodes of the main
// graph. An output of the model that such a node makes is of float32, too.
func PrecisionExcept(m *onnx.Model, to onnx.DataType, wide map[*onnx.Node]bool, providers ...string) (*PrecisionReport,
	error) {
	if m == nil || m.Graph == nil {
		return nil, errors.New("there is no model to convert")
	}
	switch to {
	case onnx.Float, onnx.Float16, onnx.BFloat16:
	default:
		return nil, fmt.Errorf("cannot convert to %s: choose float32, float16 or bfloat16", to)
	}
	for _, p := range providers {
		if p != "cpu" && p != "cuda" {
			return nil, fmt.Errorf("unknown provider %q: it is known of cpu and cuda what they compute in half types",
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
		calls, err := new(edit.Change).InlineFunctions(m, nil)
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
	p := &precision{model: m, to: to, providers: providers, report: r, opset: m.Opset(""), wide: wide}
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

// precisionFits reports whether the model is one that can be converted to the type.
func precisionFits(m *onnx.Model, to onnx.DataType) error {
	opset := m.Opset("")
	if opset < fused.MinOpset {
		return fmt.Errorf("the model is of opset %d: only opset %d and newer can be converted to %s", opset,
			fused.MinOpset, to)
	}
	for _, g := range m.Graphs() {
		for _, n := range g.Nodes {
			switch {
			case n.Domain == "mojo":
				return fmt.Errorf("node %q (mojo.%s): the model is patched: convert it to %s first, and patch it then",
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

// HalfType returns the half type that constants, Casts, inputs or outputs of the model have, and that Precision takes
// back to float32 first; Undefined where there is none.
func HalfType(m *onnx.Model) onnx.DataType {
	found := onnx.Undefined
	look := func(t onnx.DataType) {
		if t.IsHalf() {
			found = t
		}
	}
	for _, g := range m.Graphs() {
		for _, v := range g.Initializers() {
			look(v.Const.DataType)
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

	// castBefore and castAfter hold the Casts of float32 to itself that were taken out: TorchScript leaves them where
	// the model changes types, which tells where a norm in float32 ends.
	castBefore map[onnx.Use]bool
	castAfter  map[*onnx.Value]bool

	kinds   map[*onnx.Value]kind
	float32 map[*onnx.Node]bool // the nodes that compute in float32
	wide    map[*onnx.Node]bool // those of them that the caller named
	scores  map[*onnx.Node]bool // the nodes that a choice depends on, from the logits on
	squares map[*onnx.Node]bool // the nodes whose results are summed up
	angles  map[*onnx.Node]bool // the nodes that angles are computed by
	holders map[*onnx.Graph]*onnx.Node

	// gates holds the SiLU gates of what a norm normalises, and their products, with the value that is gated.
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

// check errs on values whose types are not known, since a Cast might be missing there, and on subgraphs that cannot
// give the type.
func (p *precision) check() error {
	var err error
	p.model.Graph.Walk(func(g *onnx.Graph) {
		for _, n := range g.Nodes {
			if p.to == onnx.BFloat16 && p.opset < 16 && len(n.Subgraphs()) > 0 && slices.ContainsFunc(n.Outputs,
				p.isFloat) && err == nil {
				err = fmt.Errorf("node %q (%s) cannot give bfloat16 in opset %d: bring the model to opset 16 or "+
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

// removeCasts takes out the Casts of float32 to float32, and remembers where they stood. CastLike becomes Cast where
// the type is known.
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
