package linear_test

import (
	"math"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/patterns"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// lightning builds attention of two heads whose states decay at constant rates, in blocks of 4 tokens.
type lightning struct {
	*onnxtest.Builder
	typ     onnx.DataType
	rates   [2]float64
	q, k, v *onnx.Value // [batch, heads, tokens, channels]
	blocks  [][2]int64
	times   float64 // a factor of the decays of blocks, which are computed; 0: they are constants
}

func newLightning(typ onnx.DataType, tokens any) *lightning {
	b := onnxtest.New(18)
	in := func(name string, width int) *onnx.Value { return b.Input(name, typ, "b", 2, tokens, width) }
	return &lightning{b, typ, [2]float64{0.3, 0.05}, in("q", 6), in("k", 6), in("v", 5), [][2]int64{{0, 4}, {4, 7}}, 0}
}

// constant returns numbers rounded to the type.
func (l *lightning) constant(shape []int, list ...float64) *onnx.Value {
	t, err := reference.NewFloats(l.typ, shape, list).ToONNX("c")
	if err != nil {
		panic(err)
	}
	return l.Constant(t)
}

// factors returns a constant [heads, rows, columns].
func (l *lightning) factors(rows, columns int, steps func(i, j int) float64) *onnx.Value {
	var list []float64
	for _, rate := range l.rates {
		for i := range rows {
			for j := range columns {
				list = append(list, math.Exp(-rate*steps(i, j)))
			}
		}
	}
	return l.constant([]int{2, rows, columns}, list...)
}

func (l *lightning) turned(v *onnx.Value) *onnx.Value {
	return l.Op("Transpose", v, onnx.IntsAttr("perm", []int64{0, 1, 3, 2}))
}

func causal(i, j int) float64 {
	if j > i {
		return math.Inf(1)
	}
	return float64(i - j)
}

// block returns the rows of n tokens after a state, and the state after them.
func (l *lightning) block(q, k, v, state *onnx.Value, n int, mask func(i, j int) float64) (_, _ *onnx.Value) {
	scores := l.Op("Mul", l.Op("MatMul", q, l.turned(k)), l.factors(n, n, mask))
	within := l.Op("MatMul", scores, v)
	before := l.Op("MatMul", l.Op("Mul", q, l.factors(n, 1, func(i, _ int) float64 { return float64(i + 1) })), state)
	added := l.Op("Mul", k, l.factors(n, 1, func(i, _ int) float64 { return float64(n - 1 - i) }))
	decay := l.factors(1, 1, func(_, _ int) float64 { return float64(n) })
	if l.times > 0 {
		decay = l.Op("Exp", l.Op("Mul", l.constant([]int{2, 1, 1}, -l.rates[0], -l.rates[1]),
			l.constant([]int{}, float64(n)*l.times)))
	}
	decayed := l.Op("Mul", state, decay)
	return l.Op("Add", before, within), l.Op("Add", decayed, l.Op("MatMul", l.turned(added), v))
}

// zeros returns the state before the first token.
func (l *lightning) zeros() *onnx.Value {
	batch := l.Op("Slice", l.Op("Shape", l.q), l.Ints(0), l.Ints(1))
	return l.Op("Expand", l.constant([]int{}, 0), l.Op("Concat", batch, l.Ints(2, 6, 5), onnx.IntAttr("axis", 0)))
}

// sevenTokens writes the blocks of seven tokens.
func (l *lightning) sevenTokens(mask func(i, j int) float64) (rows, state *onnx.Value) {
	state = l.zeros()
	var all []any
	for _, x := range l.blocks {
		of := func(v *onnx.Value) *onnx.Value { return l.Op("Slice", v, l.Ints(x[0]), l.Ints(x[1]), l.Ints(2)) }
		var y *onnx.Value
		y, state = l.block(of(l.q), of(l.k), of(l.v), state, int(x[1]-x[0]), mask)
		all = append(all, y)
	}
	return l.Op("Concat", append(all, onnx.IntAttr("axis", 2))...), state
}

func TestConstantDecay(t *testing.T) {
	for _, c := range []struct {
		name    string
		tokens  any
		write   func(l *lightning) []*onnx.Value
		present bool
		found   bool
	}{
		{"two blocks", 7, func(l *lightning) []*onnx.Value {
			rows, state := l.sevenTokens(causal)
			return []*onnx.Value{l.Op("Transpose", rows, onnx.IntsAttr("perm", []int64{0, 2, 1, 3})), state}
		}, true, true},
		{"one block before a cast", 7, func(l *lightning) []*onnx.Value {
			rows, state := l.block(l.q, l.k, l.v, l.zeros(), 7, causal)
			return []*onnx.Value{l.Op("Cast", rows, onnx.IntAttr("to", int64(onnx.Float))), state}
		}, true, true},
		{"without the state", 7, func(l *lightning) []*onnx.Value {
			rows, _ := l.sevenTokens(causal)
			return []*onnx.Value{rows}
		}, false, true},
		{"a state that is read on", 7, func(l *lightning) []*onnx.Value {
			rows, state := l.sevenTokens(causal)
			return []*onnx.Value{rows, l.Op("Mul", state, 2.0)}
		}, true, true},
		{"no decay", "n", func(l *lightning) []*onnx.Value {
			scores := l.Op("Trilu", l.Op("MatMul", l.q, l.turned(l.k)), onnx.IntAttr("upper", 0))
			return []*onnx.Value{l.Op("MatMul", scores, l.v)}
		}, false, true},
		{"without the token itself", 7, func(l *lightning) []*onnx.Value {
			rows, _ := l.sevenTokens(func(i, j int) float64 { return causal(i, j+1) })
			return []*onnx.Value{rows}
		}, false, false},
		{"another decay within a block", 7, func(l *lightning) []*onnx.Value {
			rows, _ := l.sevenTokens(func(i, j int) float64 { return 2 * causal(i, j) })
			return []*onnx.Value{rows}
		}, false, false},
		{"a window", 7, func(l *lightning) []*onnx.Value {
			y, _ := l.block(l.q, l.k, l.v, l.zeros(), 7, func(i, j int) float64 {
				if i-j > 5 {
					return math.Inf(1)
				}
				return causal(i, j)
			})
			return []*onnx.Value{y}
		}, false, false},
		{"a softmax", 7, func(l *lightning) []*onnx.Value {
			scores := l.Op("Softmax", l.Op("MatMul", l.q, l.turned(l.k)))
			return []*onnx.Value{l.Op("MatMul", l.Op("Mul", scores, l.factors(7, 7, causal)), l.v)}
		}, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLightning(onnx.Float, c.tokens)
			for _, v := range c.write(l) {
				l.Output(v)
			}
			matches, _ := patterns.Builtin().Find(l.Model.Graph, infer.Analyze(l.Model))
			found := len(matches) == 1 && matches[0].Op == fused.LinearAttentionName
			if found != c.found {
				t.Fatalf("found %v, want %v: %v", found, c.found, matches)
			}
			if found && ((len(matches[0].Outputs) == 2) != c.present || matches[0].Outputs[0].Producer.Is("Cast")) {
				t.Errorf("writes %v", matches[0].Outputs)
			}
		})
	}
}

