package quantized

import (
	"fmt"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
	"github.com/mojo-patch/mojo-patch/reference/infer"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
	"github.com/mojo-patch/mojo-patch/rewrite/pass"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
	"github.com/mojo-patch/mojo-patch/rewrite/registry"
	"github.com/mojo-patch/mojo-patch/rewrite/sites"
	"github.com/mojo-patch/mojo-patch/rewrite/target"
)

// sampleRows is the number of matrix rows in the check of a site: one panel and part of another.
const sampleRows = 21

// sampleBytes bounds the float32 size of these rows.
const sampleBytes = 1 << 20

// check evaluates each kind of node that reads the weight, with its first rows. It compares the op's definition with
// the product of floats, and the kernel with the definition.
//
// activations=int16 and int8 round the activations; the product of floats does not. So the definition is compared with
// exact activations, and the kernel with the requested ones.
func (q *quantizer) check(w *Weight) error {
	if w.Matrix.K%32 != 0 || w.Matrix.K == 0 || w.Matrix.N == 0 {
		return fmt.Errorf("row length %d is not a multiple of 32", w.Matrix.K)
	}
	for _, s := range w.nodes {
		if isMixture(s.node) {
			if err := q.checkMixture(w, s); err != nil {
				return err
			}
			continue
		}
		x := w.Matrix
		key := fmt.Sprint(s.node.OpType, s.typ, s.bias != nil, x.Format, x.K, min(x.N, sampleRows))
		if err := q.once(key, func() error { return q.checkKind(w, s) }); err != nil {
			return err
		}
	}
	return nil
}

// once runs try once for each kind of site.
func (q *quantizer) once(key string, try func() error) error {
	return q.kinds.Once(key, func() error {
		q.report.Checked++
		return try()
	})
}

func (q *quantizer) checkKind(w *Weight, s reader) error {
	rows := min(w.Matrix.N, sampleRows, sampleBytes/(4*w.Matrix.K))
	if rows == 0 {
		return reason.New(reason.Unchecked, nil, "cannot be checked: a row has %d elements", w.Matrix.K)
	}
	matrix, floats, err := w.Sample(rows)
	if err != nil {
		return err
	}
	bench, err := q.linearBench(matrix, s)
	if err != nil {
		return err
	}
	return bench.run(bench.floats(floats), s.gathers())
}

