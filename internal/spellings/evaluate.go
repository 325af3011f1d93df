package spellings

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/internal/spellings/blocks"
	"github.com/mojo-patch/mojo-patch/internal/spellings/writer"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// magnitudes are the magnitudes of the inputs: an epsilon matters at the small one, a limit at the great one.
var magnitudes = []float64{1, 2e-3, 12}

// evaluate runs the model on seeded inputs of a magnitude, with symbolic dimensions 2, 3, ….
func evaluate(m *onnx.Model, magnitude float64, exact bool) (map[string]*reference.Tensor, error) {
	inputs, err := seeded(m, magnitude, map[string]int{}, nil)
	if err != nil {
		return nil, err
	}
	return run(m, reference.Options{Exact: exact}, inputs)
}

func run(m *onnx.Model, o reference.Options, inputs map[string]*reference.Tensor) (map[string]*reference.Tensor,
	error) {
	e, err := reference.New(m, o)
	if err != nil {
		return nil, err
	}
	return e.Run(inputs)
}

// measured is evaluate that also returns the greatest magnitudes of the outputs. For sums it includes their terms: a
// rounding error of a term is not small relative to a result in which terms cancel.
func measured(m *onnx.Model, magnitude float64, exact bool) (outputs map[string]*reference.Tensor,
	scales map[string]float64, err error) {
	inputs, err := seeded(m, magnitude, map[string]int{}, nil)
	if err != nil {
		return nil, nil, err
	}
	scales = map[string]float64{}
	outputs, err = run(m, reference.Options{Exact: exact, Override: func(n *onnx.Node, s *reference.Scope) (
		[]*reference.Tensor, error) {
		if y := n.Outputs[0]; (n.Is("Add") || n.Is("Sub") || n.Is("Sum")) && slices.Contains(m.Graph.Outputs, y) {
			for _, v := range n.Inputs {
				t, err := s.Value(v)
				if err != nil {
					return nil, err
				}
				scales[y.Name] = max(scales[y.Name], magnitudeOf(t.F))
			}
		}
		return nil, nil
	}}, inputs)
	for name, t := range outputs {
		scales[name] = max(scales[name], magnitudeOf(t.F))
	}
	return outputs, scales, err
}

// magnitudeOf returns the greatest finite magnitude.
func magnitudeOf(list []float64) float64 {
	most := 0.0
	for _, x := range list {
		if x = math.Abs(x); !math.IsNaN(x) && !math.IsInf(x, 0) {
			most = max(most, x)
		}
	}
	return most
}

// seeded makes the inputs of the model, except given ones. sizes may set dimensions.
func seeded(m *onnx.Model, magnitude float64, sizes map[string]int, given map[string]*reference.Tensor) (
	inputs map[string]*reference.Tensor, err error) {
	inputs = map[string]*reference.Tensor{}
	for i, v := range m.Graph.Inputs {
		if inputs[v.Name] = given[v.Name]; inputs[v.Name] != nil {
			continue
		}
		typ, _ := v.Type()
		n, shape := 1, make([]int, len(typ.Dims))
		for k, d := range typ.Dims {
			if a, b, sum := strings.Cut(d.Param, " + "); sum {
				shape[k] = sizes[a] + sizes[b]
			} else if shape[k] = int(d.Value); d.Value < 0 {
				if _, known := sizes[d.Param]; !known {
					sizes[d.Param] = len(sizes) + 2
					if d.Param == writer.ManyRows {
						sizes[d.Param] = 7
					}
				}
				shape[k] = sizes[d.Param]
			}
			n *= shape[k]
		}
		r := rand.New(rand.NewPCG(uint64(i), 7))
		values := make([]float64, n)
		for k := range values {
			values[k] = magnitude * r.NormFloat64()
		}
		if !typ.DataType.IsFloat() {
			inputs[v.Name] = reference.NewInts(typ.DataType, shape, signs(values))
			continue
		}
		t, err := reference.NewFloats(typ.DataType, shape, values).ToONNX(v.Name)
		if err != nil {
			return nil, err
		}
		if inputs[v.Name], err = reference.FromONNX(t); err != nil {
			return nil, err
		}
	}
	return inputs, nil
}

