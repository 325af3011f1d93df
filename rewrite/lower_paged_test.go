package rewrite

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite/target"
)

// TestPagedForTarget: a target's op replaces attention on pools if it is proven equal.
func TestPagedForTarget(t *testing.T) {
	ort, err := target.Lookup("ort")
	if err != nil {
		t.Fatal(err)
	}
	// wrong writes the op for another window.
	wrong := *ort
	wrong.Rules = slices.Clone(ort.Rules)
	for i, r := range wrong.Rules {
		if r.Op == fused.PagedAttentionName {
			wrong.Rules[i].Write = func(c *target.Call) error {
				a := fused.Read[fused.PagedAttention](c.Site.Attributes)
				a.Window = 3
				c.Site.Attributes = a.Attributes()
				return r.Write(c)
			}
		}
	}
	for _, c := range []struct {
		name, reason string
		block        int64
		to           *target.Target
		off          bool
	}{
		{"equal", "", 16, ort, false},
		{"assumed", "", 16, ort, true},
		{"small blocks", "takes blocks of 16, 32, 64, … tokens, not 8", 8, ort, false},
		{"wrong", "PagedAttention of ort instead of the op", 16, &wrong, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, err := onnx.Read("../models/llama-kv-dynamo-fp32.onnx")
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			if _, err := Apply(m, Request{DType: onnx.Float16, PagedCache: c.block, Verify: VerifyOff}); err != nil {
				t.Fatal(err)
			}
			verify := VerifyDistinct
			if c.off {
				verify = VerifyOff
			}
			r, err := Apply(m, Request{Target: c.to, Verify: verify})
			if err != nil {
				t.Fatal(err)
			}
			want := map[string]int{"mojo.PagedAttention": 2}
			if c.reason == "" {
				want = map[string]int{"com.microsoft.PagedAttention": 2}
			}
			got := map[string]int{}
			for _, n := range m.Graph.Nodes {
				if n.OpType == fused.PagedAttentionName {
					got[n.Domain+"."+n.OpType]++
				}
			}
			if len(got) != 1 || len(r.Sites) != 2 || r.Changed != (c.reason == "") ||
				(len(r.Assumed) > 0) != c.off {
				t.Errorf("%v, want %v; changed %t, assumed %v", got, want, r.Changed, r.Assumed)
			}
			for op, n := range want {
				if got[op] != n {
					t.Errorf("%v, want %v", got, want)
				}
			}
			for _, n := range m.Graph.Nodes {
				if c.reason == "" && (n.OpType == fused.RotaryEmbeddingName || n.OpType == "ReduceSum") {
					t.Errorf("node %q (%s) is outside of the attention", n.Label(), n.OpType)
				}
			}
			for _, s := range r.Sites {
				if (s.Status == Open) != (c.reason != "") || !strings.Contains(s.Reason, c.reason) {
					t.Errorf("%s: %s, want %q", s.Status, s.Reason, c.reason)
				}
			}
		})
	}
}

// paged patches a decoder of two layers for pools of blocks of 16 tokens.
func paged(t *testing.T, r Request) (*onnx.Model, *Report) {
	t.Helper()
	m, err := onnx.Read("../models/llama-kv-dynamo-fp32.onnx")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	r.DType, r.PagedCache, r.LastLogits = onnx.Float16, 16, true
	report, err := Apply(m, r)
	if err != nil {
		t.Fatal(err)
	}
	return m, report
}

// logitsOf evaluates a paged model on three sequences with some numbers in their pools.
func logitsOf(t *testing.T, m *onnx.Model) []float64 {
	t.Helper()
	in := map[string]*reference.Tensor{}
	for name, list := range map[string][]int64{"cumulative_sequence_lengths": {0, 3, 4, 6},
		"past_sequence_lengths": {4, 20, 0}, "block_table": {3, -1, 2, 0, 1, -1}, "input_ids": {11, 5, 7, 31, 8, 9}} {
		shape, dt := []int{len(list)}, onnx.Int32
		switch name {
		case "block_table":
			shape = []int{3, 2}
		case "input_ids":
			dt = onnx.Int64
		}
		in[name] = reference.NewInts(dt, shape, list)
	}
	for i := range 4 {
		list := make([]float64, 4*16*2*16)
		for k := range list {
			list[k] = float64((k*7+i)%13-6) / 8
		}
		in[fmt.Sprintf("past_%c%d", "kv"[i%2], i/2)] = reference.NewFloats(onnx.Float16, []int{4, 16, 2, 16}, list)
	}
	e, err := reference.New(m, reference.Options{Exact: true})
	if err != nil {
		t.Fatal(err)
	}
	out, err := e.Run(in)
	if err != nil {
		t.Fatal(err)
	}
	return out["logits"].F
}