// TestRoundedRates reads rates from tables of half types, whose numbers are roundings of powers, and demands that
// tables which are no such roundings are refused.
func TestRoundedRates(t *testing.T) {
	for _, typ := range []onnx.DataType{onnx.Float16, onnx.BFloat16} {
		for name, c := range map[string]struct {
			mask  func(i, j int) float64
			fast  float64 // the rate of the first head
			found bool
		}{
			"powers":                       {causal, 0.3, true},
			"powers that become zero":      {causal, 6, true},
			"another decay within a block": {func(i, j int) float64 { return 2 * causal(i, j) }, 0.3, false},
			"a power that is a bit off": {func(i, j int) float64 {
				if i == 3 && j == 0 {
					return 3.1
				}
				return causal(i, j)
			}, 0.3, false},
			"a window": {func(i, j int) float64 {
				if i-j > 2 {
					return math.Inf(1)
				}
				return causal(i, j)
			}, 0.3, false},
		} {
			t.Run(typ.String()+" "+name, func(t *testing.T) {
				l := newLightning(typ, 7)
				l.rates[0] = c.fast
				rows, state := l.sevenTokens(c.mask)
				l.Output(rows)
				l.Output(state)
				matches, _ := patterns.Builtin().Find(l.Model.Graph, infer.Analyze(l.Model))
				var all *patterns.Match
				for _, m := range matches {
					if m.Op == fused.LinearAttentionName && m.Outputs[0] == rows {
						all = m
					}
				}
				if (all != nil) != c.found {
					t.Fatalf("found %v, want %v: %v", all != nil, c.found, matches)
				}
				if all == nil {
					return
				}
				if len(all.Intended) == 0 {
					t.Error("no constants are said to be roundings")
				}
				for i, got := range ratesOf(t, all) {
					if want := -l.rates[i]; math.Abs(got-want) > 0x1p-8*-want {
						t.Errorf("rate %v, want %v", got, want)
					}
				}
			})
		}
	}
}

