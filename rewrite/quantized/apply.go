package quantized

import (
	"fmt"
	"maps"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/infer"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
	"github.com/mojo-patch/mojo-patch/rewrite/pass"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
)

// rule is the pattern name in the metadata of nodes with a quantized matrix (MetaRule).
const rule = "Quantized"

// A Weight is a weight that has a quantized form.
type Weight struct {
	// Value is the float initializer that nodes read.
	Value *onnx.Value
	// InOut means that it is [K, N], as MatMul reads it, instead of [N, K]. Experts have one more dimension in front.
	InOut  bool
	Matrix *fused.Quantized
	// Sample returns the first rows of the matrix, quantized and as floats. The check of each site multiplies by both.
	// The rows of all experts are concatenated.
	Sample func(rows int64) (*fused.Quantized, []float32, error)

	nodes []reader
}

// A Report lists the weights that nodes read in their quantized form, and says why the others stay.
type Report struct {
	Kept   []*Weight
	Refuse map[*Weight]error
	// Activations lists the roundings of the products' other operand.
	Activations []string
	// Checked counts the kinds of sites that were evaluated. Kernels counts those whose kernel was run.
	Checked, Kernels int
	// Structural, Definition and Kernel are the worst differences relative to the largest magnitude: between the op
	// with exact activations and the float product, without and with rounding, and between the kernel and its
	// definition.
	Structural, Definition, Kernel float64
}

// Include adds the checks of another report.
func (r *Report) Include(o *Report) {
	r.Checked, r.Kernels = r.Checked+o.Checked, r.Kernels+o.Kernels
	r.Structural, r.Definition = max(r.Structural, o.Structural), max(r.Definition, o.Definition)
	r.Kernel = max(r.Kernel, o.Kernel)
}

// Apply makes the nodes that multiply by the weights, or gather their rows, read the quantized forms: it replaces
// MatMul, Gemm and Gather by mojo.Linear and mojo.Embedding, and mojo.MoE by mojo.QMoE if both its matrices have such a
// form. activations is the attribute of Linear and QMoE, if the codes support it (fused.Activations). Each kind of site
// is checked first, as every site is. A weight stays if another node reads it too, or if a site fails the check.
//
// Apply does not look into other nodes: the types and shapes of the model stay as they were.
func Apply(run *pass.Run, weights []*Weight, activations string) (*Report, error) {
	if err := pass.CheckDomain(run.Model); err != nil {
		return nil, err
	}
	return newQuantizer(run, nil, activations).apply(weights)
}

func newQuantizer(run *pass.Run, facts *infer.Facts, activations string) *quantizer {
	return &quantizer{run: run, facts: facts, activations: activations,
		report: &Report{Refuse: map[*Weight]error{}}, stored: map[*fused.Quantized][]*onnx.Value{},
		functions: map[string]*onnx.Function{}, weights: map[*onnx.Value]*Weight{}}
}

func (q *quantizer) apply(weights []*Weight) (*Report, error) {
	for _, step := range []func(*Weight) error{q.read, q.pair, q.pair, q.check, q.pair, q.pair} {
		for _, w := range weights {
			if q.report.Refuse[w] != nil {
				continue
			}
			if err := step(w); err != nil {
				q.report.Refuse[w] = err
			}
		}
	}
	for _, w := range weights {
		if q.report.Refuse[w] == nil {
			q.report.Kept = append(q.report.Kept, w)
		}
	}
	for _, w := range q.report.Kept {
		if err := q.place(w); err != nil {
			return nil, err
		}
	}
	return q.report, q.finish()
}

type quantizer struct {
	run         *pass.Run
	facts       *infer.Facts // nil until the type of an undeclared value is needed
	activations string
	report      *Report
	kinds       prove.Prover // of sites
	// stored holds the initializers of a matrix, in the order of the ops' inputs.
	stored    map[*fused.Quantized][]*onnx.Value
	functions map[string]*onnx.Function
	edit      edit.Change
	weights   map[*onnx.Value]*Weight
}

