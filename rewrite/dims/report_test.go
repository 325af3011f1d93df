package dims_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/rewrite/dims"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
	"github.com/mojo-patch/mojo-patch/rewrite/pass"
)

// flat returns all positions of all sequences as rows.
func flat(b *onnxtest.Builder, x *onnx.Value, batch, n int) {
	b.Output(b.Op("Tanh", b.Op("Reshape", x, ints(batch*n, width))))
}

// both returns a row for each sequence and one for each position.
func both(b *onnxtest.Builder, x *onnx.Value, _, _ int) {
	rows := func(axis int64) *onnx.Value {
		return b.Op("ReduceMax", x, []int64{axis}, onnx.IntAttr("keepdims", 0))
	}
	b.Output(b.Op("Concat", rows(1), rows(0), onnx.IntAttr("axis", 0)))
}

// twice masks two kinds of scores by one table.
func twice(b *onnxtest.Builder, x *onnx.Value, _, n int) {
	mask := make([]float32, n*n)
	for i := range mask {
		if i%n > i/n {
			mask[i] = -1e9
		}
	}
	later := b.Floats(ints(n, n), mask...)
	attend := func(s *onnx.Value) *onnx.Value {
		return b.Op("MatMul", b.Op("Softmax", b.Op("Add", s, later)), x)
	}
	b.Output(b.Op("Sub", attend(scores(b, x)), attend(b.Op("Neg", scores(b, x)))))
}

