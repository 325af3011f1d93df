package patterns

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/mojo-patch/mojo-patch/internal/cputime"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/builtin"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// Limits of one fuzzed search.
const (
	fuzzTime  = 10 * time.Second
	fuzzAlloc = 1 << 30
)

// fuzzOps are the ops of the built-in patterns and their views.
var fuzzOps = []string{"Mul", "Add", "Cast", "Mul", "Sigmoid", "Concat", "Neg", "Slice", "Split", "Pow", "ReduceMean",
	"Sqrt", "Reciprocal", "Div",
	"Unsqueeze", "Reshape", "Transpose", "Expand", "Where", "Gather", "Shape", "Gelu", "Erf", "Tanh", "Sub", "Identity",
	"Swish", "QuickGelu",
	"Squeeze", "MatMul", "Cos", "Sin", "Flatten", "ReduceSum", "RMSNormalization", "LayerNormalization", "Equal", "Max",
	"Min", "Clip", "Sum", "Softmax", "MatMul", "Exp", "Attention", "Einsum"}

// FuzzFind searches graphs made from arbitrary bytes for the built-in patterns.
//
//	go test -fuzz FuzzFind ./patterns
func FuzzFind(f *testing.F) {
	f.Add([]byte{1, 0, 7, 3, 2, 200, 9, 0, 1, 1, 1, 77, 0, 5, 4, 1, 0, 3, 2, 250, 9, 0, 0, 3, 200, 1, 100, 2})
	var tower []byte // x * x, squared again and again: every product has many nestings
	for range byte(40) {
		tower = append(tower, 0, 1, 0, 0, 0)
	}
	f.Add(tower)
	for i := range byte(8) {
		b := make([]byte, 120)
		for k := range b {
			b[k] = byte(k*k*7) + i*31
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r := &source{b: b}
		searched(t, r.graph())
	})
}

// FuzzRewired searches bundled models, some of whose nodes read other values than before, for the built-in patterns.
//
//	go test -fuzz FuzzRewired ./patterns
func FuzzRewired(f *testing.F) {
	for base := range byte(len(fuzzModels)) {
		f.Add([]byte{base})
		f.Add([]byte{base, 1, 0, 7, 3, 2, 200, 9, 0, 1, 1, 1, 77, 0, 5, 4, 1, 0, 3, 2, 250, 9, 0, 0, 3, 200, 1, 100, 2})
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r := &source{b: b}
		m := r.rewired(t, fuzzModels[r.next(len(fuzzModels))])
		defer m.Close()
		searched(t, m)
	})
}

func searched(t *testing.T, m *onnx.Model) {
	t.Helper()
	limited(t, func() {
		facts := infer.Analyze(m)
		m.Graph.Walk(func(g *onnx.Graph) {
			matches, _ := Builtin().Find(g, facts)
			whole(t, g, matches)
		})
	})
}

// FuzzPatterns searches a bundled model for patterns of arbitrary text.
//
//	go test -fuzz FuzzPatterns ./patterns
func FuzzPatterns(f *testing.F) {
	for _, name := range builtin.Blocks {
		f.Add(builtin.Text(name))
	}
	f.Add("pattern P(x) -> y {\n y = Add(" + strings.Repeat("x, ", 11) + "x)\n} => mojo.A(x)")
	f.Add("pattern P(x) -> y {\n y = " + strings.Repeat("Mul(_ | Add?(x, _), ", 60) + "x" + strings.Repeat(")", 60) +
		"\n} => mojo.A(x)")
	f.Add("pattern P(x) -> y {\n y = " + strings.Repeat("(Add?(Mul?(", 60) + "x" + strings.Repeat(", _), _) | x)", 60) +
		"\n} => mojo.A(x)")
	m, err := onnx.Read(fuzzModels[0])
	if err != nil {
		f.Fatal(err)
	}
	facts := infer.Analyze(m)
	f.Fuzz(func(t *testing.T, src string) {
		limited(t, func() {
			s := NewSet()
			if s.Add("f.pat", src) != nil {
				return
			}
			matches, _ := s.Find(m.Graph, facts)
			whole(t, m.Graph, matches)
		})
	})
}

var fuzzModels = []string{
	filepath.Join("..", "models", "llama-ts-fp32.onnx"),
	filepath.Join("..", "models", "qwen3-ts-fp16.onnx"),
	filepath.Join("..", "models", "llama-dynamo-bf16.onnx"),
}