// TestPagedAndTarget: one command pages the caches and writes the target's ops, with the rotation and the product of
// queries, keys and values inside of its attention.
func TestPagedAndTarget(t *testing.T) {
	ort, err := target.Lookup("ort")
	if err != nil {
		t.Fatal(err)
	}
	plain, _ := paged(t, Request{AssumeAvailable: true, Verify: VerifyOff})
	m, r := paged(t, Request{Target: ort, Merge: MergeAll})
	if len(r.Unproven) > 0 || len(r.Assumed) > 0 || r.Paged == nil {
		t.Errorf("unproven %q, assumed %q", r.Unproven, r.Assumed)
	}
	for _, n := range m.Graph.Nodes {
		switch {
		case n.Domain == fused.Domain || n.Is("ReduceSum"):
			t.Errorf("node %q (%s) remains", n.Label(), n.OpType)
		case n.OpType == fused.PagedAttentionName:
			if n.Input(1) != nil || n.Input(2) != nil || n.Input(8) == nil || n.AttrInt("do_rotary", 0) != 1 {
				t.Errorf("node %q: %v", n.Label(), onnx.Names(n.Inputs))
			}
		}
	}
	if len(m.Functions) > 0 {
		t.Errorf("%d definitions remain", len(m.Functions))
	}
	want, got := logitsOf(t, plain), logitsOf(t, m)
	for i, x := range want {
		if d := x - got[i]; d > 1e-9 || d < -1e-9 {
			t.Fatalf("logit %d is %g, want %g", i, got[i], x)
		}
	}
}

// TestPagedRotationStays: a rotation by anything else than the position in the sequence stays outside.
func TestPagedRotationStays(t *testing.T) {
	ort, err := target.Lookup("ort")
	if err != nil {
		t.Fatal(err)
	}
	// between computes an op of a value, and makes its readers read the result.
	between := func(m *onnx.Model, v *onnx.Value, op string, in ...*onnx.Value) *onnx.Node {
		uses := slices.Clone(v.Uses())
		out := m.Graph.NewValue(v.Name + "_changed")
		n := m.Graph.AddNode(op, append([]*onnx.Value{v}, in...), []*onnx.Value{out})
		for _, u := range uses {
			u.Node.SetInput(u.Index, out)
		}
		return n
	}
	number := func(m *onnx.Model, list ...int64) *onnx.Value {
		return m.Graph.AddInitializer(onnx.NewInt64s("number", list))
	}
	rotary := func(m *onnx.Model, i int) *onnx.Node {
		for _, n := range m.Graph.Nodes {
			if n.OpType == fused.RotaryEmbeddingName {
				if i--; i < 0 {
					return n
				}
			}
		}
		return nil
	}
	for why, change := range map[string]func(m *onnx.Model){
		"the rotation inside": func(m *onnx.Model) { // the next position
			between(m, m.Graph.Value("packed_positions"), "Add", number(m, 1))
		},
		"depend on other positions": func(m *onnx.Model) { // the greatest one
			v, most := m.Graph.Value("_to_copy_1"), m.Graph.NewValue("most")
			n := between(m, v, "Max")
			m.Graph.AddNode("ReduceMax", []*onnx.Value{v}, []*onnx.Value{most})
			n.SetInput(1, most)
		},
		"rotated in two ways": func(m *onnx.Model) {
			n := rotary(m, 0)
			n.SetInput(2, n.Input(1))
		},
		"in multiples of 16": func(m *onnx.Model) {
			for i := range 2 {
				n := rotary(m, i)
				a := fused.Read[fused.RotaryEmbedding](n.Attributes)
				a.RotaryDim, a.RotatedSide = 8, "last"
				n.Attributes = a.Attributes()
			}
		},
		"more than positions": func(m *onnx.Model) {
			v, w := m.Graph.NewValue("greatest"), m.Graph.NewValue("other")
			m.Graph.AddNode("ReduceMax", []*onnx.Value{m.Graph.Value("past_k0")}, []*onnx.Value{v})
			m.Graph.AddNode("Cast", []*onnx.Value{v}, []*onnx.Value{w}, onnx.IntAttr("to", int64(onnx.Float)))
			between(m, m.Graph.Value("_to_copy_1"), "Add", w)
		},
	} {
		t.Run(why, func(t *testing.T) {
			m, _ := paged(t, Request{AssumeAvailable: true, Verify: VerifyOff})
			change(m)
			if err := m.Graph.Sort(); err != nil {
				t.Fatal(err)
			}
			r, err := Apply(m, Request{Target: ort})
			if err != nil {
				t.Fatal(err)
			}
			if len(r.Unproven) == 0 || !strings.Contains(r.Unproven[0], why) || rotary(m, 0) == nil ||
				len(r.Sites) != 2 || r.Sites[0].Status != Fused {
				t.Errorf("%q, want %q; sites %v", r.Unproven, why, r.Sites)
			}
		})
	}
}

