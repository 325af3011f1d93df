package pagedcache

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/reference/infer"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
	"github.com/mojo-patch/mojo-patch/rewrite/pass"
)

// matrix returns weights that differ from each other.
func matrix(b *onnxtest.Builder, dims ...int64) *onnx.Value {
	n := int64(1)
	for _, d := range dims {
		n *= d
	}
	list := make([]float32, n)
	for i := range list {
		list[i] = float32(math.Sin(float64(i)))
	}
	return b.Floats(dims, list...)
}

// TestRowFunctions: only functions of rows with constant weights get a stand-in.
func TestRowFunctions(t *testing.T) {
	defer ByParts()()
	b := onnxtest.New(21)
	x := b.Input("x", onnx.Float, "batch", "tokens", 6)
	rows := b.Input("rows", onnx.Float, "tokens", 6)
	other := b.Input("other", onnx.Float, 6, 4)
	routing := b.Input("routing", onnx.Float, "batch", "tokens", 2)
	ids := b.Input("ids", onnx.Int64, "batch", "tokens", 2)
	columns := b.Input("columns", onnx.Float, 6, "n")
	int8s, err := onnx.NewTensor("codes", onnx.Int8, []int64{6, 4}, make([]byte, 24))
	if err != nil {
		t.Fatal(err)
	}
	codes := b.Graph.AddInitializer(int8s)
	w, bias := matrix(b, 6, 4), matrix(b, 4)
	experts := func(routing, ids, gate *onnx.Value) *onnx.Value {
		v := b.Op(fused.MoEName, x, routing, ids, gate, matrix(b, 3, 6, 5),
			onnx.StringAttr("packing", "none"))
		v.Producer.Domain = fused.Domain
		return v
	}
	for name, c := range map[string]struct {
		v    *onnx.Value
		rows int
	}{
		"product":                       {b.Op("MatMul", x, w), 1},
		"product of two dimensions":     {b.Op("MatMul", rows, w), 1},
		"transposed weights":            {b.Op("MatMul", x, b.Op("Transpose", matrix(b, 4, 6))), 1},
		"dequantized weights":           {b.Op("MatMul", x, b.Op("DequantizeLinear", codes, b.Floats(nil, 1))), 1},
		"Gemm":                          {b.Op("Gemm", rows, w), 1},
		"Gemm with a bias":              {b.Op("Gemm", rows, w, bias), 1},
		"Gemm with a row":               {b.Op("Gemm", rows, w, matrix(b, 1, 4)), 1},
		"experts":                       {experts(routing, ids, matrix(b, 3, 5, 6)), 3},
		"weights on the left":           {b.Op("MatMul", matrix(b, 4, 6), other), 0},
		"two constants":                 {b.Op("MatMul", matrix(b, 4, 6), w), 0},
		"no weights":                    {b.Op("MatMul", x, other), 0},
		"weights of an input":           {b.Op("MatMul", x, b.Op("Mul", other, 2)), 0},
		"weights of the random":         {b.Op("MatMul", x, b.Op("RandomNormalLike", w)), 0},
		"a matrix for each sequence":    {b.Op("MatMul", x, matrix(b, 2, 6, 4)), 0},
		"a matrix for the batch":        {b.Op("MatMul", x, matrix(b, 1, 6, 4)), 0},
		"a vector":                      {b.Op("MatMul", x, matrix(b, 6)), 0},
		"Gemm of a transposed input":    {b.Op("Gemm", columns, w, onnx.IntAttr("transA", 1)), 0},
		"Gemm with a bias for each row": {b.Op("Gemm", b.Input("five", onnx.Float, 5, 6), w, matrix(b, 5, 4)), 0},
		"Gemm with a computed bias":     {b.Op("Gemm", rows, w, b.Input("c", onnx.Float, 4)), 0},
		"convolution": {b.Op("Conv", b.Input("image", onnx.Float, "n", 6, "tokens"), matrix(b, 4, 6, 3)),
			0},
		"sum":                    {b.Op("CumSum", x, 1), 0},
		"Einsum":                 {b.Op("Einsum", x, w, onnx.StringAttr("equation", "btk,kn->btn")), 0},
		"experts that are fixed": {experts(routing, b.Ints(0, 1), matrix(b, 3, 5, 6)), 0},
		"experts of an input":    {experts(routing, ids, b.Input("gate", onnx.Float, 3, 5, 6)), 0},
	} {
		p := newStandIns(infer.Analyze(b.Model))
		if got, key := p.rowsOf(c.v.Producer); got != c.rows || (key == "") != (got == 0) {
			t.Errorf("%s: %d inputs have rows, want %d", name, got, c.rows)
		}
	}
	leastWeights = 25
	if got, _ := newStandIns(infer.Analyze(b.Model)).rowsOf(b.Op("MatMul", x, w).Producer); got != 0 {
		t.Error("24 weights get a stand-in")
	}
}

