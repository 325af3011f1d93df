package golden

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// Tolerance is the permitted error. An element is within it if
//
//	|got - want| <= Abs + Rel*|want| + ULP*ulp(max|want|)
//
// where ulp(max|want|) is one unit in the last place, in the tensor's type, of the largest finite magnitude of the
// expected tensor. That suits float16 and bfloat16: results of sums in another order are thousands of an element's own
// ulp apart near zero. The zero Tolerance demands equality.
type Tolerance struct {
	Abs float64 `json:"abs"`
	Rel float64 `json:"rel"`
	ULP float64 `json:"ulp"`
	// Share is the share of elements that must be within tolerance; 0 means 1, all of them.
	Share float64 `json:"share,omitempty"`
}

// DefaultTolerance returns the tolerance for outputs of a type: float32 1e-4 absolute and relative, float64 1e-9
// absolute and relative, float16 and bfloat16 4 ulp of the largest magnitude; other types must be equal.
func DefaultTolerance(t onnx.DataType) Tolerance {
	switch t {
	case onnx.Float:
		return Tolerance{Abs: 1e-4, Rel: 1e-4}
	case onnx.Double:
		return Tolerance{Abs: 1e-9, Rel: 1e-9}
	case onnx.Float16, onnx.BFloat16:
		return Tolerance{ULP: 4}
	}
	return Tolerance{}
}

// String returns the bound, for example "abs 0.0001 + rel 0.0001".
func (t Tolerance) String() string {
	var parts []string
	for _, p := range []struct {
		format string
		value  float64
	}{{"abs %g", t.Abs}, {"rel %g", t.Rel}, {"%g ulp of max", t.ULP}} {
		if p.value != 0 {
			parts = append(parts, fmt.Sprintf(p.format, p.value))
		}
	}
	text := cmp.Or(strings.Join(parts, " + "), "equality")
	if t.Share > 0 && t.Share < 1 {
		text += fmt.Sprintf(" for %g%% of the elements", 100*t.Share)
	}
	return text
}

// Tolerances selects the tolerance of each tensor: its type's default, with the user's changes for all tensors or for a
// name. The zero value changes nothing.
type Tolerances struct {
	abs, rel map[string]float64 // by tensor; "" is for all without an entry
}

// ParseTolerances parses the values of repeated flags --atol and --rtol: each is "VALUE" for every tensor, or
// "NAME:VALUE" for one. An absolute tolerance also replaces the ulp of float16 and bfloat16. Names may contain colons.
func ParseTolerances(atol, rtol []string) (Tolerances, error) {
	abs, err := parseTolerance("atol", atol)
	if err != nil {
		return Tolerances{}, err
	}
	rel, err := parseTolerance("rtol", rtol)
	return Tolerances{abs: abs, rel: rel}, err
}

func parseTolerance(flag string, entries []string) (map[string]float64, error) {
	values := map[string]float64{}
	for _, e := range entries {
		name, number := "", e
		if i := strings.LastIndexByte(e, ':'); i >= 0 {
			name, number = e[:i], e[i+1:]
			if name == "" {
				return nil, fmt.Errorf("--%s %q: the name before the colon is empty", flag, e)
			}
		}
		v, err := strconv.ParseFloat(number, 64)
		if err != nil || v < 0 || math.IsNaN(v) || math.IsInf(v, 0) {
			return nil, fmt.Errorf("--%s %q: %q is not a tolerance; write VALUE or NAME:VALUE with a number of 0 or "+
				"more",
				flag, e, number)
		}
		if _, exists := values[name]; exists {
			return nil, fmt.Errorf("--%s %q: the tolerance of these tensors is set twice", flag, e)
		}
		values[name] = v
	}
	return values, nil
}

// For returns the tolerance of a tensor by its name and type.
func (t Tolerances) For(name string, dt onnx.DataType) Tolerance {
	return t.change(name, DefaultTolerance(dt))
}

// Inner is For for values inside of models, which have any magnitude: the default absolute tolerance is relative to the
// tensor's greatest magnitude. Values of a model in half precision (Half) have its tolerance, even if their own type is
// more precise.
func (t Tolerances) Inner(name string, dt, half onnx.DataType) Tolerance {
	tol := DefaultTolerance(dt)
	switch {
	case half != onnx.Undefined && dt.IsFloat():
		tol = Tolerance{ULP: DefaultTolerance(half).ULP * ulp(half, 1) / ulp(dt, 1)}
	case tol.Abs > 0:
		tol.ULP, tol.Abs = tol.Abs/ulp(dt, 1), 0
	}
	return t.change(name, tol)
}

func (t Tolerances) change(name string, tol Tolerance) Tolerance {
	if v, ok := lookup(t.abs, name); ok {
		tol.Abs, tol.ULP = v, 0
	}
	if v, ok := lookup(t.rel, name); ok {
		tol.Rel = v
	}
	return tol
}

func lookup(values map[string]float64, name string) (float64, bool) {
	if v, ok := values[name]; ok {
		return v, true
	}
	v, ok := values[""]
	return v, ok
}

// Check returns an error if a tolerance was given for a tensor that is not in names, which is probably a typo.
func (t Tolerances) Check(names []string) error {
	for _, values := range []map[string]float64{t.abs, t.rel} {
		for _, name := range slices.Sorted(maps.Keys(values)) {
			if name != "" && !slices.Contains(names, name) {
				return fmt.Errorf("unknown tensor %q in a tolerance; the tensors are %q", name, names)
			}
		}
	}
	return nil
}
