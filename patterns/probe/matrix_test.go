package probe

import (
	"errors"
	"slices"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// elements lists the indexes of a matrix's elements in its source, by inputs and then outputs.
func elements(m *Matrix) (list []int64) {
	for i := range m.In {
		for o := range m.Out {
			list = append(list, m.Offset+i*m.ByIn+o*m.ByOut)
		}
	}
	return list
}

// TestHalves splits the outputs of a matrix in the middle, or into even and odd ones.
func TestHalves(t *testing.T) {
	m := &Matrix{Offset: 5, In: 2, Out: 4, ByIn: 10, ByOut: 2} // outputs at 5, 7, 9, 11 and 15, 17, 19, 21
	for packing, want := range map[string][2][]int64{
		"halves":      {{5, 7, 15, 17}, {9, 11, 19, 21}},
		"interleaved": {{5, 9, 15, 19}, {7, 11, 17, 21}},
	} {
		a, b := m.Halves(packing)
		if !slices.Equal(elements(a), want[0]) || !slices.Equal(elements(b), want[1]) {
			t.Errorf("%s: %v and %v, want %v", packing, elements(a), elements(b), want)
		}
	}
	if a, b := (*Matrix)(nil).Halves("halves"); a != nil || b != nil {
		t.Error("halves of no matrix")
	}
}

// TestAdjoined joins matrices that lie side by side.
func TestAdjoined(t *testing.T) {
	v, w := new(onnx.Value), new(onnx.Value)
	gate := Matrix{Source: v, Offset: 4, In: 2, Out: 3, ByIn: 12, ByOut: 2}
	up := gate
	up.Offset, up.Out = 10, 2
	list := Adjoined([]*Matrix{nil, &gate}, []*Matrix{nil, &up})
	want := []int64{4, 6, 8, 10, 12, 16, 18, 20, 22, 24}
	if len(list) != 2 || list[0] != nil || list[1] == nil || !slices.Equal(elements(list[1]), want) {
		t.Fatalf("joined: %v", list)
	}
	if gate.Out != 3 {
		t.Error("the gate was changed")
	}
	for name, change := range map[string]func(m *Matrix){
		"another source":    func(m *Matrix) { m.Source = w },
		"a gap":             func(m *Matrix) { m.Offset++ },
		"more inputs":       func(m *Matrix) { m.In++ },
		"wider rows":        func(m *Matrix) { m.ByIn++ },
		"every second":      func(m *Matrix) { m.ByOut++ },
		"before the gate":   func(m *Matrix) { m.Offset = -2 },
		"the gate's memory": func(m *Matrix) { m.Offset = gate.Offset },
	} {
		other := up
		if change(&other); Adjoined([]*Matrix{&gate, &gate}, []*Matrix{&up, &other}) != nil {
			t.Errorf("%s: joined", name)
		}
	}
	if Adjoined([]*Matrix{&gate}, []*Matrix{nil}) != nil || Adjoined([]*Matrix{nil}, []*Matrix{&up}) != nil {
		t.Error("a matrix was joined with none")
	}
}

// TestBlocks reads matrices of an initializer as blocks of a table, which must have their elements.
func TestBlocks(t *testing.T) {
	const numbers = 48
	g := onnx.New(10, 20).Graph
	w := g.AddInitializer(onnx.NewFloat32s("w", []int64{numbers}, make([]float32, numbers)))
	for name, c := range map[string]struct {
		m            Matrix // of w
		outIn, inOut bool   // whether it is a block
	}{
		"out_in":                    {Matrix{Offset: 12, In: 4, Out: 3, ByIn: 1, ByOut: 4}, true, false},
		"in_out":                    {Matrix{Offset: 12, In: 4, Out: 3, ByIn: 3, ByOut: 1}, false, true},
		"side by side":              {Matrix{Offset: 3, In: 4, Out: 3, ByIn: 6, ByOut: 1}, false, true},
		"every second":              {Matrix{Offset: 1, In: 4, Out: 3, ByIn: 6, ByOut: 2}, false, true},
		"across the end of a row":   {Matrix{Offset: 4, In: 4, Out: 3, ByIn: 6, ByOut: 1}, false, false},
		"laid end to end":           {Matrix{Offset: 5, In: 4, Out: 5, ByIn: 1, ByOut: 4}, true, false},
		"rows that do not fill w":   {Matrix{Offset: 0, In: 3, Out: 5, ByIn: 1, ByOut: 5}, false, false},
		"end to end, not filling w": {Matrix{Offset: 2, In: 5, Out: 3, ByIn: 1, ByOut: 5}, true, false},
		"overlapping rows":          {Matrix{Offset: 0, In: 4, Out: 3, ByIn: 1, ByOut: 3}, false, false},
		"backwards":                 {Matrix{Offset: 12, In: 4, Out: 3, ByIn: -1, ByOut: 4}, false, false},
		"a column":                  {Matrix{Offset: 6, In: 1, Out: 4, ByIn: 1, ByOut: 1}, true, true},
		"a column of any step":      {Matrix{Offset: 7, In: 1, Out: 4, ByIn: 0, ByOut: 6}, true, false},
		"a spread column":           {Matrix{Offset: 7, In: 1, Out: 4, ByIn: 1, ByOut: 6}, true, false},
		"one number":                {Matrix{Offset: 7, In: 1, Out: 1, ByIn: 1, ByOut: 1}, true, true},
	} {
		c.m.Source = w
		for inOut, want := range map[bool]bool{false: c.outIn, true: c.inOut} {
			b := c.m.Block(inOut)
			if (b != nil) != want {
				t.Errorf("%s, by inputs %v: %+v", name, inOut, b)
			}
			if b == nil {
				continue
			}
			if b.Columns == 1 && b.By != 1 {
				t.Errorf("%s: %d between the columns of one", name, b.By)
			}
			var got, all []int64
			for k := range b.Size {
				row, column := b.Row+k/b.Columns, b.Column+k%b.Columns*b.By
				if column >= b.Length {
					t.Errorf("%s: column %d of rows of %d", name, column, b.Length)
				}
				got = append(got, row*b.Length+column)
			}
			if all = elements(&c.m); !inOut { // outputs first
				all = nil
				for o := range c.m.Out {
					for i := range c.m.In {
						all = append(all, c.m.Offset+i*c.m.ByIn+o*c.m.ByOut)
					}
				}
			}
			if !slices.Equal(got, all) || b.Rows*b.Columns != b.Size || numbers%b.Length != 0 || b.Source != w {
				t.Errorf("%s, by inputs %v: %+v has the elements %v, want %v", name, inOut, b, got, all)
			}
		}
	}
}

// TestRows finds the first row that is not zero.
func TestRows(t *testing.T) {
	x := reference.NewFloats(onnx.Float, []int{2, 3, 2}, []float64{0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7})
	for axis, want := range [][]float64{{0, 2}, {0, 0, 1}, {0, 1}} {
		if got := RowOf(x, axis); !slices.Equal(got, want) {
			t.Errorf("along axis %d: %v, want %v", axis, got, want)
		}
	}
	if got := RowOf(reference.NewFloats(onnx.Float, []int{2, 2}, make([]float64, 4)), 1); got != nil {
		t.Errorf("%v of zeros", got)
	}
}

// TestOps evaluates fused and standard ops on numbers.
func TestOps(t *testing.T) {
	floats := func(list ...float64) *reference.Tensor {
		return reference.NewFloats(onnx.Float, []int{1, len(list)}, list)
	}
	steps := 0
	spend := func(n int) error { steps += n; return nil }
	if out, err := Op("Max", nil, spend, floats(1, 5), floats(3, 4)); err != nil || len(out) != 1 ||
		!slices.Equal(out[0].F, []float64{3, 5}) || steps == 0 {
		t.Errorf("Max: %v, %v, %d steps", out, err, steps)
	}
	most := reference.NewFloats(onnx.Float, nil, []float64{3})
	if out, err := Op("Clip", nil, nil, floats(1, 5), nil, most); err != nil ||
		!slices.Equal(out[0].F, []float64{1, 3}) {
		t.Errorf("Clip without a minimum: %v, %v", out, err)
	}
	out, err := Fused(fused.GLU{Activation: "silu", Alpha: 1}, nil, floats(0, 40), floats(3, 4))
	if err != nil || !slices.Equal(out[0].F, []float64{0, 160}) {
		t.Errorf("GLU: %v, %v", out, err)
	}
	norm := fused.AddRMSNorm{Axis: -1}
	scale := reference.NewFloats(onnx.Float, []int{2}, []float64{1, 10})
	out, err = Fused(norm, nil, floats(1, 3), floats(2, -6), scale)
	if err != nil || len(out) != 2 || !slices.Equal(out[1].F, []float64{3, -3}) ||
		!slices.Equal(out[0].F, []float64{1, -10}) {
		t.Errorf("AddRMSNorm: %v, %v", out, err)
	}
	if _, err := Fused(fused.GLU{Activation: "other"}, nil, floats(1), floats(1)); err == nil {
		t.Error("an unknown activation is computed")
	}
	stop := errors.New("stop")
	if _, err := Op("Max", nil, func(int) error { return stop }, floats(1)); !errors.Is(err, stop) {
		t.Errorf("without steps: %v", err)
	}
}

// TestDecoded decodes the elements of weights that are read otherwise than by moving or multiplying them, if they are
// few.
func TestDecoded(t *testing.T) {
	g := onnx.New(10, 20).Graph
	a := g.AddInitializer(onnx.NewFloat32s("a", []int64{3}, []float32{1, 2, 3}))
	b := g.AddInitializer(onnx.NewFloat32s("b", []int64{2}, []float32{4, 5}))
	var p places
	of := func(v *onnx.Value) *reference.Tensor {
		r, err := p.of(v)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	x, y := of(a), of(b)
	for name, c := range map[string]struct {
		t    *reference.Tensor
		want []float64
	}{"a": {x, []float64{1, 2, 3}}, "b": {y, []float64{4, 5}}, "rows of b": {expanded(y, []int{2, 2}),
		[]float64{4, 5, 4, 5}}} {
		got, err := p.read(c.t)
		if err != nil || !slices.Equal(got.F, c.want) || got.DataType != onnx.Float ||
			!slices.Equal(got.Shape, c.t.Shape) {
			t.Errorf("%s: %v, %v, want %v", name, got, err, c.want)
		}
	}
	if _, err := p.read(expanded(y, []int{maxRead/2 + 1, 2})); err == nil {
		t.Error("more elements than may be decoded")
	}
	if got, err := p.read(expanded(of(a), []int{maxRead / 3, 3})); err != nil || got.Len() != maxRead/3*3 {
		t.Errorf("as many as may be decoded: %v", err)
	}
	wide := g.AddInitializer(onnx.NewFloat32s("wide", []int64{maxRead + 1}, make([]float32, maxRead+1)))
	part := of(wide)
	first, err := reference.NewLazy(onnx.Float, []int{1}, func(dst []float64, _ int) error {
		return part.Read(dst, 0, 1)
	})
	if err == nil {
		_, err = p.read(first)
	}
	if err == nil {
		t.Error("a number of a weight that is too long to be decoded")
	}
	if expanded(x, []int{2}) != nil {
		t.Error("three elements expanded to two")
	}
}

// TestSizesOfRuns: sizes are computed from the tensors of the run, not from those that shape inference assumes. Values
// of the router keep the shapes of the facts.
func TestSizesOfRuns(t *testing.T) {
	b := onnxtest.New(20)
	x := b.Input("x", onnx.Float, "tokens", 4)
	logits := b.Op("Relu", x)
	y := b.Op("Expand", b.Floats([]int64{}, 1), b.Op("Shape", logits))
	b.Output(y)
	facts := infer.Analyze(b.Model)
	g := match.New(b.Graph, facts, nil)
	assumed, _ := facts.Shape(x, 0)
	in := Values{x: reference.NewFloats(onnx.Float, []int{9, 4}, make([]float64, 36))}
	for name, c := range map[string]struct {
		router map[*onnx.Value]bool
		tokens int
	}{
		"of the run":    {nil, 9},
		"of the router": {map[*onnx.Value]bool{logits: true}, int(assumed[0])},
	} {
		r := NewRunner(g, g.Budget("test", match.Limits{Each: 1 << 20, Reserve: 1 << 20, Shares: 1}))
		out, err := r.Run(y, c.router, in)
		if err != nil || !slices.Equal(out.Shape, []int{c.tokens, 4}) || assumed[0] == 9 {
			t.Errorf("%s: %v, %v, want %d rows", name, out, err, c.tokens)
		}
	}
}

// TestRegions: a region has its nodes only.
func TestRegions(t *testing.T) {
	a, b := new(onnx.Node), new(onnx.Node)
	if r := (&Region{Nodes: []*onnx.Node{a}}); !r.Has(a) || r.Has(b) {
		t.Error("not the nodes of the region")
	}
}