// linearBench returns the bench of a node that multiplies by a matrix or gathers its rows.
func (q *quantizer) linearBench(matrix *fused.Quantized, s reader) (*bench, error) {
	typ, dims := s.typ, []onnx.Dim{{Value: 2}, {Value: 3}}
	if s.gathers() {
		typ = onnx.Int64
	} else {
		dims = append(dims, onnx.Dim{Value: matrix.K})
	}
	b := &bench{q: q, matrix: matrix, site: s, x: onnx.Type{DataType: typ, HasShape: true, Dims: dims}}
	b.op, b.activations = b.node, fused.Activations(q.activations, matrix)
	if s.bias != nil {
		var err error
		if b.bias, err = s.bias.Constant().View("bias", []int64{matrix.N}, 0, []int64{1}); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// run compares the op with the floats, and the kernel with the op's definition. With again, it runs the kernel even if
// activations are float.
func (b *bench) run(floats original, again bool) error {
	r, err := b.judge(floats, "float")
	if err != nil {
		return err
	}
	report := b.q.report
	if r == nil { // checks are off
		return nil
	}
	report.Structural = max(report.Structural, r.Structural)
	report.Definition = max(report.Definition, r.MaxRel)
	if again || b.activations != "float" {
		if r, err = b.judge(b.itself, b.activations); err != nil {
			return err
		}
	}
	if r.Kernel != nil {
		report.Kernels++
		report.Kernel = max(report.Kernel, *r.Kernel)
	}
	return nil
}

// kernel accepts the sites. It is not registered, because no pattern finds them.
var kernel = &registry.Kernel{ID: "cpu_fused_linear", Device: "cpu",
	Ops: []string{fused.LinearName, fused.HalfLinearName, fused.EmbeddingName, fused.QMoEName}}

// bench builds small models of one site with a few rows.
type bench struct {
	q      *quantizer
	matrix *fused.Quantized
	bias   *onnx.Tensor // nil if there is none
	site   reader
	x      onnx.Type // of the input
	// activations is the op's attribute.
	activations string
	// target, if not nil, writes other ops for the op.
	target   *target.Target
	products *target.Products
	// op adds the op, with its weights in Constant nodes.
	op func(g *onnx.Graph, x *onnx.Value, activations string) *onnx.Node
}

// original adds the original computation of a site from its first input, and returns the last node.
type original func(g *onnx.Graph, x *onnx.Value, activations string) (*onnx.Node, error)

// constant adds a Constant node.
func (b *bench) constant(g *onnx.Graph, t *onnx.Tensor) *onnx.Value {
	v := g.NewValue(t.Name)
	g.AddNode("Constant", nil, []*onnx.Value{v}, onnx.TensorAttr("value", t))
	return v
}

// floats returns the original computation of the site from its first input. Products are float32 whatever the types of
// the graph, because quantized elements are not rounded to these.
func (b *bench) floats(rows []float32) original {
	return func(g *onnx.Graph, x *onnx.Value, _ string) (*onnx.Node, error) {
		n, k := b.matrix.N, b.matrix.K
		y := g.NewValue("y")
		if b.site.gathers() {
			table := g.AddInitializer(onnx.NewFloat32s("table", []int64{n, k}, rows))
			return g.AddNode("Gather", []*onnx.Value{table, x}, []*onnx.Value{y}), nil
		}
		turned := make([]float32, len(rows))
		for i := range n {
			for j := range k {
				turned[j*n+i] = rows[i*k+j]
			}
		}
		weight := g.AddInitializer(onnx.NewFloat32s("weight", []int64{k, n}, turned))
		half := b.site.typ != onnx.Float
		if half {
			wide := g.NewValue("x_float")
			g.AddNode("Cast", []*onnx.Value{x}, []*onnx.Value{wide}, onnx.IntAttr("to", int64(onnx.Float)))
			x = wide
		}
		last := g.AddNode("MatMul", []*onnx.Value{x, weight}, []*onnx.Value{y})
		if b.bias != nil {
			bias := b.constant(g, b.bias)
			if half {
				wide := g.NewValue("bias_float")
				g.AddNode("Cast", []*onnx.Value{bias}, []*onnx.Value{wide}, onnx.IntAttr("to", int64(onnx.Float)))
				bias = wide
			}
			last = g.AddNode("Add", []*onnx.Value{y, bias}, []*onnx.Value{g.NewValue("y_biased")})
		}
		if half {
			y = g.NewValue("y_half")
			last = g.AddNode("Cast", last.Outputs, []*onnx.Value{y}, onnx.IntAttr("to", int64(b.site.typ)))
		}
		return last, nil
	}
}

// itself computes the site with the op, so that only its kernel is compared.
func (b *bench) itself(g *onnx.Graph, x *onnx.Value, activations string) (*onnx.Node, error) {
	return b.op(g, x, activations), nil
}

// node adds the op, with the matrix in Constant nodes.
func (b *bench) node(g *onnx.Graph, x *onnx.Value, activations string) *onnx.Node {
	inputs := []*onnx.Value{x}
	for _, t := range b.matrix.Tensors() {
		var v *onnx.Value
		if t != nil {
			v = b.constant(g, t)
		}
		inputs = append(inputs, v)
	}
	if b.bias != nil {
		inputs = append(inputs, b.constant(g, b.bias))
	}
	for inputs[len(inputs)-1] == nil {
		inputs = inputs[:len(inputs)-1]
	}
	op := fused.Typed(b.matrix.Linear(activations))
	if b.site.gathers() {
		op = b.matrix.Embedding()
	}
	n := g.AddNode(op.OpType(), inputs, []*onnx.Value{g.NewValue("made")}, op.Attributes()...)
	n.Domain = fused.Domain
	return n
}

// judge compares the op with the original, using the checker of every site.
func (b *bench) judge(original original, activations string) (*prove.CheckReport, error) {
	m := onnx.New(edit.MinIRVersion, b.q.run.Model.Opset(""))
	m.ImportOpset(fused.Domain, fused.Version)
	x := m.Graph.AddInput("x", b.x)
	root, err := original(m.Graph, x, activations)
	if err != nil {
		return nil, err
	}
	m.Graph.AddOutput(root.Outputs[0])
	match := &patterns.Match{Pattern: rule, Domain: fused.Domain, Root: root, Nodes: m.Graph.Nodes,
		Inputs: []*onnx.Value{x}, Outputs: root.Outputs[:1]}
	match.Replacement = onnx.NewFunction("", "", "", m.Opset("")).Body
	made := b.op(match.Replacement, match.Replacement.AddInput("x", onnx.Type{}), activations)
	match.Op, match.Attributes = made.OpType, made.Attributes
	match.Replacement.AddOutput(made.Outputs[0])
	if root.Domain == fused.Domain {
		f, err := fused.Lookup(root.OpType).Function(siteOf(root, b.x.DataType, m.Opset("")))
		if err != nil {
			return nil, err
		}
		m.Functions, root.Overload = append(m.Functions, f), f.Overload
	}
	run := *b.q.run
	run.Model, run.Facts, run.HasKernel = m, infer.Analyze(m), func(string) bool { return true }
	site, err := sites.NewSite(match, &pass.Scope{Graph: m.Graph}, run.Facts)
	if err != nil {
		return nil, err
	}
	call, err := site.AddCall(made, kernel, m.Opset(""))
	if err != nil {
		return nil, err
	}
	f, err := call.Op.Function(call.Site)
	if err != nil {
		return nil, err
	}
	made.Overload, site.Functions = f.Overload, []*onnx.Function{f}
	if err := site.Cut(run.Facts); err != nil {
		return nil, err
	}
	check := sites.NewChecker(&run)
	if check.Target = b.target; b.target != nil {
		if _, err := site.Lower(b.target, b.products, run.Facts); err != nil {
			return nil, err
		}
	}
	return check.Check(site)
}

// siteOf describes a node with a quantized matrix whose first input has type typ. Other types are declared.
func siteOf(n *onnx.Node, typ onnx.DataType, opset int64) fused.Site {
	return typedSite(n, declared, typ, opset)
}

// typedSite is siteOf with other types.
func typedSite(n *onnx.Node, typeOf func(*onnx.Value) onnx.DataType, typ onnx.DataType, opset int64) fused.Site {
	site := fused.Site{Attributes: n.Attributes, Opset: opset}
	for i, v := range n.Inputs {
		t, dims := onnx.Undefined, []int64(nil)
		if i == 0 {
			t = typ
		} else if c := v.Constant(); c != nil {
			t, dims = c.DataType, c.Dims
		} else if v != nil {
			t = typeOf(v)
		}
		site.Types, site.Dims = append(site.Types, t), append(site.Dims, dims)
	}
	return site
}
