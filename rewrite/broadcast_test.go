package rewrite

import (
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

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
			b := newBuilder(t, 17, onnx.Float)
			x, y := b.input("x", c.a...), b.input("y", c.b...)
			b.output(b.op(c.op, x, y))
			got := oneBroadcast([]*scope{{graph: b.g}}, infer.Analyze(b.m))
			if got != c.want {
				t.Errorf("expanded %d, want %d", got, c.want)
			}
			last := b.g.Nodes[len(b.g.Nodes)-1]
			if len(b.g.Nodes) != 1+2*c.want || last.OpType != c.op || last.Input(1) != y {
				t.Fatalf("the graph is %v", b.g.Nodes)
			}
			if c.want == 0 {
				return
			}
			if e := last.Input(0).Producer; !e.Is("Expand") || e.Input(0) != x || !e.Input(1).Producer.Is("Shape") || e.Input(1).Producer.Input(0) != y {
				t.Errorf("the first input is %v", e)
			}
			if again := oneBroadcast([]*scope{{graph: b.g}}, infer.Analyze(b.m)); again != 0 {
				t.Errorf("expanded %d once more", again)
			}
		})
	}
}