// TestReports: the whole report of some forms, the declared outputs, and the ops that the change adds.
func TestReports(t *testing.T) {
	for _, c := range []struct {
		name     string
		form     graph
		recorded int  // a length, or 0
		nodes    bool // the constants are nodes
		want     string
	}{
		{"attention", attention(nil), 0, false, `
batch 2 at x.0: rows computed together are equal to rows that the model computes at its size
sequence 6 at x.1: only one choice of constants runs at other sizes
Reshape [2, 6, 4, 4] -> [batch, sequence, 4, 4] by batch sequence
Reshape [2, 6, 4, 4] -> [batch, sequence, 4, 4] by batch sequence
Reshape [2, 6, 4, 4] -> [batch, sequence, 4, 4] by batch sequence
Reshape [2, 6, -1] -> [batch, sequence, -1] by batch sequence
float32[batch, sequence, 16]
0 removed, added: Concat Concat Gather Gather Shape`},
		{"attention, with nodes", attention(nil), 0, true, `
batch 2 at x.0: rows computed together are equal to rows that the model computes at its size
sequence 6 at x.1: only one choice of constants runs at other sizes
Reshape [2, 6, 4, 4] -> [batch, sequence, 4, 4] by batch sequence
Reshape [2, 6, 4, 4] -> [batch, sequence, 4, 4] by batch sequence
Reshape [2, 6, 4, 4] -> [batch, sequence, 4, 4] by batch sequence
Reshape [2, 6, -1] -> [batch, sequence, -1] by batch sequence
float32[batch, sequence, 16]
4 removed, added: Concat Concat Gather Gather Shape`},
		{"mask", attention(causal), 9, false, `
batch 2 at x.0: rows computed together are equal to rows that the model computes at its size,
recorded outputs up to 2 are reproduced
sequence 6 at x.1: rows depend only on earlier rows, and are equal to the first rows at the size at export,
recorded outputs up to 9 are reproduced
Reshape [2, 6, 4, 4] -> [batch, sequence, 4, 4] by batch sequence
Reshape [2, 6, 4, 4] -> [batch, sequence, 4, 4] by batch sequence
Reshape [2, 6, 4, 4] -> [batch, sequence, 4, 4] by batch sequence
Add a table of [6 6] -> [sequence, sequence] by sequence
Reshape [2, 6, -1] -> [batch, sequence, -1] by batch sequence
float32[batch, sequence, 16]
0 removed, added: Concat Concat Concat Expand Gather Gather Greater Range Reshape Reshape Shape Squeeze Sub Where`},
		{"flat", flat, 0, false, `
batch 2 at x.0: rows depend only on earlier rows, and are equal to the first rows at the size at export
sequence 6 at x.1: rows depend only on earlier rows, and are equal to the first rows at the size at export
Reshape [12, 16] -> [batch*sequence, 16] by batch sequence
float32[?, 16]
0 removed, added: Concat Gather Gather Mul Shape`},
		{"both", both, 0, false, `
batch 2 at x.0: rows depend only on earlier rows, and are equal to the first rows at the size at export
sequence 6 at x.1: only one choice of constants runs at other sizes
float32[batch + sequence, 16]
0 removed, added: `},
		{"twice", twice, 9, false, `
batch 2 at x.0: rows computed together are equal to rows that the model computes at its size,
recorded outputs up to 2 are reproduced
sequence 6 at x.1: rows depend only on earlier rows, and are equal to the first rows at the size at export,
recorded outputs up to 9 are reproduced
Add a table of [6 6] -> [sequence, sequence] by sequence
Add a table of [6 6] -> [sequence, sequence] by sequence
float32[batch, sequence, 16]
0 removed, added: Concat Expand Gather Greater Range Reshape Reshape Shape Squeeze Sub Where`},
		{"last", last, 0, false, `
batch 2 at x.0: rows computed together are equal to rows that the model computes at its size
sequence 6 at x.1: only one choice of constants runs at other sizes
Gather [5] -> [sequence - 1] by sequence
float32[batch, 16]
0 removed, added: Add Gather Shape Squeeze`},
		{"token", token, 0, false, `
batch 2 at x.0: rows computed together are equal to rows that the model computes at its size
sequence 6 at x.1: rows depend only on earlier rows, and are equal to the first rows at the size at export
Expand [2, 1, 16] -> [batch, 1, 16] by batch
Reshape [14, 16] -> [batch*sequence + batch, 16] by batch sequence
Reshape [2, 7, 16] -> [batch, sequence + 1, 16] by batch sequence
float32[batch, sequence + 1, 16]
0 removed, added: Add Add Concat Concat Concat Gather Gather Mul Shape`},
	} {
		m := c.form.model(2, 6)
		if c.nodes {
			constantNodes(t, m)
		}
		var recorded []golden.Case
		if c.recorded > 0 {
			recorded = append(recorded, c.form.recorded(t, 2, c.recorded))
		}
		before := map[*onnx.Node]bool{}
		for _, n := range m.Graph.Nodes {
			before[n] = true
		}
		r, err := dims.Apply(&pass.Run{Editor: edit.Editor{Model: m}}, []string{"batch", "sequence"},
			dims.Options{Recorded: recorded})
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		var lines []string
		for _, d := range r.Dims {
			lines = append(lines, fmt.Sprintf("%s %d at %s: %s", d.Name, d.Size, strings.Join(d.Inputs, " "),
				strings.ReplaceAll(d.Reason, "; ", ",\n")))
		}
		for _, k := range r.Constants {
			lines = append(lines, fmt.Sprintf("%s %s -> %s by %s", k.Op, k.Was, k.Becomes, strings.Join(k.Dims, " ")))
		}
		for _, v := range m.Graph.Outputs {
			typ, _ := v.Type()
			lines = append(lines, typ.String())
		}
		var added []string
		for _, n := range m.Graph.Nodes {
			if !before[n] {
				added = append(added, n.OpType)
			}
			delete(before, n)
		}
		slices.Sort(added)
		lines = append(lines, fmt.Sprintf("%d removed, added: %s", len(before), strings.Join(added, " ")))
		if got := "\n" + strings.Join(lines, "\n"); got != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", c.name, got, c.want)
		}
	}
}

// constantNodes turns the initializers of a model into Constant nodes.
func constantNodes(t *testing.T, m *onnx.Model) {
	t.Helper()
	var c edit.Change
	for _, v := range m.Graph.Initializers() {
		w := m.Graph.NewValue(v.Name + "_node")
		n := m.Graph.AddNode("Constant", nil, []*onnx.Value{w}, onnx.TensorAttr("value", v.Const))
		n.Name = w.Name
		for _, u := range slices.Clone(v.Uses()) {
			c.SetInput(u.Node, u.Index, w)
		}
		c.DropConstants(v)
	}
	if err := c.Finish(); err != nil {
		t.Fatal(err)
	}
	if err := m.Graph.Sort(); err != nil {
		t.Fatal(err)
	}
}
