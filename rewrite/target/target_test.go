package target

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite/rewritetest"
)

const (
	f32  = onnx.Float
	f16  = onnx.Float16
	bf16 = onnx.BFloat16
)

// site is a fused op at one place of use, with the known shapes of its inputs (-1: unknown) and the shapes of the run.
type site struct {
	op    string
	attrs []*onnx.Attribute
	types []onnx.DataType // Undefined: left out
	dims  [][]int64
	run   [][]int // dims where nil
	// neighbors is the order in which tables known to repeat hold every element twice; nil: nothing is known.
	neighbors *bool
}

func normSite(op string, after int64, types []onnx.DataType, dims ...[]int64) site {
	return site{op: op, types: types, dims: dims, attrs: []*onnx.Attribute{onnx.IntAttr("axis", -1),
		onnx.FloatAttr("epsilon", 1e-3), onnx.IntAttr("scale_after_cast", after)}}
}

func gluSite(activation string, alpha, limit, offset float32, t onnx.DataType) site {
	return site{op: "GLU", types: []onnx.DataType{t, t}, dims: [][]int64{{2, -1, 6}, {2, -1, 6}},
		run:   [][]int{{2, 3, 6}, {2, 3, 6}},
		attrs: fused.GLU{Activation: activation, Alpha: alpha, Limit: limit, UpOffset: offset}.Attributes()}
}

func biasSite(activation string, alpha float32, t onnx.DataType) site {
	return site{op: "BiasGELU", types: []onnx.DataType{t, t}, dims: [][]int64{{2, 3, 8}, {8}},
		attrs: fused.BiasGELU{Activation: activation, Alpha: alpha}.Attributes()}
}

// layerSite adds two tensors, with a bias if there is a fifth type, and normalizes the sum.
func layerSite(rows []int64, types ...onnx.DataType) site {
	return site{op: "AddLayerNorm", types: types, dims: [][]int64{rows, rows, {8}, {8}, {8}}[:len(types)],
		attrs: fused.AddLayerNorm{Epsilon: 1e-3}.Attributes()}
}

func rotarySite(interleaved, dim int64, side, layout string, x, tables []int64, run ...[]int) site {
	return site{op: "RotaryEmbedding", types: []onnx.DataType{f32, f32, f32}, dims: [][]int64{x, tables, tables},
		run: run,
		attrs: []*onnx.Attribute{onnx.IntAttr("interleaved", interleaved), onnx.IntAttr("rotary_dim", dim),
			onnx.StringAttr("rotated_side", side), onnx.StringAttr("output_layout", layout)}}
}

func (s site) typed(types ...onnx.DataType) site { s.types = types; return s }

func (s site) repeating(neighbors bool) site { s.neighbors = &neighbors; return s }

// graph returns a function body with the fused op, and the op's definition.
func (s site) graph(t *testing.T, opset int64) (*onnx.Graph, *onnx.Node, *onnx.Function) {
	t.Helper()
	op := fused.Lookup(s.op)
	f, err := op.Function(fused.Site{Attributes: s.attrs, Types: s.types, Dims: s.dims, Opset: opset})
	if err != nil {
		t.Fatal(err)
	}
	g := onnx.NewFunction("", "", "", opset).Body
	inputs, outputs := make([]*onnx.Value, len(s.types)), make([]*onnx.Value, len(op.Outputs))
	for i, p := range op.Inputs[:len(inputs)] {
		if s.types[i] != onnx.Undefined {
			inputs[i] = g.AddInput(p.Name, onnx.Type{})
		}
	}
	for i, p := range op.Outputs {
		outputs[i] = g.NewValue(p.Name)
	}
	n := g.AddNode(s.op, inputs, outputs, s.attrs...)
	n.Domain, n.Overload, n.Name = fused.Domain, f.Overload, "site"
	for _, v := range outputs {
		g.AddOutput(v)
	}
	return g, n, f
}