// run evaluates a node on one input.
func (p *standIns) run(t *testing.T, v *onnx.Value, in map[*onnx.Value]*reference.Tensor) *reference.Tensor {
	t.Helper()
	e := reference.NewForOpset(21, nil, reference.Options{Exact: true, Override: p.evaluate})
	if err := e.Eval([]*onnx.Node{v.Producer}, in); err != nil {
		t.Fatal(err)
	}
	return in[v]
}

// TestStandIns: a stand-in computes the same for a row anywhere, depends on each element of the row, and belongs to the
// op, its attributes and its weights.
func TestStandIns(t *testing.T) {
	defer ByParts()()
	for _, width := range [][2]int{{7, 3}, {3, 7}, {5, 5}, {1, 4}, {4, 1}} {
		k, n := width[0], width[1]
		b := onnxtest.New(21)
		x := b.Input("x", onnx.Float, "tokens", k)
		w, same := matrix(b, int64(k), int64(n)), matrix(b, int64(k), int64(n))
		v, again, twin := b.Op("MatMul", x, w), b.Op("MatMul", x, w), b.Op("MatMul", x, same)
		cast := func(round int64) *onnx.Value {
			return b.Op("MatMul", x, b.Op("Cast", w, onnx.IntAttr("to", int64(onnx.Float)),
				onnx.IntAttr("saturate", round)))
		}
		others := []*onnx.Value{twin, b.Op("Gemm", x, w), b.Op("Gemm", x, w, onnx.FloatAttr("alpha", 2)),
			cast(0), cast(1)}
		p := newStandIns(infer.Analyze(b.Model))
		list := make([]float64, 3*k)
		for i := range list {
			list[i] = math.Cos(float64(i))
		}
		of := func(v *onnx.Value, shape []int, list []float64) []float64 {
			return p.run(t, v, map[*onnx.Value]*reference.Tensor{x: reference.NewFloats(onnx.Float, shape, list)}).F
		}
		all := of(v, []int{3, k}, list)
		if len(all) != 3*n || !slices.Equal(of(v, []int{1, k}, list[k:2*k]), all[n:2*n]) ||
			!slices.Equal(of(again, []int{3, 1, k}, list), all) {
			t.Errorf("%v: a row depends on its place", width)
		}
		seen := map[string]bool{fmt.Sprint(all): true}
		for i, v := range others {
			y := fmt.Sprint(of(v, []int{3, k}, list))
			if seen[y] {
				t.Errorf("%v: function %d has the stand-in of another one", width, i)
			}
			seen[y] = true
		}
		for i := range k {
			changed := slices.Clone(list[:k])
			changed[i]++
			for j, y := range of(v, []int{1, k}, changed) {
				if math.Abs(y-all[j]) < 1e-6 {
					t.Errorf("%v: element %d of a row does not change result %d", width, i, j)
				}
			}
		}
	}
}