// reader is a node that reads a weight, with the nodes between it and the initializer.
type reader struct {
	node  *onnx.Node
	views []*onnx.Node // Transpose, Cast, Identity
	bias  *onnx.Value  // from a Gemm or from added
	added *onnx.Node   // the Add of a constant vector that is the product's only reader
	typ   onnx.DataType
}

// read finds the nodes that read a weight. It returns an error that names a node that cannot read it quantized.
func (q *quantizer) read(w *Weight) error {
	q.weights[w.Value] = w
	return q.readers(w, w.Value, w.InOut, w.Value.Const.DataType, nil)
}

func (q *quantizer) readers(w *Weight, v *onnx.Value, inOut bool, typ onnx.DataType,
	views []*onnx.Node) error {
	if v.IsOutput() {
		return fmt.Errorf("%q is an output of the graph", v.Name)
	}
	if len(v.Uses()) == 0 {
		return fmt.Errorf("no node reads %q", v.Name)
	}
	for _, u := range v.Uses() {
		n := u.Node
		one := reader{node: n, views: views, typ: typ}
		switch {
		case isMixture(n) && len(views) == 0 && w.Matrix.Experts > 0:
			if err := q.readsExperts(n, u.Index, inOut); err != nil {
				return err
			}
		case w.Matrix.Experts > 0:
			return fmt.Errorf("node %q (%s) reads it, but is not mojo.MoE", n.Label(), onnx.OpName(n.Domain, n.OpType))
		case n.Is("MatMul") && u.Index == 1 && inOut:
			one.addition(w.Matrix.N)
		case n.Is("Gemm") && u.Index == 1 && inOut == (n.AttrInt("transB", 0) == 0):
			if err := one.gemm(w.Matrix.N); err != nil {
				return err
			}
		case isFusedMatMul(n) && u.Index == 1 && inOut == (n.AttrInt("transB", 0) == 0):
			one.addition(w.Matrix.N)
		case n.Is("Gather") && u.Index == 0 && !inOut && n.AttrInt("axis", 0) == 0:
		case n.Domain == onnx.Microsoft && n.OpType == "MatMulNBits" && u.Index == 1:
			one.typ, one.bias = n.Input(2).Constant().DataType, n.Input(5)
			if one.bias != nil && one.bias.Constant() == nil {
				return fmt.Errorf("node %q (MatMulNBits) adds a computed bias", n.Label())
			}
		case n.Domain == onnx.Microsoft && n.OpType == "GatherBlockQuantized" && u.Index == 0:
			one.typ = n.Input(2).Constant().DataType
		case u.Index == 0 && (n.Is("Identity") || n.Is("Cast") || n.Is("Transpose") && isSwap(n) ||
			n.Is("DequantizeLinear")):
			out, t := inOut, typ
			if n.Is("Transpose") {
				out = !inOut
			} else if n.Is("Cast") {
				t = onnx.DataType(n.AttrInt("to", 0))
			} else if n.Is("DequantizeLinear") {
				t = n.Input(1).Constant().DataType
			}
			if err := q.readers(w, n.Outputs[0], out, t, append(slices.Clip(views), n)); err != nil {
				return err
			}
			continue
		default:
			return fmt.Errorf("node %q (%s) also reads it and takes floats", n.Label(),
				onnx.OpName(n.Domain, n.OpType))
		}
		w.nodes = append(w.nodes, one)
	}
	return nil
}

// typeOf returns the known or declared type of a value.
func (q *quantizer) typeOf(v *onnx.Value) onnx.DataType {
	if q.facts != nil {
		if t := q.facts.DataType(v); t != onnx.Undefined {
			return t
		}
	}
	t := declared(v)
	if t == onnx.Undefined && q.facts == nil {
		q.facts = infer.Analyze(q.run.Model)
		t = q.facts.DataType(v)
	}
	return t
}

