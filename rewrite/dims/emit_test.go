package dims

import (
	"reflect"
	"slices"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
	"github.com/mojo-patch/mojo-patch/rewrite/rewritetest"
)

// TestEmitted: the nodes for a constant compute its elements at all sizes of batch 2, past 5 and length 6, as the
// trials do, and the report describes them.
func TestEmitted(t *testing.T) {
	of := func(typ onnx.DataType, text string) *reference.Tensor {
		x := table(text)
		x.DataType = typ
		return x
	}
	wave := func(batch, rows int) *reference.Tensor {
		w := &waves{rates: []float64{1, float64(float32(0.01)), 1, float64(float32(0.01))},
			cosine: []bool{true, true, false, false}}
		x := floats(make([]float64, 4*rows*batch)...)
		x.Shape = []int{batch, rows, 4}
		for i := range x.F {
			x.F[i] = w.value(i/4%rows, i%4, w.rates)
		}
		return x
	}
	none, one, two, less := rat{0, 1}, rat{1, 1}, rat{2, 1}, rat{-1, 1}
	batch, past, length := []rat{one, none, none}, []rat{none, one, none}, []rat{none, none, one}
	scalar := whole([]int{}, 6)
	row, column := lengthOf(0), lengthOf(1)
	for name, c := range map[string]struct {
		tensor   *reference.Tensor
		factors  map[int][]rat
		inferred int // the element, from 1, that is -1 in the model
		words    string
		want     *reference.Tensor // at 3, 7, 9
	}{
		"one size":    {table("6"), map[int][]rat{0: length}, 0, "[n]", table("9")},
		"a list":      {table("2 4 6 8"), map[int][]rat{0: batch, 2: length}, 0, "[b, 4, n, 8]", table("3 4 9 8")},
		"beside -1":   {table("2 6 6"), map[int][]rat{1: length, 2: length}, 3, "[2, n, -1]", table("2 9 -1")},
		"-1 alone":    {table("6 2"), map[int][]rat{0: length}, 1, "", nil},
		"a multiple":  {table("12 5"), map[int][]rat{0: {none, none, two}}, 0, "[2*n, 5]", table("18 5")},
		"a part":      {table("2"), map[int][]rat{0: {none, none, {1, 3}}}, 0, "[n/3]", table("3")},
		"a negative":  {table("-6"), map[int][]rat{0: {none, none, less}}, 0, "[-1*n]", table("-9")},
		"a product":   {table("12"), map[int][]rat{0: {{6, 1}, none, two}}, 0, "[b*n]", table("27")},
		"a sum":       {table("12"), map[int][]rat{0: {none, one, one}}, 0, "[p + n + 1]", table("17")},
		"a scalar":    {scalar, map[int][]rat{0: length}, 0, "[n]", whole([]int{}, 9)},
		"a matrix":    {table("6/"), map[int][]rat{0: length}, 0, "[n]", table("9/")},
		"int32":       {of(onnx.Int32, "6 1"), map[int][]rat{0: length}, 0, "[n, 1]", of(onnx.Int32, "9 1")},
		"equal rows":  {table("f3 7/3 7"), map[int][]rat{row: batch}, 0, "[b, 2]", table("f3 7/3 7/3 7")},
		"equal flags": {of(onnx.Bool, "1 1"), map[int][]rat{row: batch}, 0, "[b]", of(onnx.Bool, "1 1 1")},
		"a count":     {table("0 1 2 3 4 5"), map[int][]rat{row: length}, 0, "[n]", table("0 1 2 3 4 5 6 7 8")},
		"from a size": {table("5 6 7 8 9 10"), map[int][]rat{row: length, diagonal: past}, 0, "[n]",
			table("7 8 9 10 11 12 13 14 15")},
		"moved": {table("5 7 9"), map[int][]rat{diagonal: past}, 0, "[3]", table("7 9 11")},
		"by two": {of(onnx.Int32, "3 5 7 9 11/"), map[int][]rat{column: past}, 0, "[1, p]",
			of(onnx.Int32, "3 5 7 9 11 13 15/")},
		"a mask": {table("f0 1/0 0"), map[int][]rat{row: batch, column: batch}, 0, "[b, b]",
			table("f0 1 1/0 0 1/0 0 0")},
		"keys before": {table("4 4 9/4 4 4"), map[int][]rat{column: batch, diagonal: batch}, 0, "[2, b + 1]",
			table("4 4 4 9/4 4 4 4")},
		"of truth": {of(onnx.Bool, "0 1/0 0"), map[int][]rat{row: batch, column: batch}, 0, "[b, b]",
			of(onnx.Bool, "0 1 1/0 0 1/0 0 0")},
		"of untruth": {of(onnx.Bool, "1 0/1 1"), map[int][]rat{row: batch, column: batch}, 0, "[b, b]",
			of(onnx.Bool, "1 0 0/1 1 0/1 1 1")},
		"waves":      {wave(1, 6), map[int][]rat{column: length}, 0, "[1, n, 4]", wave(1, 9)},
		"more waves": {wave(2, 6), map[int][]rat{column: length, row: batch}, 0, "[b, n, 4]", wave(3, 9)},
	} {
		b := onnxtest.New(18)
		x := b.Input("x", onnx.Float, "b", "p", "n")
		k := &constant{node: &onnx.Node{}, input: 1, value: &onnx.Value{Name: "k"}, tensor: c.tensor,
			family: familyOf(c.tensor), inferred: c.inferred - 1}
		a := &analysis{model: b.Model}
		for axis, n := range []int64{2, 5, 6} {
			a.dims = append(a.dims, &Dim{Name: []string{"b", "p", "n"}[axis], Size: n,
				places: []place{{input: x, axis: axis}}})
		}
		r := &reading{map[slot][]rat{}, map[slot]bool{}, false}
		for part, f := range c.factors {
			s := slot{k.node, 1, part}
			r.factors[s], r.product[s] = f, f[0].num != 0 && f[2].num != 0
		}
		e := &emitter{analysis: a, editor: &edit.Editor{Model: b.Model}, change: edit.Whole(b.Model), graph: b.Graph,
			inputs: map[*onnx.Value]*onnx.Value{x: x}, made: map[string]*onnx.Value{}}
		y, words, err := e.constant(r, k)
		if err != nil || words != c.words || (y == nil) != (c.want == nil) {
			t.Errorf("%s: %q, %v", name, words, err)
		}
		if c.want == nil {
			continue
		}
		b.Output(y)
		if err := b.Graph.Sort(); err != nil {
			t.Fatal(err)
		}
		for _, sizes := range [][]int64{{3, 7, 9}, {2, 5, 6}, {1, 9, 3}} {
			want, err := a.changed(r, k, sizes)
			if err != nil {
				t.Fatal(err)
			}
			if c.inferred > 0 {
				want.I[c.inferred-1] = -1
			}
			in := reference.NewFloats(onnx.Float, []int{int(sizes[0]), int(sizes[1]), int(sizes[2])}, nil)
			in.F = make([]float64, in.Len())
			got := rewritetest.Run(t, b.Model, map[string]*reference.Tensor{"x": in})[y.Name]
			if !reflect.DeepEqual(got, want) || sizes[0] == 3 && !reflect.DeepEqual(got, c.want) ||
				sizes[0] == 2 && c.inferred == 0 && !slices.Equal(got.I, c.tensor.I) {
				t.Errorf("%s at %d: %v, in the trials %v, want %v", name, sizes, got, want, c.want)
			}
		}
	}
}