// write lets the target write the op.
func (s site) write(to *Target, n *onnx.Node, opset int64) (string, error) {
	c := NewCall(n, fused.Site{Attributes: s.attrs, Types: s.types, Dims: s.dims, Opset: opset})
	if s.neighbors != nil {
		c.Repeats = func(_ *onnx.Value, neighbors bool) bool { return neighbors == *s.neighbors }
	}
	if s.run != nil { // equal sizes are known to be equal
		size := func(v *onnx.Value, axis int) int { return s.run[slices.Index(n.Inputs, v)][axis] }
		c.SameSize = func(v *onnx.Value, axis int, w *onnx.Value, other int) bool {
			return size(v, axis) == size(w, other)
		}
	}
	return to.Write(c)
}

// inputs returns normally distributed numbers. Tables repeat as the site says.
func (s site) inputs(t *testing.T) []*reference.Tensor {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	var list []*reference.Tensor
	for i, typ := range s.types {
		if typ == onnx.Undefined {
			continue
		}
		var dims []int
		if s.run != nil {
			dims = s.run[i]
		} else {
			for _, d := range s.dims[i] {
				dims = append(dims, int(d))
			}
		}
		n, last := 1, 1
		for _, d := range dims {
			n, last = n*d, d
		}
		v := make([]float64, n)
		if !typ.IsFloat() { // expert ids, or which keys are valid
			ids := make([]int64, n)
			for k := range ids {
				ids[k] = r.Int64N(4)
			}
			list = append(list, reference.NewInts(typ, dims, ids))
			continue
		}
		for k := range v {
			v[k] = 2 * r.NormFloat64()
			switch at := k % last; {
			case s.neighbors == nil || i == 0:
			case *s.neighbors && at%2 == 1:
				v[k] = v[k-1]
			case !*s.neighbors && at >= last/2:
				v[k] = v[k-last/2]
			}
		}
		x, err := reference.NewFloats(typ, dims, v).ToONNX("") // rounds
		if err != nil {
			t.Fatal(err)
		}
		rounded, err := reference.FromONNX(x)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, rounded)
	}
	return list
}

func evaluate(t *testing.T, g *onnx.Graph, opset int64, functions []*onnx.Function,
	inputs []*reference.Tensor) []*reference.Tensor {
	t.Helper()
	e := reference.NewForOpset(opset, functions, reference.Options{})
	values := map[*onnx.Value]*reference.Tensor{}
	for i, v := range g.Inputs {
		values[v] = inputs[i]
	}
	if _, err := e.EvalFor(g.Nodes, values, g.Outputs); err != nil {
		t.Fatal(err)
	}
	var out []*reference.Tensor
	for _, v := range g.Outputs {
		out = append(out, values[v])
	}
	return out
}

// written lists the ops of a graph except constants.
func written(g *onnx.Graph) string {
	var ops []string
	for _, n := range g.Nodes {
		if !n.Is("Constant") {
			ops = append(ops, strings.TrimPrefix(n.Domain+"."+n.OpType, "."))
		}
	}
	return strings.Join(ops, " ")
}

// precision bounds the relative and absolute difference between two evaluations due to rounding.
var precision = map[onnx.DataType]float64{f32: 1e-6, f16: 2e-3, bf16: 1.6e-2}

// taken lets the target write the op, compares the result with the definition, and expects the given ops.
func taken(t *testing.T, to *Target, s site, ops string) {
	t.Helper()
	if got := written(same(t, to, s)); got != ops {
		t.Errorf("wrote %s\nwant  %s", got, ops)
	}
}

// same lets the target write the op, compares the result with the definition, and returns it.
func same(t *testing.T, to *Target, s site) *onnx.Graph {
	t.Helper()
	opset := max(to.Opset, 17)
	g, n, f := s.graph(t, opset)
	inputs := s.inputs(t)
	want := evaluate(t, g, opset, []*onnx.Function{f}, inputs)
	if _, err := s.write(to, n, opset); err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, n := range g.Nodes {
		if names[n.Name] || !strings.HasPrefix(n.Name, "site_"+n.OpType) && n.Domain != fused.Domain {
			t.Errorf("a node (%s) has the name %q", n.OpType, n.Name)
		}
		names[n.Name] = true
	}
	results := map[string][]*reference.Tensor{"the evaluator": evaluate(t, g, opset, nil, inputs)}
	if to.OnCPU && !slices.Contains(s.types, bf16) { // onnxruntime's CPU provider has almost no bfloat16 kernels
		results["onnxruntime"] = inRuntime(t, g, opset, inputs)
	}
	for where, got := range results {
		agree(t, s, where, want, got)
	}
	return g
}