func declared(v *onnx.Value) onnx.DataType {
	t, _ := v.Type()
	return t.DataType
}

// gathers reports whether the node gathers rows of the weight.
func (s *reader) gathers() bool {
	return s.node.OpType == "Gather" || s.node.OpType == "GatherBlockQuantized"
}

// isSwap reports whether a Transpose swaps the axes of a matrix.
func isSwap(n *onnx.Node) bool {
	perm := n.AttrInts("perm")
	return perm == nil || slices.Equal(perm, []int64{1, 0})
}

// gemm checks that a Gemm computes only the product and a bias.
func (s *reader) gemm(columns int64) error {
	n := s.node
	switch c := n.Input(2); {
	case n.AttrFloat("alpha", 1) != 1 || n.AttrInt("transA", 0) != 0:
		return fmt.Errorf("node %q (Gemm) has a factor or a transposed first input", n.Label())
	case c == nil:
	case n.AttrFloat("beta", 1) != 1 || c.Constant() == nil || !slices.Equal(c.Constant().Dims, []int64{columns}):
		return fmt.Errorf("node %q (Gemm) does not add a vector of %d constants", n.Label(), columns)
	default:
		s.bias = c
	}
	return nil
}

// isFusedMatMul reports whether a node is onnxruntime's FusedMatMul and computes only a MatMul whose second input may
// be transposed.
func isFusedMatMul(n *onnx.Node) bool {
	return n.Domain == onnx.Microsoft && n.OpType == "FusedMatMul" && n.AttrFloat("alpha", 1) == 1 &&
		n.AttrInt("transA", 0) == 0 && n.AttrInt("transBatchA", 0) == 0 && n.AttrInt("transBatchB", 0) == 0
}

// addition moves a constant vector into the op if its addition is the product's only reader.
func (s *reader) addition(columns int64) {
	out := s.node.Outputs[0]
	if out.IsOutput() || len(out.Uses()) != 1 || !out.Uses()[0].Node.Is("Add") {
		return
	}
	u := out.Uses()[0]
	c := u.Node.Input(1 - u.Index)
	if t := c.Constant(); t != nil && t.DataType == s.typ && slices.Equal(t.Dims, []int64{columns}) &&
		u.Node.Graph == s.node.Graph {
		s.bias, s.added = c, u.Node
	}
}

// place inserts the nodes that read the quantized form and removes those that read floats.
func (q *quantizer) place(w *Weight) error {
	for _, s := range w.nodes {
		if isMixture(s.node) {
			if err := q.placeMixture(w, s); err != nil {
				return err
			}
			continue
		}
		n, g := s.node, s.node.Graph
		typed, x := fused.Typed(w.Matrix.Embedding()), n.Input(1)
		if !s.gathers() {
			typed, x = w.Matrix.Linear(q.activationsOf(w.Matrix)), n.Input(0)
		}
		op, attrs := fused.Lookup(typed.OpType()), typed.Attributes()
		inputs := append([]*onnx.Value{x}, q.initializers(w)...)
		if s.bias != nil {
			inputs = append(inputs, s.bias)
		}
		for inputs[len(inputs)-1] == nil {
			inputs = inputs[:len(inputs)-1]
		}
		var made []*onnx.Node
		add := func(node *onnx.Node, name string, outputs ...*onnx.Value) {
			node.Name = name
			node.Metadata = append(slices.Clone(n.Metadata), q.run.Origin(rule, n)...)
			for i, v := range outputs {
				q.edit.TakeOutput(node, i, v)
			}
			made = append(made, node)
		}
		out := n.Outputs[0]
		if s.added != nil {
			out = s.added.Outputs[0]
		}
		node := q.edit.NewNode(g, op.Name, inputs, nil, attrs...)
		node.Domain = fused.Domain
		if op.Name == fused.EmbeddingName {
			if err := q.ids(g, node, add); err != nil {
				return err
			}
		}
		if op.Name == fused.EmbeddingName && s.typ != onnx.Float {
			floats := g.NewValue(out.Name + "_float")
			add(node, n.Label()+"_Embedding", floats)
			cast := q.edit.NewNode(g, "Cast", []*onnx.Value{floats}, nil, onnx.IntAttr("to", int64(s.typ)))
			add(cast, n.Label()+"_Cast", out)
		} else {
			add(node, n.Label()+"_"+op.Name, out)
		}
		node.Metadata = append(node.Metadata, onnx.Entry{Key: edit.MetaFormat, Value: w.Matrix.Format})
		if err := q.declare(op, node, s); err != nil {
			return err
		}
		q.replace(s, made)
	}
	return nil
}

