package reference

import (
	"errors"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/internal/elements"
	"github.com/mojo-patch/mojo-patch/reference/internal/tensor"
)

// someTensor makes a small tensor of a random type and shape, with zeros, ones and unusual numbers.
func someTensor(r *rand.Rand) *Tensor {
	if r.IntN(30) == 0 {
		return tensor.Sequence([]*Tensor{someTensor(r), someTensor(r)})
	}
	shape := make([]int, r.IntN(5))
	for i := range shape {
		shape[i] = r.IntN(4)
	}
	types := []onnx.DataType{onnx.Float, onnx.Float16, onnx.BFloat16, onnx.Int64, onnx.Int32, onnx.Bool, onnx.Uint8,
		onnx.Int4, onnx.Float8E4M3FN, onnx.String, onnx.Uint64}
	t := &Tensor{DataType: types[r.IntN(len(types))], Shape: shape}
	for range tensor.Size(shape) {
		v := r.IntN(7) - 3
		switch {
		case t.IsFloat():
			t.F = append(t.F, float64(v))
		case t.DataType == onnx.String:
			t.S = append(t.S, string(rune('a'+v+3)))
		case t.DataType == onnx.Bool:
			t.I = append(t.I, int64(v&1))
		default:
			t.I = append(t.I, elements.Wrap(int64(v), t.DataType))
		}
	}
	if r.IntN(20) == 0 && t.DataType == onnx.Int64 {
		for i := range t.I {
			t.I[i] = []int64{-1 << 63, 1<<63 - 1, 1 << 40}[r.IntN(3)]
		}
	}
	return t
}

// someAttributes makes attributes that many ops read, with small values.
func someAttributes(r *rand.Rand) []*onnx.Attribute {
	var attrs []*onnx.Attribute
	names := []string{"axis", "axes", "keepdims", "to", "batch_dims", "block_size", "num_outputs", "num_heads",
		"q_num_heads", "kv_num_heads",
		"perm", "k", "largest", "start", "end", "transA", "num_scan_inputs", "p", "num_groups", "blocksize",
		"allowzero", "rotary_embedding_dim", "pads", "split"}
	for _, n := range names {
		switch r.IntN(4) {
		case 0:
			attrs = append(attrs, onnx.IntAttr(n, int64(r.IntN(7)-3)))
		case 1:
			attrs = append(attrs, onnx.IntsAttr(n, []int64{int64(r.IntN(5) - 2), int64(r.IntN(3))}[:r.IntN(3)]))
		}
	}
	return attrs
}

// TestOpsRefuseOrAnswer runs every op on random inputs. It must return complete tensors or a plain error, and must not
// change its inputs.
func TestOpsRefuseOrAnswer(t *testing.T) {
	names := make([]string, 0, len(table))
	for name := range table {
		names = append(names, name)
	}
	sort.Strings(names)
	r := rand.New(rand.NewPCG(3, 4))
	rounds := 400
	if testing.Short() {
		rounds = 40
	}
	defer func(n int) { tensor.MaxElements = n }(tensor.MaxElements)
	tensor.MaxElements = 1 << 20
	answered := map[string]bool{}
	for _, name := range names {
		def := table[name]
		for range rounds {
			e := NewForOpset([]int64{1, 7, 12, 13, 18, 25}[r.IntN(6)], nil, Options{Exact: r.IntN(4) == 0})
			g := onnx.New(10, 20).Graph
			node := g.NewNode(name, nil, someAttributes(r)...)
			for i := range 1 + r.IntN(3) {
				node.TakeOutput(i, g.NewValue("out"))
			}
			in := make([]*Tensor, def.Min+r.IntN(3))
			for i := range in {
				if i > 0 && r.IntN(2) == 0 {
					in[i] = in[0]
				} else {
					in[i] = someTensor(r)
				}
			}
			copies := make([]*Tensor, len(in))
			for i, x := range in {
				kept := x.WithShape(x.Shape)
				kept.F, kept.I = slices.Clone(x.F), slices.Clone(x.I)
				copies[i] = kept
			}
			out, err := evalTable(e, node, name, in)
			if errors.Is(err, errInternal) {
				t.Errorf("%v with %v", err, attributeList(node))
				break
			}
			for i := range in {
				if !tensor.IsSequence(in[i]) && !slices.Equal(in[i].I, copies[i].I) ||
					!tensor.IsSequence(in[i]) && closeTo(in[i], copies[i], 0, 0) != nil {
					t.Fatalf("%s changed its input %d", name, i)
				}
			}
			if err != nil {
				continue
			}
			answered[name] = true
			for i, o := range out {
				if o != nil && !tensor.IsSequence(o) && len(o.F)+len(o.I)+len(o.S) != o.Len() {
					t.Errorf("%s: output %d is %s with %d elements", name, i, o, len(o.F)+len(o.I)+len(o.S))
				}
			}
		}
	}
	var never []string
	for _, name := range names {
		if !answered[name] {
			never = append(never, name)
		}
	}
	t.Logf("%d ops; no random inputs fit %v", len(names), never)
}

// evalTable calls an op of the table, whose key may include a domain.
func evalTable(e *Evaluator, n *onnx.Node, key string, in []*Tensor) ([]*Tensor, error) {
	const ms = "com.microsoft:"
	if len(key) > len(ms) && key[:len(ms)] == ms {
		n.Domain, n.OpType = key[:len(ms)-1], key[len(ms):]
	}
	return e.Op(n, in)
}

func attributeList(n *onnx.Node) []string {
	var s []string
	for _, a := range n.Attributes {
		s = append(s, a.Name)
	}
	return s
}