// limited requires that f ends soon and takes little memory.
func limited(t *testing.T, f func()) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := cputime.Used()
	stop := cputime.AfterFunc(3*fuzzTime, func() {
		buf := make([]byte, 1<<16)
		os.Stderr.Write(buf[:runtime.Stack(buf, true)])
		panic("the search does not come to an end")
	})
	f()
	stop()
	runtime.ReadMemStats(&after)
	if took := cputime.Used() - start; took > fuzzTime {
		t.Errorf("it took %v", took)
	}
	if n := after.TotalAlloc - before.TotalAlloc; n > fuzzAlloc {
		t.Errorf("it took %d MB in all", n>>20)
	}
}

// whole requires that matches belong to the graph, and that no node's result is replaced twice.
func whole(t *testing.T, g *onnx.Graph, matches []*Match) {
	t.Helper()
	written := map[*onnx.Value]bool{}
	for _, m := range matches {
		if len(m.Nodes) == 0 || len(m.Outputs) == 0 {
			t.Errorf("a match of %s has %d nodes and %d outputs", m.Pattern, len(m.Nodes), len(m.Outputs))
		}
		for _, n := range m.Nodes {
			if n.Graph != g {
				t.Errorf("a match of %s has the node %q of another graph", m.Pattern, n.Name)
			}
		}
		for _, v := range m.Outputs {
			if written[v] {
				t.Errorf("two matches write %q", v.Name)
			}
			written[v] = true
		}
	}
}

// source turns bytes into choices; after the last byte it returns zeros.
type source struct{ b []byte }

func (r *source) next(n int) int {
	if len(r.b) == 0 {
		return 0
	}
	v := int(r.b[0])
	if r.b = r.b[1:]; n > 256 && len(r.b) > 0 {
		v = v<<8 | int(r.b[0])
		r.b = r.b[1:]
	}
	return v % n
}

// graph makes up to 200 nodes, from four bytes each, over one input and some constants.
func (r *source) graph() *onnx.Model {
	m := onnx.New(10, 21)
	g := m.Graph
	dims := []onnx.Dim{{Value: -1, Param: "batch"}, {Value: -1, Param: "sequence"}, {Value: 8}}
	known := []*onnx.Value{g.AddInput("x", onnx.Type{DataType: onnx.Float, HasShape: true, Dims: dims})}
	known = append(known, g.AddInput("y", onnx.Type{DataType: onnx.Float, HasShape: true, Dims: dims}))
	for _, x := range []float32{1, 2, 0.5, -1, 1e-5, 1.702} {
		known = append(known, g.AddInitializer(onnx.NewFloat32s("c", []int64{}, []float32{x})))
	}
	for _, x := range [][]int64{{-1}, {0}, {4}, {4, 4}, {1 << 62}, {0, 0, -1}} {
		known = append(known, g.AddInitializer(onnx.NewInt64s("i", x)))
	}
	for len(r.b) > 0 && len(g.Nodes) < 200 {
		op := fuzzOps[r.next(len(fuzzOps))]
		inputs := make([]*onnx.Value, 1+r.next(5))
		for i := range inputs {
			if k := r.next(256); k < 128 { // one of the last values
				inputs[i] = known[max(len(known)-1-k%8, 0)]
			} else {
				inputs[i] = known[k%len(known)]
			}
		}
		var attrs []*onnx.Attribute
		switch op {
		case "Cast":
			attrs = append(attrs,
				onnx.IntAttr("to", int64([]onnx.DataType{onnx.Float, onnx.Float16, onnx.BFloat16,
					onnx.Int64}[r.next(4)])))
		case "Concat", "Split", "Gather", "Flatten":
			attrs = append(attrs, onnx.IntAttr("axis", int64(r.next(4)-1)))
		case "Transpose":
			attrs = append(attrs, onnx.IntsAttr("perm", []int64{0, 2, 1}))
		}
		outputs := []*onnx.Value{g.NewValue("v"), g.NewValue("v")}[:1+r.next(2)]
		g.AddNode(op, inputs, outputs, attrs...)
		known = append(known, outputs...)
	}
	g.AddOutput(known[len(known)-1])
	return m
}

// rewired reads a bundled model and makes nodes read other earlier values.
func (r *source) rewired(t *testing.T, path string) *onnx.Model {
	m, err := onnx.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	nodes := m.Graph.Nodes
	for range 40 {
		if len(r.b) == 0 {
			break
		}
		at := 1 + r.next(len(nodes)-1)
		n := nodes[at]
		if len(n.Inputs) == 0 {
			continue
		}
		from := nodes[max(at-1-r.next(64), 0)]
		switch v := from.OutputValue(0); {
		case v == nil:
		case r.next(4) == 0:
			n.OpType = from.OpType
		default:
			n.SetInput(r.next(len(n.Inputs)), v)
		}
	}
	return m
}