// TestSlowRates finds attention whose powers all become 1 in a half type, so its states do not decay, and refuses it if
// one factor is less than 1.
func TestSlowRates(t *testing.T) {
	for _, typ := range []onnx.DataType{onnx.Float16, onnx.BFloat16} {
		for times, want := range map[float64]bool{1: true, 400: false} {
			l := newLightning(typ, 7)
			l.rates, l.blocks, l.times = [2]float64{1e-5, 4e-6}, [][2]int64{{0, 3}, {3, 6}, {6, 7}}, times
			rows, _ := l.sevenTokens(causal)
			l.Output(rows)
			matches, _ := patterns.Builtin().Find(l.Model.Graph, infer.Analyze(l.Model))
			found := false
			for _, m := range matches {
				found = found || m.Op == fused.LinearAttentionName && m.Outputs[0] == rows && ratesOf(t, m) == nil
			}
			if found != want {
				t.Errorf("%v, %g times: found %v", typ, times, found)
			}
		}
	}
}

// TestRatesOfLayers demands that layers of one form, with other rates, are told apart.
func TestRatesOfLayers(t *testing.T) {
	l := newLightning(onnx.Float, 7)
	l.v, _ = l.sevenTokens(causal)
	l.rates[1] = 0.2
	l.v, _ = l.sevenTokens(causal)
	l.Output(l.v)
	matches, _ := patterns.Builtin().Find(l.Model.Graph, infer.Analyze(l.Model))
	if len(matches) != 2 {
		t.Fatalf("%d matches, want 2", len(matches))
	}
	for i, want := range []float64{-0.05, -0.2} {
		if got := ratesOf(t, matches[i]); len(got) != 2 || math.Abs(got[1]-want) > 1e-6 {
			t.Errorf("layer %d: rates %v, want %v for the second head", i, got, want)
		}
	}
}

// ratesOf returns the constant of floats in a replacement.
func ratesOf(t *testing.T, m *patterns.Match) []float64 {
	t.Helper()
	for _, n := range m.Replacement.Nodes {
		if c := n.OutputValue(0).Constant(); c != nil && c.DataType == onnx.Float {
			x, err := reference.FromONNX(c)
			if err != nil {
				t.Fatal(err)
			}
			return x.F
		}
	}
	return nil
}

// TestConstantDecayOfSteps builds one token whose state decays at a constant rate, with states of half types too.
func TestConstantDecayOfSteps(t *testing.T) {
	for _, typ := range []onnx.DataType{onnx.Float, onnx.Float16, onnx.BFloat16} {
		for name, c := range map[string]struct {
			dims    []int64
			factors []float32
			rates   int // of the op; 0: the state decays before it
		}{
			"of each head":      {[]int64{2, 1, 1}, []float32{0.9, 0.5}, 2},
			"of all heads":      {[]int64{}, []float32{0.9}, 2},
			"of channels":       {[]int64{1, 1, 3, 1}, []float32{0.9, 0.5, 0.7}, 6},
			"of each value":     {[]int64{4}, []float32{0.9, 0.5, 0.7, 0.8}, 0},
			"that changes sign": {[]int64{2, 1, 1}, []float32{0.9, -0.5}, 0},
		} {
			t.Run(typ.String()+" "+name, func(t *testing.T) {
				b := onnxtest.New(18)
				state := b.Input("state", typ, "b", 2, 3, 4)
				in := func(name string, width int) *onnx.Value { return b.Input(name, typ, "b", 2, 1, width) }
				factor := b.Op("Cast", b.Floats(c.dims, c.factors...), onnx.IntAttr("to", int64(typ)))
				column := b.Op("Transpose", in("k", 3), onnx.IntsAttr("perm", []int64{0, 1, 3, 2}))
				next := b.Op("Add", b.Op("Mul", factor, state), b.Op("MatMul", column, in("v", 4)))
				b.Output(next)
				b.Output(b.Op("MatMul", in("q", 3), next))
				matches, _ := patterns.Builtin().Find(b.Model.Graph, infer.Analyze(b.Model))
				if len(matches) != 1 || matches[0].Op != fused.LinearAttentionName {
					t.Fatalf("found %v", matches)
				}
				if rates := ratesOf(t, matches[0]); len(rates) != c.rates {
					t.Errorf("rates %v, want %d", rates, c.rates)
				}
			})
		}
	}
}