// activationsOf returns the rounding of activations for an op with these matrices, and adds it to the report.
func (q *quantizer) activationsOf(matrices ...*fused.Quantized) string {
	kind := fused.Activations(q.activations, matrices...)
	if !slices.Contains(q.report.Activations, kind) {
		q.report.Activations = append(q.report.Activations, kind)
	}
	return kind
}

// replace replaces a node, and the nodes between it and the initializer, by the new nodes.
func (q *quantizer) replace(s reader, made []*onnx.Node) {
	q.edit.Insert(s.node, made...)
	q.edit.Drop(s.node)
	q.edit.Drop(s.views...)
	if s.added != nil {
		q.edit.Drop(s.added)
	}
}

// ids casts the int32 ids of a Gather to int64 for an Embedding.
func (q *quantizer) ids(g *onnx.Graph, node *onnx.Node, add func(*onnx.Node, string, ...*onnx.Value)) error {
	ids := node.Input(0)
	if q.typeOf(ids) != onnx.Int32 {
		return nil
	}
	cast := q.edit.NewNode(g, "Cast", []*onnx.Value{ids}, nil, onnx.IntAttr("to", int64(onnx.Int64)))
	long := g.NewValue(ids.Name + "_int64")
	add(cast, long.Name, long)
	q.edit.SetInput(node, 0, long)
	return nil
}

// declare adds the op's definition to the model.
func (q *quantizer) declare(op *fused.Op, n *onnx.Node, s reader) error {
	typ := s.typ
	if op.Name == fused.EmbeddingName {
		typ = onnx.Int64
	}
	f, err := op.Function(typedSite(n, q.typeOf, typ, q.run.Model.Opset("")))
	if err != nil {
		return fmt.Errorf("node %q: %w", s.node.Label(), err)
	}
	q.edit.SetDomain(n, n.Domain, f.Overload)
	q.functions[edit.FunctionName(f)] = f
	return nil
}

// initializers returns the values of a matrix, added once for all weights that share it.
func (q *quantizer) initializers(w *Weight) []*onnx.Value {
	list, done := q.stored[w.Matrix]
	if done {
		return slices.Clone(list)
	}
	for _, t := range w.Matrix.Tensors() {
		var v *onnx.Value
		if t != nil {
			v = q.edit.AddInitializer(q.run.Model.Graph, t)
		}
		list = append(list, v)
	}
	q.stored[w.Matrix] = list
	return slices.Clone(list)
}

// finish completes the change if any weight was kept, and drops the floats.
func (q *quantizer) finish() error {
	if len(q.report.Kept) == 0 {
		return nil
	}
	return q.declareAll()
}

// declareAll adds the functions that new nodes call and finishes the change.
func (q *quantizer) declareAll() error {
	if len(q.functions) == 0 {
		return q.edit.Finish()
	}
	for _, name := range slices.Sorted(maps.Keys(q.functions)) {
		q.edit.AddFunction(q.run.Model, q.functions[name])
	}
	q.edit.ImportOpset(q.run.Model, nil, fused.Domain, fused.Version)
	q.edit.RaiseIR(q.run.Model, edit.MinIRVersion)
	return q.edit.Finish()
}