// signs returns 1 for most numbers, and 0 for the least ones.
func signs(values []float64) []int64 {
	list := make([]int64, len(values))
	if len(values) == 0 {
		return list
	}
	least := -slices.Max(values) / 2
	for i, x := range values {
		if x > least {
			list[i] = 1
		}
	}
	return list
}

// leastChange is the least difference of a changed result, relative to the greatest magnitude.
const leastChange = 1e-3

// differ reports whether the changed model runs on all inputs and its block returns other results for some. (Outputs
// after the first are inner values.)
func differ(m, changed *onnx.Model) bool {
	differs := false
	for _, magnitude := range magnitudes {
		want, err := evaluate(m, magnitude, true)
		if err != nil {
			return false
		}
		got, err := evaluate(changed, magnitude, true)
		if err != nil {
			return false
		}
		w, g := want[m.Graph.Outputs[0].Name], got[changed.Graph.Outputs[0].Name]
		if v := bytes(w); v != nil {
			differs = differs || w.DataType != g.DataType || distance(v, bytes(g)) > 0
			continue
		}
		d, scale := distance(w.F, g.F), magnitudeOf(w.F)
		differs = differs || !slices.Equal(w.Shape, g.Shape) || d > leastChange*scale
	}
	return differs
}

// Same compares the results of a rewritten model of a block of the kind with the original's. It returns an error that
// names the output if they differ by more than rounding.
func Same(k Kind, m, rewritten *onnx.Model) error {
	if k.Name == blocks.Latents && len(m.Graph.Inputs) != len(rewritten.Graph.Inputs) {
		return sameTalk(k, m, rewritten)
	}
	typ, _ := m.Graph.Inputs[0].Type()
	for _, exact := range []bool{true, false} {
		for _, magnitude := range magnitudes {
			if !exact && magnitude < 1 && k.routes() {
				continue // rounding makes such close scores equal
			}
			if !exact && magnitude > 1 && (k.attends() || k.Pattern == "LinearAttention") {
				continue // rounding of great scores, or of sums of great decays, dominates
			}
			want, scales, err := measured(m, magnitude, exact)
			if err != nil {
				return fmt.Errorf("the original: %w", err)
			}
			got, err := evaluate(rewritten, magnitude, exact)
			if err != nil {
				return fmt.Errorf("the rewritten model: %w", err)
			}
			for name, w := range want {
				g := got[name]
				switch {
				case g == nil:
					return fmt.Errorf("output %q is missing", name)
				case g.DataType != w.DataType || !slices.Equal(g.Shape, w.Shape):
					return fmt.Errorf("output %q is %s%v, it was %s%v", name, g.DataType, g.Shape, w.DataType, w.Shape)
				}
				d, scale, t := distance(numbers(w), numbers(g)), scales[name], w.DataType
				if k.Pattern == "MoE" { // a float32 output may depend on products in a half type
					t = typ.DataType
				}
				allowed := tolerance(k, t, exact, scale)
				if bytes(w) != nil {
					allowed = 0
				}
				if d > allowed && k.Pattern == "NormQuantize" {
					open, err := among(m, name, numbers(g), allowed, magnitude, exact)
					if err != nil {
						return fmt.Errorf("the original, on changed inputs: %w", err)
					}
					if open {
						continue
					}
				}
				if d > allowed {
					return fmt.Errorf("output %q differs by %.3g, its greatest magnitude being %.3g and %.3g allowed "+
						"(inputs of magnitude %g, exact %v)",
						name, d, scale, allowed, magnitude, exact)
				}
			}
		}
	}
	return nil
}

