package rewrite

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite/rewritetest"
)

// masked is attention over a cache with a padding mask whose length has a separate name. Positions are counted from the
// keys or, as by exporters that build the causal mask from the padding mask's shape, from the mask.
func masked(byMask, padded bool, window int) *onnx.Model {
	b := onnxtest.New(18)
	q := b.Input("q", onnx.Float, "b", 2, "s", 8)
	k, v := b.Input("k", onnx.Float, "b", 2, "s", 8), b.Input("v", onnx.Float, "b", 2, "s", 8)
	pastK, pastV := b.Input("past_k", onnx.Float, "b", 2, "p", 8), b.Input("past_v", onnx.Float, "b", 2, "p", 8)
	mask := b.Input("mask", onnx.Int64, "b", "total")
	k = b.Op("Concat", pastK, k, onnx.IntAttr("axis", 2))
	v = b.Op("Concat", pastV, v, onnx.IntAttr("axis", 2))
	length := b.Op("Gather", b.Op("Shape", k), 2)
	if byMask {
		length = b.Op("Gather", b.Op("Shape", mask), 1)
	}
	queries := b.Op("Range", b.Op("Sub", length, b.Op("Gather", b.Op("Shape", q), 2)), length, 1)
	query, key := b.Op("Unsqueeze", queries, []int64{-1}), b.Op("Range", 0, length, 1)
	seen := b.Op("LessOrEqual", key, query)
	if window > 0 {
		seen = b.Op("And", seen, b.Op("Greater", key, b.Op("Sub", query, window)))
	}
	exists := b.Op("Cast", mask, onnx.IntAttr("to", int64(onnx.Bool)))
	if padded {
		seen = b.Op("And", b.Op("Unsqueeze", exists, []int64{1, 2}), seen)
	}
	s := b.Op("Mul", b.Op("MatMul", q, b.Op("Transpose", k, onnx.IntsAttr("perm", []int64{0, 1, 3, 2}))), 0.35)
	p := b.Op("Softmax", b.Op("Where", seen, s, -math.MaxFloat32), onnx.IntAttr("axis", -1))
	b.Output(b.Op("MatMul", p, v))
	return b.Model
}

// sized makes inputs with the given sizes. Masks hold ones after a leading zero, if they have several elements.
func sized(m *onnx.Model, sizes map[string]int) map[string]*reference.Tensor {
	in := map[string]*reference.Tensor{}
	for i, v := range m.Graph.Inputs {
		typ, _ := v.Type()
		shape, n := []int{}, 1
		for _, d := range typ.Dims {
			if d.Value < 0 {
				d.Value = int64(sizes[d.Param])
			}
			shape, n = append(shape, int(d.Value)), n*int(d.Value)
		}
		if typ.DataType == onnx.Int64 {
			ones := slices.Repeat([]int64{1}, n)
			if n > 4 {
				ones[0] = 0
			}
			in[v.Name] = reference.NewInts(onnx.Int64, shape, ones)
			continue
		}
		list := make([]float64, n)
		for k := range list {
			list[k] = math.Sin(float64(k*k+i)) * 2
		}
		in[v.Name] = reference.NewFloats(onnx.Float, shape, list)
	}
	return in
}

// TestMaskLengths runs attention whose padding mask and keys differ in length, as the dimensions' names allow: the
// patched model must compute the same as the graph, or fail.
func TestMaskLengths(t *testing.T) {
	for _, c := range []struct {
		byMask, padded bool
		window, fused  int
	}{
		{false, true, 0, 1}, {false, true, 2, 1}, {true, true, 0, 1}, {true, true, 2, 1},
		{false, false, 0, 1}, {false, false, 2, 1}, {true, false, 0, 0}, {true, false, 2, 0},
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			run := func(m *onnx.Model, sizes map[string]int) ([]float64, error) {
				e, err := reference.New(m, reference.Options{})
				if err != nil {
					t.Fatal(err)
				}
				out, err := e.Run(sized(m, sizes))
				if err != nil {
					return nil, err
				}
				return out[m.Graph.Outputs[0].Name].F, nil
			}
			plain, patched := masked(c.byMask, c.padded, c.window), masked(c.byMask, c.padded, c.window)
			r := apply(t, patched)
			if n := rewritetest.CountOps(patched)["Attention"]; n != c.fused {
				t.Fatalf("%d Attention: %v", n, r.Sites)
			}
			right := 0
			for _, s := range []int{1, 2, 4} {
				for _, past := range []int{0, 1, 3} {
					for _, total := range []int{1, 2, s + past - 1, s + past, s + past + 1} {
						sizes := map[string]int{"b": 2, "s": s, "p": past, "total": total}
						is, err := run(patched, sizes)
						if err != nil {
							if total == s+past {
								t.Errorf("%v: %v", sizes, err)
							}
							continue // the error is correct
						}
						want, err := run(plain, sizes)
						if err != nil {
							continue // the original fails, too
						}
						right++
						for i, x := range is {
							if math.Abs(x-want[i]) > 1e-5 {
								t.Errorf("%v: element %d is %v, was %v", sizes, i, x, want[i])
								break
							}
						}
					}
				}
			}
			if right < 9 {
				t.Errorf("%d cases ran", right)
			}
		})
	}
}