// TestPagedConstantTables: tables that the model has as constants bound the positions. Heads may be before tokens.
func TestPagedConstantTables(t *testing.T) {
	ort, err := target.Lookup("ort")
	if err != nil {
		t.Fatal(err)
	}
	m, _ := paged(t, Request{AssumeAvailable: true, Verify: VerifyOff})
	const rows, half = 40, 8
	for i, name := range []string{"cos_float16", "sin_float16"} {
		list := make([]float64, rows*2*half)
		for k := range list {
			list[k] = float64((k/16*5+k%half*3+i)%17-8) / 8 // each number twice in a row
		}
		table, err := reference.NewFloats(onnx.Float16, []int{rows, 2 * half}, list).ToONNX(name + "_rows")
		if err != nil {
			t.Fatal(err)
		}
		n := m.Graph.Value(name).Producer
		n.OpType, n.Attributes = "Gather", nil
		n.SetInput(0, m.Graph.AddInitializer(table))
		n.SetInput(1, m.Graph.Value("packed_positions"))
	}
	swapped := map[*onnx.Value]*onnx.Value{}
	swap := func(v *onnx.Value) *onnx.Value { // as after norms of heads
		if swapped[v] != nil {
			return swapped[v]
		}
		out := m.Graph.NewValue(v.Name + "_swapped")
		swapped[v] = out
		m.Graph.AddNode("Transpose", []*onnx.Value{v}, []*onnx.Value{out}, onnx.IntsAttr("perm", []int64{0, 2, 1, 3}))
		return out
	}
	for _, n := range slices.Clone(m.Graph.Nodes) {
		if n.OpType == fused.RotaryEmbeddingName {
			for i, v := range slices.Clone(n.Inputs) {
				n.SetInput(i, swap(v))
			}
			y := n.Outputs[0]
			uses := slices.Clone(y.Uses())
			back := swap(y)
			for _, u := range uses {
				u.Node.SetInput(u.Index, back)
			}
		}
	}
	if err := m.Graph.Sort(); err != nil {
		t.Fatal(err)
	}
	want := logitsOf(t, m)
	r, err := Apply(m, Request{Target: ort})
	if err != nil || len(r.Unproven) > 0 {
		t.Fatal(err, r.Unproven)
	}
	for _, n := range m.Graph.Nodes {
		if n.OpType == fused.PagedAttentionName {
			if typ, _ := n.Input(8).Type(); n.AttrInt("do_rotary", 0) != 1 || typ.String() != "float16[40, 8]" {
				t.Errorf("node %q reads a table %s", n.Label(), typ)
			}
		}
	}
	for i, x := range logitsOf(t, m) {
		if d := x - want[i]; d > 1e-9 || d < -1e-9 {
			t.Fatalf("logit %d is %g, want %g", i, x, want[i])
		}
	}
}