// among reports whether all numbers of an output lie within the range that the original itself returns if its inputs,
// and the values that it casts to float32, change by little more than float32 rounds. A number near the middle between
// two numbers of 8 bits, or of a half type, may be rounded to either.
func among(m *onnx.Model, name string, got []float64, allowed, magnitude float64, exact bool) (bool, error) {
	off := 0x1p-21
	if exact {
		off = 1e-7
	}
	var low, high []float64
	r := rand.New(rand.NewPCG(1, 2))
	beside := func(v []float64) []float64 {
		list := make([]float64, len(v))
		for i, x := range v {
			list[i] = x * (1 + off*(2*r.Float64()-1))
		}
		return list
	}
	o := reference.Options{Exact: exact, Override: func(n *onnx.Node, s *reference.Scope) ([]*reference.Tensor, error) {
		if !n.Is("Cast") || n.AttrInt("to", 0) != int64(onnx.Float) {
			return nil, nil
		}
		t, err := s.Value(n.Inputs[0])
		if err != nil || !t.IsFloat() || t.Len() == 1 { // the 2 of a Pow is exact
			return nil, err
		}
		return []*reference.Tensor{reference.NewFloats(onnx.Float, t.Shape, beside(t.F))}, nil
	}}
	for range 100 {
		inputs, err := seeded(m, magnitude, map[string]int{}, nil)
		if err != nil {
			return false, err
		}
		for _, v := range m.Graph.Inputs {
			if t := inputs[v.Name]; t.IsFloat() {
				inputs[v.Name] = reference.NewFloats(t.DataType, t.Shape, beside(t.F))
			}
		}
		out, err := run(m, o, inputs)
		if err != nil {
			return false, err
		}
		v := numbers(out[name])
		if low == nil {
			low, high = slices.Clone(v), slices.Clone(v)
		}
		for i, x := range v {
			low[i], high[i] = min(low[i], x), max(high[i], x)
		}
	}
	for i, x := range got {
		if x < low[i]-allowed || x > high[i]+allowed {
			return false, nil
		}
	}
	return true, nil
}

// tolerance returns the allowed difference of results of a greatest magnitude: some units in the last place or, without
// rounding, the error of gelu's constants in a half type.
func tolerance(k Kind, t onnx.DataType, exact bool, magnitude float64) float64 {
	if exact && (t == onnx.Float || k.Pattern != "GeGLU" && k.Pattern != "BiasGELU" &&
		k.Pattern != "MoE") {
		return 2e-6 * magnitude
	}
	bits := map[onnx.DataType]int{onnx.Float: 23, onnx.Float16: 11, onnx.BFloat16: 8}[t]
	if t == onnx.Float16 {
		magnitude = max(magnitude, 0x1p-14) // below, units are constant
	}
	units := 16.0
	if k.routes() || k.attends() { // sums of several consecutive products
		units = 256
	}
	return math.Ldexp(units*magnitude, -bits)
}

// distance returns the greatest difference where want is finite.
func distance(want, got []float64) float64 {
	if len(want) != len(got) {
		return math.Inf(1)
	}
	difference := 0.0
	for i, w := range want {
		if math.IsNaN(w) || math.IsInf(w, 0) {
			continue
		}
		if d := math.Abs(w - got[i]); !(d <= difference) {
			difference = d
			if math.IsNaN(d) {
				return math.Inf(1)
			}
		}
	}
	return difference
}

// numbers returns the floats or the numbers of 8 bits of a tensor.
func numbers(t *reference.Tensor) []float64 {
	if v := bytes(t); v != nil {
		return v
	}
	return t.F
}

// bytes returns the numbers of a tensor of 8 bits, or nil for other types. It rounds those of exact evaluations.
func bytes(t *reference.Tensor) []float64 {
	switch t.DataType {
	case onnx.Float8E4M3FN:
		v := slices.Clone(t.F)
		for i, x := range v {
			_, e := math.Frexp(x)
			step := math.Ldexp(1, max(e-4, -9))
			v[i] = min(max(math.RoundToEven(x/step)*step, -448), 448)
		}
		return v
	case onnx.Int8:
		v := make([]float64, len(t.I))
		for i, x := range t.I {
			v[i] = float64(x)
		}
		return v
	}
	return nil
}