// agree compares results with the definition's.
func agree(t *testing.T, s site, where string, want, results []*reference.Tensor) {
	t.Helper()
	for i, got := range results {
		if got.DataType != want[i].DataType || len(got.F) != len(want[i].F) {
			t.Fatalf("%s: output %d is %s, want %s", where, i, got, want[i])
		}
		tolerance := precision[want[i].DataType]
		switch s.op { // sums of products, in another order with other rounding
		case "MoE", "Attention":
			tolerance *= 8
		case "LinearAttention": // the rounding error grows with each token
			tolerance *= 32
		}
		for k, x := range want[i].F {
			if !(math.Abs(got.F[k]-x) <= tolerance*(1+math.Abs(x))) {
				t.Fatalf("%s: output %d, element %d: %v, the definition gives %v", where, i, k, got.F[k], x)
			}
		}
	}
}

// inRuntime runs a function's body in onnxruntime with default settings.
func inRuntime(t *testing.T, body *onnx.Graph, opset int64, inputs []*reference.Tensor) []*reference.Tensor {
	t.Helper()
	m := onnx.New(10, opset)
	m.ImportOpset("test", 1)
	m.ImportOpset(onnx.Microsoft, 1)
	f := onnx.NewFunction("test", "Site", "", opset)
	f.Opsets = append(f.Opsets, onnx.Opset{Domain: onnx.Microsoft, Version: 1})
	f.Body, m.Functions = body, []*onnx.Function{f}
	var in, out []*onnx.Value
	feeds := map[string]*reference.Tensor{}
	for i, x := range inputs {
		name := body.Inputs[i].Name
		in, feeds[name] = append(in, m.Graph.AddInput(name, onnx.Type{DataType: x.DataType})), x
	}
	for _, v := range body.Outputs {
		out = append(out, m.Graph.NewValue(v.Name))
	}
	m.Graph.AddNode("Site", in, out).Domain = "test"
	for _, v := range out {
		m.Graph.AddOutput(v)
	}
	got := rewritetest.InOnnxruntime(t, m, feeds)
	var results []*reference.Tensor
	for _, v := range out {
		results = append(results, got[v.Name])
	}
	return results
}

// open expects the target to refuse the op for the given reason and to leave the graph unchanged.
func open(t *testing.T, to *Target, s site, reason string) {
	t.Helper()
	opset := max(to.Opset, 17)
	g, n, _ := s.graph(t, opset)
	before := g.Text()
	_, err := s.write(to, n, opset)
	if err == nil || !strings.Contains(err.Error(), reason) {
		t.Errorf("got %v, want an error with %q", err, reason)
	}
	if after := g.Text(); after != before {
		t.Errorf("the graph was changed:\n%s\nbefore:\n%s", after, before)
	}
	for _, v := range g.Inputs {
		if len(v.Uses()) != 1 {
			t.Errorf("%s has %d uses", v.Name, len(v.Uses()))
		}
	}
}

func TestLookup(t *testing.T) {
	for _, want := range All() {
		if got, err := Lookup(want.Name); got != want || err != nil {
			t.Errorf("Lookup(%q) = %v, %v", want.Name, got, err)
		}
		for _, r := range want.Rules {
			if fused.Lookup(r.Op) == nil || r.Emits == "" {
				t.Errorf("target %s has a rule for %q that emits %q", want.Name, r.Op, r.Emits)
			}
		}
	}
	if got, err := Lookup(Mojo); got != nil || err != nil {
		t.Errorf("Lookup(%q) = %v, %v", Mojo, got, err)
	}
	if _, err := Lookup("tpu"); err == nil ||
		!strings.Contains(err.Error(), `unknown target "tpu"; the targets are mojo, ort, onnx`) {
		t.Errorf("got %v", err)
	}
}

// TestAccuracyLevel: the default is 0.
func TestAccuracyLevel(t *testing.T) {
	if l := (&Call{}).accuracyLevel(); l != 0 {
		t.Errorf("%d without products", l)
	}
	if l := (&Call{Products: &Products{AccuracyLevel: 4}}).accuracyLevel(); l != 4 {
		t.Errorf("%d, want 4", l)
	}
}
