package prove

import (
	"math"
	"slices"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// TestDistances: differences count where the wanted number is finite, relative to the largest magnitude.
func TestDistances(t *testing.T) {
	inf, nan, most := math.Inf(1), math.NaN(), math.MaxFloat64
	for name, c := range map[string]struct {
		want, got                   []float64
		difference, scale, relative float64
	}{
		"equal":                 {[]float64{1, -4}, []float64{1, -4}, 0, 4, 0},
		"the largest":           {[]float64{1, -4, 2}, []float64{1.5, -3, 2}, 1, 4, 0.25},
		"infinity wanted":       {[]float64{inf, 2, nan}, []float64{0, 3, 0}, 1, 2, 0.5},
		"infinity instead":      {[]float64{1, 2}, []float64{inf, 2}, most, 2, most / 2},
		"NaN before numbers":    {[]float64{1, 2}, []float64{nan, 3}, most, 2, most / 2},
		"of zeros":              {[]float64{0, 0}, []float64{0, 1}, 1, 0, most},
		"of subnormal numbers":  {[]float64{0x1p-130}, []float64{0x1p-129}, 0x1p-130, 0x1p-130, 0x1p-4},
		"another number of all": {[]float64{1}, []float64{1, 2}, most, 0, most},
		"none":                  {nil, nil, 0, 0, 0},
	} {
		d, scale := Distance(c.want, c.got)
		if d != c.difference || scale != c.scale || Relative(d, scale) != c.relative {
			t.Errorf("%s: %g of %g, relatively %g", name, d, scale, Relative(d, scale))
		}
	}
	for _, c := range []struct {
		typ   onnx.DataType
		terms int64
		want  float64
	}{{onnx.Float, 1, 16}, {onnx.Float, 128, 16}, {onnx.Float, 256, 32}, {onnx.Float16, -1, 8},
		{onnx.BFloat16, 1024, 64}} {
		if got := AllowedULPs(c.typ, c.terms); got != c.want {
			t.Errorf("%g units for sums of %d in %s, want %g", got, c.terms, c.typ, c.want)
		}
	}
	if !AllFinite([]float64{0, most}) || AllFinite([]float64{0, inf}) || AllFinite([]float64{nan}) ||
		!AllFinite(nil) || IsFinite(-inf) {
		t.Error("not the finite numbers")
	}
}

// TestKindsOfInputs: each kind is hard in its own way, in each type.
func TestKindsOfInputs(t *testing.T) {
	shape := []int64{2, 3, 4}
	made := func(k Kind, number int, typ onnx.DataType) []float64 {
		x, err := MakeInput(k, number, typ, shape)
		if err != nil || x.DataType != typ || !slices.Equal(x.Shape, []int{2, 3, 4}) || len(x.F) != 24 {
			t.Fatalf("%s of %s: %v, %v", k.Name, typ, x, err)
		}
		return x.F
	}
	magnitude := func(v []float64) (greatest float64) {
		for _, x := range v {
			greatest = max(greatest, math.Abs(x))
		}
		return greatest
	}
	for typ, f := range FloatTypes {
		for _, k := range append([]Kind{Slight}, Kinds...) {
			v := made(k, 0, typ)
			if !slices.Equal(v, made(k, 0, typ)) || slices.Equal(v, made(k, 1, typ)) != (k.Name == "zeros") {
				t.Errorf("%s of %s: not the numbers of the input", k.Name, typ)
			}
			for _, x := range v {
				if RoundTo(typ, x) != x {
					t.Errorf("%s: %g is not a number of type %s", k.Name, x, typ)
				}
			}
			m := magnitude(v)
			var right bool
			switch k.Name {
			case "normal":
				right = m > 1 && m < 5
			case "small":
				right = m > 1e-3 && m < 5e-3
			case "large": // squares are finite, third powers are not
				right = m*m < f.greatest && m*m > f.greatest/256 && (typ == onnx.Float16 || m*m*m > f.greatest)
			case "huge":
				right = m <= 0.9*f.greatest*1.01 && m*m > f.greatest && m > f.greatest/2
			case "tiny":
				right = m > 0 && m*m < f.leastNormal
			case "slight":
				right = m*m > f.leastNormal && m*m < f.leastNormal*1e4
			case "zeros":
				right = m == 0
			case "one-hot":
				right = true
				for row := range 6 {
					for i, x := range v[row*4 : row*4+4] {
						if at := row % 4; (x != 0) != (i == at) || x != 0 && (x < 1 || x > 2) {
							right = false
						}
					}
				}
			case "repeated":
				right = m > 0 && slices.Equal(v[:4], v[20:]) && slices.Equal(v[4:8], v[8:12]) && v[0] != v[1]
			}
			if !right {
				t.Errorf("%s of %s: %v", k.Name, typ, v)
			}
		}
	}
	for _, typ := range []onnx.DataType{onnx.Int32, onnx.Bool, onnx.Uint8, onnx.Float8E4M3FN} {
		x, err := MakeInput(Huge, 3, typ, []int64{40})
		if err != nil || x.DataType != typ || x.Len() != 40 || (x.F != nil) != (typ == onnx.Float8E4M3FN) {
			t.Fatalf("%s: %v, %v", typ, x, err)
		}
		ones := 0
		for i := range 40 {
			if len(x.I) > 0 && x.I[i] == 1 || len(x.F) > 0 && x.F[i] == 1 {
				ones++
			} else if len(x.I) > 0 && x.I[i] != 0 || len(x.F) > 0 && x.F[i] != 0 {
				t.Errorf("%s: neither 0 nor 1 in %v %v", typ, x.I, x.F)
			}
		}
		if ones < 5 || ones > 35 {
			t.Errorf("%s: %d ones of 40", typ, ones)
		}
	}
	if x, err := MakeInput(OneHot, 0, onnx.Float, nil); err != nil || len(x.F) != 1 || x.F[0] == 0 {
		t.Errorf("a scalar: %v, %v", x, err)
	}
	if _, err := MakeInput(Normal, 0, onnx.String, shape); err == nil {
		t.Error("numbers of strings")
	}
}

// TestWeightsAreNotTiny: an input that is smaller than another one is normal instead of tiny.
func TestWeightsAreNotTiny(t *testing.T) {
	shapes := [][]int64{{2, 8}, {8}, {16}}
	for _, k := range []Kind{Tiny, Slight, Small} {
		for i, weight := range []bool{false, true, false} {
			want := k.Name
			if weight && k.Name != Small.Name {
				want = Normal.Name
			}
			if got := k.Of(shapes, i); got.Name != want {
				t.Errorf("%s: input %d is %s, want %s", k.Name, i, got.Name, want)
			}
		}
	}
	for want, shapes := range map[int64][][]int64{0: {{2, 0}, {-1}}, 1: {{}}, 11: {{2, 4}, {3}}} {
		if got := Elements(shapes); got != want {
			t.Errorf("%d elements of %v, want %d", got, shapes, want)
		}
	}
}

// TestRounding: numbers are rounded to the nearest one of a type, ties to even, and stay finite.
func TestRounding(t *testing.T) {
	for _, c := range []struct {
		typ     onnx.DataType
		x, want float64
	}{
		{onnx.Float16, 2049, 2048}, {onnx.Float16, 2051, 2052}, {onnx.Float16, 1e9, 65504},
		{onnx.Float16, -1e9, -65504}, {onnx.Float16, 0x1p-25, 0}, {onnx.Float16, 0x1.8p-25, 0x1p-24},
		{onnx.BFloat16, 257, 256}, {onnx.BFloat16, 259, 260},
		{onnx.Float, 1 + 0x1p-24, 1}, {onnx.Float, 1e300, math.MaxFloat32}, {onnx.Float, -1e300, -math.MaxFloat32},
		{onnx.Double, 1e300, 1e300}, {onnx.Double, 1 + 0x1p-52, 1 + 0x1p-52},
	} {
		v := []float64{0, c.x}
		if RoundAll(c.typ, v); RoundTo(c.typ, c.x) != c.want || v[1] != c.want || v[0] != 0 {
			t.Errorf("%s: %g is rounded to %g and %g, want %g", c.typ, c.x, RoundTo(c.typ, c.x), v[1], c.want)
		}
	}
}

// TestHeads: the heads of queries are on the axis of their layout.
func TestHeads(t *testing.T) {
	for layout, want := range map[string]int64{"bnsh": 2, "bsnh": 3} {
		site := fused.Site{Attributes: fused.Attention{QLayout: layout}.Attributes(), Dims: [][]int64{{1, 2, 3, 4}}}
		if got := new(Lengths).heads(site); got != want {
			t.Errorf("%d heads of %s, want %d", got, layout, want)
		}
		site.Dims[0] = nil
		if got := new(Lengths).heads(site); got != -1 {
			t.Errorf("%d heads of unknown queries", got)
		}
	}
	if got := Structural(0, onnx.Float, 4); got != 4*StructuralTolerance {
		t.Errorf("%g is allowed at 4", got)
	}
}

// TestSettledScales: a scale that another rounding may give is accepted, and the compared tensors are not changed.
func TestSettledScales(t *testing.T) {
	s := &Steps{least: []float64{1, 1}, most: []float64{1, 1}, scales: []float64{1.01, 1}}
	codes := reference.NewInts(onnx.Int8, []int{2}, []int64{1, 1})
	want := []*reference.Tensor{codes, reference.NewFloats(onnx.Float, []int{2}, []float64{100, 100})}
	for _, c := range []struct{ first, second, settled float64 }{{100.5, 100, 100}, {102, 100, 102}} {
		mine := reference.NewFloats(onnx.Float, []int{2}, []float64{c.first, c.second})
		got := []*reference.Tensor{codes, mine}
		if s.Settle(0, want, got); got[1].F[0] != c.settled || mine.F[0] != c.first {
			t.Errorf("%g becomes %g, want %g, and the kernel's result is %g", c.first, got[1].F[0], c.settled,
				mine.F[0])
		}
	}
}
