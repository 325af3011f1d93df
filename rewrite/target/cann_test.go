package target_test

import (
	"slices"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/reference/infer"
	"github.com/mojo-patch/mojo-patch/rewrite/rewritetest"
	"github.com/mojo-patch/mojo-patch/rewrite/target"
)

func avoidCANN(b *rewritetest.Builder) *target.CANNReport {
	r, err := target.AvoidCANN([]*onnx.Graph{b.Graph}, infer.Analyze(b.Model))
	if err != nil {
		panic(err)
	}
	return r
}

func expanded(b *rewritetest.Builder) int {
	if r := avoidCANN(b); r != nil {
		return r.Expanded
	}
	return 0
}

func TestOneBroadcast(t *testing.T) {
	type dims = []any
	for _, c := range []struct {
		name string
		op   string
		a, b dims
		want int
	}{
		{"angles", "Mul", dims{1, "s", 1}, dims{1, 1, 8}, 1},
		{"rows and columns", "Add", dims{"s", 1}, dims{1, "t"}, 1},
		{"one of them alone", "Div", dims{"b", "s", 8}, dims{"b", "s", 1}, 0},
		{"a vector", "Mul", dims{"b", "s", 8}, dims{8}, 0},
		{"a longer vector", "Sub", dims{"b", "s", 1}, dims{8}, 1},
		{"a scalar", "Mul", dims{"b", 1}, dims{}, 0},
		{"one shape", "Add", dims{"b", "s"}, dims{"b", "s"}, 0},
		{"not such a node", "Pow", dims{"s", 1}, dims{1, "t"}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := rewritetest.New(t, 17, onnx.Float)
			x, y := b.In("x", c.a...), b.In("y", c.b...)
			b.Out(b.Op(c.op, x, y))
			got := expanded(b)
			if got != c.want {
				t.Errorf("expanded %d, want %d", got, c.want)
			}
			last := b.Graph.Nodes[len(b.Graph.Nodes)-1]
			if len(b.Graph.Nodes) != 1+2*c.want || last.OpType != c.op || last.Input(1) != y {
				t.Fatalf("the graph is %v", b.Graph.Nodes)
			}
			if c.want == 0 {
				return
			}
			expand := last.Input(0).Producer
			shape := expand.Input(1).Producer
			if !expand.Is("Expand") || expand.Input(0) != x || !shape.Is("Shape") || shape.Input(0) != y {
				t.Errorf("the first input is %v", expand)
			}
			if again := expanded(b); again != 0 {
				t.Errorf("expanded %d once more", again)
			}
		})
	}
}

// TestUnknownRanks: an input of unknown rank may be broadcast, unless the other one is a scalar.
func TestUnknownRanks(t *testing.T) {
	for _, c := range []struct{ a, b, want int }{{-1, -1, 1}, {-1, 0, 0}, {0, -1, 0}, {-1, 1, 1}, {1, -1, 1}} {
		b := rewritetest.New(t, 17, onnx.Float)
		var in []any
		for i, rank := range []int{c.a, c.b} {
			v := b.In([]string{"x", "y"}[i])
			v.SetType(onnx.Type{DataType: onnx.Float, HasShape: rank >= 0, Dims: make([]onnx.Dim, max(rank, 0))})
			if typ, _ := v.Type(); rank == 1 {
				typ.Dims[0] = onnx.Dim{Value: 8}
				v.SetType(typ)
			}
			in = append(in, v)
		}
		b.Out(b.Op("Mul", in...))
		if got := expanded(b); got != c.want {
			t.Errorf("ranks %d and %d: expanded %d, want %d", c.a, c.b, got, c.want)
		}
	}
}

func TestWithoutC(t *testing.T) {
	for _, c := range []struct {
		name  string
		typ   onnx.DataType
		bias  bool
		attrs []*onnx.Attribute
		nodes []string
	}{
		{"a linear layer", onnx.Float16, false, []*onnx.Attribute{onnx.IntAttr("transB", 1)},
			[]string{"Transpose", "MatMul"}},
		{"as it is stored", onnx.Float16, false, nil, []string{"MatMul"}},
		{"both transposed", onnx.Float16, false,
			[]*onnx.Attribute{onnx.IntAttr("transA", 1), onnx.IntAttr("transB", 1)},
			[]string{"Transpose", "Transpose", "MatMul"}},
		{"with a bias", onnx.Float16, true, nil, []string{"Gemm"}},
		{"with a factor", onnx.Float16, false, []*onnx.Attribute{onnx.FloatAttr("alpha", 2)}, []string{"Gemm"}},
		{"float32, which is the CPU's", onnx.Float, false, nil, []string{"Gemm"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			build := func() *rewritetest.Builder {
				b := rewritetest.New(t, 17, c.typ)
				args := []any{b.In("x", 4, 4), b.Weight("w", 4, 4)}
				if c.bias {
					args = append(args, b.Weight("c", 4))
				}
				for _, a := range c.attrs {
					args = append(args, a)
				}
				b.Out(b.Op("Gemm", args...), 4, 4)
				return b
			}
			before, b := build(), build()
			count := 0
			if r := avoidCANN(b); r != nil {
				count = r.MatMuls
			}
			var nodes []string
			for _, n := range b.Graph.Nodes {
				nodes = append(nodes, n.OpType)
			}
			if !slices.Equal(nodes, c.nodes) || (count == 1) != (nodes[len(nodes)-1] == "MatMul") {
				t.Errorf("%d, and the nodes are %v; want %v", count, nodes, c.nodes)
			}
			x := reference.NewFloats(c.typ, []int{4, 4}, []float64{1, 2, 3, 4, -1, 0.5, 0, 1, 2, 2, -3, 1, 0, 1, 0.25,
				-2})
			in, name := map[string]*reference.Tensor{"x": x}, b.Graph.Outputs[0].Name
			want, got := rewritetest.Run(t, before.Model, in)[name], rewritetest.Run(t, b.Model, in)[name]
			if !slices.Equal(want.F, got.F) {
				t.Errorf("got %v, want %v", got.F, want.F)
			}
		})
	}
}