// TestStandInsOfExperts: a token's result depends on its experts and their weights, in no other order than theirs.
func TestStandInsOfExperts(t *testing.T) {
	defer ByParts()()
	b := onnxtest.New(21)
	in := []*onnx.Value{b.Input("x", onnx.Float, "tokens", 4), b.Input("routing", onnx.Float, "tokens", 2),
		b.Input("ids", onnx.Int64, "tokens", 2)}
	v := b.Op(fused.MoEName, in, matrix(b, 3, 5, 4), matrix(b, 3, 4, 5), onnx.StringAttr("packing", "none"))
	v.Producer.Domain = fused.Domain
	v.SetType(onnxtest.Type(onnx.Float, "tokens", 4))
	p := newStandIns(infer.Analyze(b.Model))
	of := func(routing []float64, ids ...int64) string {
		tokens := len(ids) / 2
		y := p.run(t, v, map[*onnx.Value]*reference.Tensor{
			in[0]: floats([]int{tokens, 4}, slices.Repeat([]float64{1, 2, 3, 4}, tokens)...),
			in[1]: floats([]int{tokens, 2}, routing...),
			in[2]: reference.NewInts(onnx.Int64, []int{tokens, 2}, ids)})
		return fmt.Sprintf("%.9f", y.F)
	}
	want := of([]float64{0.5, 2}, 0, 1)
	if got := of([]float64{2, 0.5}, 1, 0); got != want {
		t.Errorf("the same experts in another order: %s, want %s", got, want)
	}
	for _, other := range []string{of([]float64{0.5, 2}, 1, 0), of([]float64{0.5, 2}, 0, 2),
		of([]float64{0.5, 2.5}, 0, 1)} {
		if other == want {
			t.Errorf("other experts or weights: %s", other)
		}
	}
	two := of([]float64{0.5, 2, 1, 1}, 0, 1, 2, 2)
	if two[:len(want)-1] != want[:len(want)-1] {
		t.Errorf("two tokens: %s, the first alone %s", two, want)
	}
}

// TestChosenProof: a model whose products are too many is proven by parts, unless its weights are needed or there are
// too many besides.
func TestChosenProof(t *testing.T) {
	defer ByParts()()
	defer BoundWork(mostProducts)()
	const tokens, shared, other = 56, 6 * 4, 6*4*3 + 6*4
	b := onnxtest.New(21)
	b.Op("MatMul", b.Input("x", onnx.Float, "tokens", 6), b.Op("Transpose", matrix(b, 4, 6)))
	b.Op("Conv", b.Input("image", onnx.Float, "n", 6, "tokens"), matrix(b, 4, 6, 3))
	b.Op("MatMul", b.Op("Transpose", matrix(b, 6, 4)), b.Input("columns", onnx.Float, 6, "tokens"))
	run := func(every bool) *pass.Run { return &pass.Run{Editor: edit.Editor{Model: b.Model}, Every: every} }
	for _, c := range []struct {
		most, whole int64
		every       bool
		codes       onnx.DataType
		want        string
	}{
		{shared + other, shared + other, false, onnx.Undefined, "whole"},
		{shared + other, shared + other - 1, false, onnx.Undefined, "by parts"},
		{shared + other, 0, true, onnx.Undefined, "whole"},
		{shared + other, 0, false, onnx.Int8, "whole"},
		{shared + other - 1, shared + other, false, onnx.Undefined, "by parts"},
		{other, 0, false, onnx.Undefined, "by parts"},
		{other - 1, 0, false, onnx.Undefined, "through about 96 weights"},
		{shared + other - 1, 0, true, onnx.Undefined, "through about 120 weights"},
		{shared + other - 1, 0, false, onnx.Int8, "through about 120 weights"},
	} {
		mostProducts, mostWhole = c.most*tokens, c.whole*tokens
		parts, err := chooseProof(run(c.every), infer.Analyze(b.Model), c.codes)
		got := "whole"
		switch {
		case err != nil:
			got = err.Error()
		case parts != nil:
			got = "by parts"
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("%+v: got %s", c, got)
		}
	}
}
