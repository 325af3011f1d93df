package probe

import (
	"fmt"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// TestReadings reads layers of a graph. A layer of a known form gets the reading with its own weights; only layers of
// other forms are read again.
func TestReadings(t *testing.T) {
	b := onnxtest.New(20)
	x := b.Input("x", onnx.Float, "n", 2)
	layer := func(op string, factor float32) (w, y *onnx.Value) {
		w = b.Input("", onnx.Float, 2)
		y = b.Op(op, b.Op("Mul", x, b.Floats([]int64{1}, factor)), w)
		b.Output(y)
		return w, y
	}
	g := match.New(b.Graph, infer.Analyze(b.Model), nil)
	budget := g.Budget("test", match.Limits{Each: 1 << 20, Reserve: 1 << 20, Shares: 1})
	known, reads := Readings[onnx.Value]{}, 0
	read := func(most int, w, y *onnx.Value) *onnx.Value {
		var f *Form
		f = NewForm(g, most, func(v *onnx.Value) bool {
			if c := v.Constant(); c != nil {
				f.Tensor(c)
			}
			return v.Producer == nil
		})
		f.Value(y)
		type values = func(*onnx.Value) *onnx.Value
		found, _ := known.Of(f, budget, func() (*onnx.Value, *reason.Reason) {
			reads++
			return w, nil
		}, func(of *onnx.Value, _ *reason.Reason, stands values) (*onnx.Value, *reason.Reason, bool) {
			return stands(of), nil, true
		})
		return found
	}
	for _, test := range []struct {
		name   string
		op     string
		factor float32
		most   int
		reads  int
	}{
		{"the first", "Add", 2, 10, 1},
		{"the same form", "Add", 2, 10, 1},
		{"another op", "Sub", 2, 10, 2},
		{"another number", "Add", 3, 10, 3},
		{"too long a form", "Add", 2, 2, 4},
		{"the first form again", "Add", 2, 10, 4},
	} {
		w, y := layer(test.op, test.factor)
		if got := read(test.most, w, y); got != w || reads != test.reads {
			t.Errorf("%s: %v after %d readings, want %v after %d", test.name, got, reads, w, test.reads)
		}
	}
}

// TestForms: parts of one form compute the same from different values; parts that differ in anything have other forms.
func TestForms(t *testing.T) {
	b := onnxtest.New(20)
	x, y := b.Input("x", onnx.Float, "n", 2), b.Input("y", onnx.Float, "n", 2)
	wide := b.Input("wide", onnx.Float, "n", 4)
	half := b.Input("half", onnx.Float16, "n", 2)
	split := func(at int) *onnx.Value {
		v := b.Graph.AddNode("Split", []*onnx.Value{wide}, []*onnx.Value{b.Graph.NewValue(""), b.Graph.NewValue("")},
			onnx.IntAttr("axis", 1))
		return v.Outputs[at]
	}
	filled := func(with float32) *onnx.Value {
		return b.Op("ConstantOfShape", b.Op("Shape", x),
			onnx.TensorAttr("value", onnx.NewFloat32s("", []int64{1}, []float32{with})))
	}
	long := func() *onnx.Value { return b.Floats([]int64{maxNumbers + 1}, make([]float32, maxNumbers+1)...) }
	most := func() *onnx.Value { return b.Floats([]int64{maxNumbers}, make([]float32, maxNumbers)...) }
	type list = []*onnx.Value
	one := b.Floats(nil, 1)
	elu := func(alpha float32) *onnx.Value { return b.Op("Elu", x, onnx.FloatAttr("alpha", alpha)) }
	cases := []struct {
		name       string
		a, b       *onnx.Value
		same, dark bool
	}{
		{"other inputs", b.Op("Add", x, x), b.Op("Add", y, y), true, false},
		{"one input and two", b.Op("Add", x, x), b.Op("Add", x, y), false, false},
		{"another type", b.Op("Abs", x), b.Op("Abs", half), false, false},
		{"an omitted input", b.Op("Clip", x, nil, one), b.Op("Clip", y, nil, one), true, false},
		{"the other input omitted", b.Op("Clip", x, nil, one), b.Op("Clip", x, one), false, false},
		{"another attribute", elu(1), elu(2), false, false},
		{"another output", split(0), split(1), false, false},
		{"the same output", split(1), split(1), true, false},
		{"the same numbers", filled(2), filled(2), true, false},
		{"another number", filled(2), filled(3), false, false},
		{"no number", filled(0), b.Op("ConstantOfShape", b.Op("Shape", x)), false, false},
		{"many numbers", b.Op("Add", x, most()), b.Op("Add", x, most()), true, false},
		{"too many numbers", b.Op("Add", x, long()), b.Op("Add", x, long()), true, true},
		{"grouped otherwise", b.Op("Max", b.Op("Max", x, y), y), b.Op("Max", b.Op("Max", x, y, y)), false, false},
		{"in another order", b.Op("Sub", x, y), b.Op("Sub", b.Op("Neg", x), y), false, false},
	}
	g := match.New(b.Graph, infer.Analyze(b.Model), nil)
	for _, c := range cases {
		var texts []string
		for _, v := range (list{c.a, c.b}) {
			var f *Form
			f = NewForm(g, 10, func(v *onnx.Value) bool {
				if t := v.Constant(); t != nil {
					f.Tensor(t)
				}
				return v.Producer == nil || v.Constant() != nil
			})
			if f.Value(v); f.Unclear != c.dark || f.Values[0] != v {
				t.Errorf("%s: unclear %v", c.name, f.Unclear)
			}
			texts = append(texts, f.String())
		}
		if same := texts[0] == texts[1]; same != c.same {
			t.Errorf("%s: the forms are %q", c.name, texts)
		}
	}
	f := NewForm(g, 1, nil)
	if f.Elements(onnx.NewFloat32s("", []int64{maxNumbers + 1}, make([]float32, maxNumbers+1))); f.Unclear {
		t.Error("elements of any number are unclear")
	}
	if f.Elements(&onnx.Tensor{DataType: onnx.Float, Dims: []int64{2}, External: &onnx.External{}}); !f.Unclear {
		t.Error("elements that are not there are clear")
	}
	deep := x
	for range 9 {
		deep = b.Op("Neg", deep)
	}
	f = NewForm(match.New(b.Graph, infer.Analyze(b.Model), nil), 3, func(v *onnx.Value) bool { return v == x })
	if f.Value(deep); !f.Unclear || len(f.Values) != 3 {
		t.Errorf("a form of at most 3 values has %d", len(f.Values))
	}
}

// TestReadingsWithoutSteps: a reading that the budget cut short is not kept.
func TestReadingsWithoutSteps(t *testing.T) {
	b := onnxtest.New(20)
	y := b.Op("Abs", b.Input("x", onnx.Float, 2))
	g := match.New(b.Graph, infer.Analyze(b.Model), nil)
	known, reads := Readings[int]{}, 0
	for _, steps := range []int{1, 1 << 20} {
		budget := g.Budget(fmt.Sprint(steps), match.Limits{Each: steps, Shares: 1})
		budget.Begin(y.Producer)
		f := NewForm(g, 10, func(v *onnx.Value) bool { return v.Producer == nil })
		f.Value(y)
		found, why := known.Of(f, budget, func() (*int, *reason.Reason) {
			reads++
			budget.Spend(100)
			return new(int), nil
		}, nil)
		if (found == nil) != (steps == 1) || why != nil {
			t.Errorf("%d steps: %v, %v", steps, found, why)
		}
	}
	if reads != 2 {
		t.Errorf("%d readings", reads)
	}
}
