package attentions

import (
	"math"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
)

// Sizes are the sizes of a run: sequences, new queries, and keys before them. Scores is the magnitude of the scores; 0
// means 1.
type Sizes struct {
	Batch, Queries, Past int
	Scores               float64
}

// Lookalike is causal attention of two heads with a cache that differs from attention at some sizes or scores.
type Lookalike struct {
	Name string
	At   Sizes // sizes at which it differs
	// Open means that no op equals it: it must not be fused.
	Open  bool
	steps steps
}

// steps are the modified steps; nil for the usual ones.
type steps struct {
	keys    func(b *lookalike, v *onnx.Value) *onnx.Value
	scores  func(b *lookalike, s *onnx.Value) *onnx.Value // before the mask
	allowed func(b *lookalike, i, j *onnx.Value) *onnx.Value
	masked  func(b *lookalike, s, allowed *onnx.Value) *onnx.Value
	softmax func(b *lookalike, s *onnx.Value) *onnx.Value
	result  func(b *lookalike, y *onnx.Value) *onnx.Value
}

// lookalike builds the model of a Lookalike.
type lookalike struct {
	*onnxtest.Builder
	q, k, v *onnx.Value
	length  *onnx.Value // of the keys
	i, j    *onnx.Value // positions of queries, a column, and of keys, a row
	d       *onnx.Value // distance from a key to a later query
}

// Usual returns the attention that all Lookalikes equal at other sizes.
func Usual() *onnx.Model { return Lookalike{}.Model() }

// Model returns a new model.
func (l Lookalike) Model() *onnx.Model {
	b := &lookalike{Builder: onnxtest.New(18)}
	b.q = b.Input("q", onnx.Float, "batch", 2, "queries", 8)
	join := func(name string) *onnx.Value {
		fresh := b.Input(name, onnx.Float, "batch", 2, "queries", 8)
		v := b.Op("Concat", b.Input("past_"+name, onnx.Float, "batch", 2, "past", 8), fresh, onnx.IntAttr("axis", 2))
		b.Output(v)
		return v
	}
	b.k, b.v = join("k"), join("v")
	b.length = b.size(b.k, 2)
	b.i = b.Op("Unsqueeze", b.Op("Range", b.Op("Sub", b.length, b.size(b.q, 2)), b.length, 1), []int64{1})
	b.j = b.Op("Unsqueeze", b.Op("Range", 0, b.length, 1), []int64{0})
	b.d = b.Op("Sub", b.i, b.j)
	k, v := b.k, b.v
	if l.steps.keys != nil {
		k, v = l.steps.keys(b, k), l.steps.keys(b, v)
	}
	s := b.Op("MatMul", b.q, b.Op("Transpose", k, onnx.IntsAttr("perm", []int64{0, 1, 3, 2})))
	if l.steps.scores != nil {
		s = l.steps.scores(b, s)
	} else {
		s = b.Op("Mul", s, 0.35)
	}
	allowed := b.causal()
	if l.steps.allowed != nil {
		allowed = l.steps.allowed(b, b.i, b.j)
	}
	if l.steps.masked != nil {
		s = l.steps.masked(b, s, allowed)
	} else {
		s = b.Op("Where", allowed, s, lowestNumber)
	}
	p := (*onnx.Value)(nil)
	if l.steps.softmax != nil {
		p = l.steps.softmax(b, s)
	} else {
		p = b.Op("Softmax", s, onnx.IntAttr("axis", -1))
	}
	y := b.Op("MatMul", p, v)
	if l.steps.result != nil {
		y = l.steps.result(b, y)
	}
	b.Output(y)
	return b.Model
}

func (b *lookalike) size(v *onnx.Value, axis int) *onnx.Value {
	return b.Op("Gather", b.Op("Shape", v), axis)
}
func (b *lookalike) causal() *onnx.Value { return b.Op("LessOrEqual", b.j, b.i) }
func (b *lookalike) float(v *onnx.Value) *onnx.Value {
	return b.Op("Cast", v, onnx.IntAttr("to", int64(onnx.Float)))
}
func (b *lookalike) scaled(s *onnx.Value) *onnx.Value { return b.Op("Mul", s, 0.35) }
func (b *lookalike) unsigned(v *onnx.Value) *onnx.Value {
	return b.Op("Cast", v, onnx.IntAttr("to", int64(onnx.Uint64)))
}

// far is beyond the windows and the chunks of the Lookalikes.
var (
	far    = Sizes{Batch: 1, Queries: 2, Past: 10100}
	middle = Sizes{Batch: 1, Queries: 2, Past: 6100}
	many   = Sizes{Batch: 10, Queries: 3, Past: 2}
	great  = Sizes{Batch: 2, Queries: 3, Past: 4, Scores: 1e6}
	// infinite has an infinite score.
	infinite = Sizes{Batch: 2, Queries: 3, Past: 4, Scores: math.Inf(1)}
)

// within makes a window: causal, and limited to keys for which is holds.
func within(is func(b *lookalike) *onnx.Value) steps {
	return steps{allowed: func(b *lookalike, _, _ *onnx.Value) *onnx.Value { return b.Op("And", b.causal(), is(b)) }}
}

// alike makes chunks: causal, and limited to keys with the query's chunk number.
func alike(of func(b *lookalike, at *onnx.Value) *onnx.Value) steps {
	return steps{allowed: func(b *lookalike, i, j *onnx.Value) *onnx.Value {
		return b.Op("And", b.causal(), b.Op("Equal", of(b, i), of(b, j)))
	}}
}

// biased adds a bias to the scores.
func biased(of func(b *lookalike) *onnx.Value) steps {
	return steps{scores: func(b *lookalike, s *onnx.Value) *onnx.Value { return b.Op("Add", b.scaled(s), of(b)) }}
}

// scaledBy uses another scale.
func scaledBy(of func(b *lookalike) *onnx.Value) steps {
	return steps{scores: func(b *lookalike, s *onnx.Value) *onnx.Value { return b.Op("Mul", s, of(b)) }}
}

// changed changes scores.
func changed(of func(b *lookalike, s *onnx.Value) *onnx.Value) steps {
	return steps{scores: func(b *lookalike, s *onnx.Value) *onnx.Value { return of(b, b.scaled(s)) }}
}

// hiding masks keys in another way.
func hiding(of func(b *lookalike, s, allowed *onnx.Value) *onnx.Value) steps {
	return steps{masked: of}
}

// weighing computes the weights in another way.
func weighing(of func(b *lookalike, s *onnx.Value) *onnx.Value) steps { return steps{softmax: of} }

// Lookalikes returns all Lookalikes.
func Lookalikes() []Lookalike { return lookalikes }

var lookalikes = []Lookalike{
	// windows
	{"a window of half a number", middle, false, within(func(b *lookalike) *onnx.Value {
		return b.Op("Less", b.float(b.d), 4095.5)
	})},
	{"a window of a product", middle, false, within(func(b *lookalike) *onnx.Value {
		return b.Op("Less", b.d, b.Op("Mul", 64, 64))
	})},
	{"a window of a power", middle, false, within(func(b *lookalike) *onnx.Value {
		return b.Op("Less", b.float(b.d), b.Op("Pow", 2.0, 12.0))
	})},
	{"a window of a reciprocal", middle, false, within(func(b *lookalike) *onnx.Value {
		return b.Op("Less", b.Op("Mul", b.float(b.d), 1.0/4096), 1.0)
	})},
	{"a window of a quotient", middle, false, within(func(b *lookalike) *onnx.Value {
		return b.Op("Equal", b.Op("Div", b.d, 4096), 0)
	})},
	{"a window of a rounded quotient", middle, false, within(func(b *lookalike) *onnx.Value {
		return b.Op("Equal", b.Op("Floor", b.Op("Div", b.float(b.d), 5000.0)), 0.0)
	})},
	{"a window that is subtracted", middle, false, within(func(b *lookalike) *onnx.Value {
		return b.Op("Less", b.Op("Sub", b.d, 4096), 0)
	})},
	{"a window by a minimum", middle, false, within(func(b *lookalike) *onnx.Value {
		return b.Op("Not", b.Op("Equal", b.Op("Min", b.d, 4096), 4096))
	})},
	{"a window of a vector", middle, false, within(func(b *lookalike) *onnx.Value {
		return b.Op("Not", b.Op("GreaterOrEqual", b.d, []int64{4096}))
	})},
	{"a window for each head", middle, false, within(func(b *lookalike) *onnx.Value {
		return b.Op("Less", b.float(b.d), b.Floats([]int64{2, 1, 1}, 4096, 1<<23))
	})},
	{"a window of bits", middle, false, within(func(b *lookalike) *onnx.Value {
		d := b.unsigned(b.Op("Abs", b.d))
		twelve := b.unsigned(b.Op("Mul", 12, 1))
		return b.Op("Equal", b.Op("Cast", b.Op("BitShift", d, twelve, onnx.StringAttr("direction", "RIGHT")),
			onnx.IntAttr("to", int64(onnx.Int64))), 0)
	})},
	{"a window by a root", middle, false, within(func(b *lookalike) *onnx.Value {
		return b.Op("Less", b.Op("Sqrt", b.float(b.Op("Abs", b.d))), 64.0)
	})},
	{"a window of squares", middle, false, within(func(b *lookalike) *onnx.Value {
		return b.Op("Less", b.Op("Mul", b.d, b.d), 4096*4096)
	})},
	{"a window by a decay", middle, false, within(func(b *lookalike) *onnx.Value {
		return b.Op("Greater", b.Op("Exp", b.Op("Mul", b.float(b.d), -0.001)), 0.0067379)
	})},
	{"a window by a logarithm", middle, false, within(func(b *lookalike) *onnx.Value {
		return b.Op("Less", b.Op("Log", b.float(b.Op("Add", b.Op("Abs", b.d), 1))), 8.5)
	})},
	{"a window of a table", middle, false, within(func(b *lookalike) *onnx.Value {
		list := make([]int64, 12000)
		for i := range list {
			list[i] = int64(i / 5000)
		}
		return b.Op("Equal", b.Op("Gather", list, b.Op("Clip", b.d, 0, 11999)), 0)
	})},
	{"a window by the excess over a bound", middle, false, within(func(b *lookalike) *onnx.Value {
		return b.Op("Equal", b.Op("Relu", b.Op("Sub", b.float(b.d), 5000.0)), 0.0)
	})},
	{"a window by a magnitude", middle, false, within(func(b *lookalike) *onnx.Value {
		return b.Op("LessOrEqual", b.Op("Abs", b.d), 3000)
	})},
	{"a window from the start", middle, false, within(func(b *lookalike) *onnx.Value {
		return b.Op("GreaterOrEqual", b.j, b.Op("Max", b.Op("Sub", b.i, 2999), 0))
	})},
	{"a window that is added to keys", middle, false, within(func(b *lookalike) *onnx.Value {
		return b.Op("Greater", b.Op("Add", b.j, 5000), b.i)
	})},
	{"a window of float16", middle, false, within(func(b *lookalike) *onnx.Value {
		half := onnx.IntAttr("to", int64(onnx.Float16))
		d := b.Op("Cast", b.d, half)
		return b.Op("Less", d, b.Op("Cast", b.Op("Mul", 2048.0, 1.0), half))
	})},
	{"a window with the first keys", middle, false, within(func(b *lookalike) *onnx.Value {
		return b.Op("Or", b.Op("Less", b.j, 4), b.Op("Less", b.d, 4096))
	})},
	{"a window of late queries", middle, false, within(func(b *lookalike) *onnx.Value {
		return b.Op("Or", b.Op("Less", b.i, 5000), b.Op("GreaterOrEqual", b.j, 1000))
	})},
	{"late keys are hidden", middle, false, within(func(b *lookalike) *onnx.Value {
		return b.Op("Or", b.Op("Less", b.j, b.Op("Min", b.length, 5000)), b.Op("Equal", b.d, 0))
	})},
	{"every other key far out", middle, false, within(func(b *lookalike) *onnx.Value {
		return b.Op("Or", b.Op("Less", b.d, 3000), b.Op("Equal", b.Op("Mod", b.d, 2), 0))
	})},
	{"late queries see all", Sizes{Batch: 1, Queries: 3, Past: 6100}, false,
		steps{allowed: func(b *lookalike, i, _ *onnx.Value) *onnx.Value {
			return b.Op("Or", b.causal(), b.Op("Greater", i, 5000))
		}}},

	// chunks
	{"chunks of a half", far, false, alike(func(b *lookalike, at *onnx.Value) *onnx.Value {
		return b.Op("Floor", b.Op("Div", b.float(at), 8192.5))
	})},
	{"chunks of a reciprocal", far, false, alike(func(b *lookalike, at *onnx.Value) *onnx.Value {
		return b.Op("Floor", b.Op("Mul", b.float(at), 1.0/8192))
	})},
	{"chunks of a remainder", far, false, alike(func(b *lookalike, at *onnx.Value) *onnx.Value {
		return b.Op("Sub", at, b.Op("Mod", at, 8192))
	})},
	{"chunks of a quotient", far, false,
		alike(func(b *lookalike, at *onnx.Value) *onnx.Value { return b.Op("Div", at, 10000) })},
	{"chunks of bits", far, false, alike(func(b *lookalike, at *onnx.Value) *onnx.Value {
		thirteen := b.unsigned(b.Op("Mul", 13, 1))
		return b.Op("Cast", b.Op("BitShift", b.unsigned(at), thirteen, onnx.StringAttr("direction", "RIGHT")),
			onnx.IntAttr("to", int64(onnx.Int64)))
	})},
	{"chunks by rounding", far, false, alike(func(b *lookalike, at *onnx.Value) *onnx.Value {
		return b.Op("Round", b.Op("Div", b.float(at), 15000.0))
	})},
	{"chunks by a ceiling", far, false, alike(func(b *lookalike, at *onnx.Value) *onnx.Value {
		return b.Op("Ceil", b.Op("Div", b.Op("Add", b.float(at), 1.0), 9000.0))
	})},
	{"chunks of each head", far, false, alike(func(b *lookalike, at *onnx.Value) *onnx.Value {
		return b.Op("Floor", b.Op("Div", b.float(at), b.Floats([]int64{2, 1, 1}, 8192, 1<<22)))
	})},
	{"chunks by a comparison", far, false, alike(func(b *lookalike, at *onnx.Value) *onnx.Value {
		return b.Op("Cast", b.Op("Greater", at, 9000), onnx.IntAttr("to", int64(onnx.Int64)))
	})},

	// biases
	{"a decay that ends far out", middle, false, biased(func(b *lookalike) *onnx.Value {
		return b.Op("Neg", b.Op("Exp", b.Op("Min", b.Op("Sub", b.float(b.d), 5000.5), 10.5)))
	})},
	{"a slope that begins far out", middle, false, biased(func(b *lookalike) *onnx.Value {
		return b.Op("Mul", b.Op("Relu", b.Op("Sub", b.float(b.d), 5000.0)), -0.1)
	})},
	{"a slope by a maximum", middle, false, biased(func(b *lookalike) *onnx.Value {
		return b.Op("Neg", b.Op("Max", b.Op("Sub", b.Op("Div", b.float(b.d), 1000.0), 5.0), 0.0))
	})},
	{"a bias of a table", middle, false, biased(func(b *lookalike) *onnx.Value {
		list := make([]float32, 12000)
		for i := 5000; i < len(list); i++ {
			list[i] = -float32(i%7) / 2
		}
		return b.Op("Gather", b.Floats([]int64{12000}, list...), b.Op("Clip", b.d, 0, 11999))
	})},
	{"a bias of late queries", middle, false, biased(func(b *lookalike) *onnx.Value {
		return b.Op("Where", b.Op("Greater", b.i, 5000), b.Op("Mul", b.float(b.j), 0.001), 0.0)
	})},
	{"a step far out", middle, false, biased(func(b *lookalike) *onnx.Value {
		return b.Op("Where", b.Op("Greater", b.d, 5000), -2.0, 0.0)
	})},
	{"a step far out, for one head", middle, false, biased(func(b *lookalike) *onnx.Value {
		return b.Op("Mul", b.Op("Where", b.Op("Greater", b.d, 5000), -2.0, 0.0), b.Floats([]int64{2, 1, 1}, 0, 1))
	})},
	{"a bias of late sequences", many, false, biased(func(b *lookalike) *onnx.Value {
		n := b.Op("Range", 0, b.size(b.q, 0), 1)
		late := b.Op("Unsqueeze", b.Op("Relu", b.Op("Sub", b.float(n), 7.0)), []int64{1, 2, 3})
		return b.Op("Mul", late, b.float(b.j))
	})},

	// dependent on sizes
	{"not causal at one length", Sizes{Batch: 2, Queries: 23, Past: 0}, false,
		steps{allowed: func(b *lookalike, _, _ *onnx.Value) *onnx.Value {
			return b.Op("Or", b.causal(), b.Op("Equal", b.length, 23))
		}}},
	{"not causal for long sequences", Sizes{Batch: 1, Queries: 3, Past: 6100}, false,
		steps{allowed: func(b *lookalike, _, _ *onnx.Value) *onnx.Value {
			return b.Op("Or", b.causal(), b.Op("Greater", b.length, 6000))
		}}},
	{"not causal for one sequence", many, false, steps{allowed: func(b *lookalike, _, _ *onnx.Value) *onnx.Value {
		n := b.Op("Unsqueeze", b.Op("Range", 0, b.size(b.q, 0), 1), []int64{1, 2, 3})
		return b.Op("Or", b.causal(), b.Op("Equal", n, 7))
	}}},
	{"not causal for many sequences", many, false, steps{allowed: func(b *lookalike, _, _ *onnx.Value) *onnx.Value {
		return b.Op("Or", b.causal(), b.Op("Greater", b.size(b.q, 0), 8))
	}}},
	{"a scale by the logarithm of the length", middle, false, scaledBy(func(b *lookalike) *onnx.Value {
		return b.Op("Mul", b.Op("Max", b.Op("Div", b.Op("Log", b.float(b.length)), 7.624619), 1.0), 0.35)
	})},
	{"a scale of long sequences", middle, false, scaledBy(func(b *lookalike) *onnx.Value {
		return b.Op("Where", b.Op("Greater", b.length, 4096), 0.5, 0.35)
	})},
	{"a scale of many sequences", many, false, scaledBy(func(b *lookalike) *onnx.Value {
		return b.Op("Where", b.Op("Greater", b.size(b.q, 0), 8), 0.5, 0.35)
	})},
	{"a scale of late queries", far, false, scaledBy(func(b *lookalike) *onnx.Value {
		late := b.Op("Floor", b.Op("Div", b.Op("Add", b.float(b.i), 1.0), 8192.0))
		return b.Op("Mul", b.Op("Add", b.Op("Mul", b.Op("Log", b.Op("Add", late, 1.0)), 0.5), 1.0), 0.35)
	})},
	{"a divisor of long sequences", middle, false, changed(func(b *lookalike, s *onnx.Value) *onnx.Value {
		return b.Op("Div", s, b.Op("Clip", b.Op("Div", b.float(b.length), 4096.0), 1.0, 2.0))
	})},
	{"a scale of late keys", middle, true, scaledBy(func(b *lookalike) *onnx.Value {
		return b.Op("Where", b.Op("Greater", b.j, 5000), 0.5, 0.35)
	})},
	{"a cap of long sequences", Sizes{Batch: 1, Queries: 2, Past: 6100, Scores: 30}, true,
		changed(func(b *lookalike, s *onnx.Value) *onnx.Value {
			cap := b.Op("Where", b.Op("Greater", b.length, 4096), 2.0, 1e9)
			return b.Op("Mul", b.Op("Tanh", b.Op("Div", s, cap)), cap)
		})},
	{"keys and values of a window", middle, false, steps{keys: func(b *lookalike, v *onnx.Value) *onnx.Value {
		return b.Op("Mul", v, b.Op("Where", b.Op("Greater", b.length, 4096), 2.0, 1.0))
	}}},
	{"the last key again and again", middle, false, steps{keys: func(b *lookalike, v *onnx.Value) *onnx.Value {
		at := b.Op("Min", b.Op("Range", 0, b.length, 1), 5000)
		return b.Op("Gather", v, at, onnx.IntAttr("axis", 2))
	}}},
	{"a result of long sequences", middle, false, steps{result: func(b *lookalike, y *onnx.Value) *onnx.Value {
		return b.Op("Mul", y, b.Op("Where", b.Op("Greater", b.length, 4096), 2.0, 1.0))
	}}},
	{"a triangle that moves", Sizes{Batch: 1, Queries: 3, Past: 6100}, false,
		steps{allowed: func(b *lookalike, _, _ *onnx.Value) *onnx.Value {
			more := b.Op("Max", b.Op("Sub", b.length, 5000), 0)
			return b.Op("LessOrEqual", b.j, b.Op("Add", b.i, more))
		}}},
	{"weights of long sequences", middle, true, weighing(func(b *lookalike, s *onnx.Value) *onnx.Value {
		p := b.Op("Softmax", s, onnx.IntAttr("axis", -1))
		return b.Op("Mul", p, b.Op("Where", b.Op("Greater", b.length, 4096), 2.0, 1.0))
	})},

	// values
	{"scores are clipped", great, true, changed(func(b *lookalike, s *onnx.Value) *onnx.Value {
		return b.Op("Clip", s, -50000.0, 50000.0)
	})},
	{"scores have a greatest one", great, true,
		changed(func(b *lookalike, s *onnx.Value) *onnx.Value { return b.Op("Min", s, 1e5) })},
	{"scores have a least one", great, true,
		changed(func(b *lookalike, s *onnx.Value) *onnx.Value { return b.Op("Max", s, -1e5) })},
	{"great scores are bounded", great, true, changed(func(b *lookalike, s *onnx.Value) *onnx.Value {
		return b.Op("Where", b.Op("Greater", s, 1e4), 1e4, s)
	})},
	{"some scores are zeroed", Sizes{Batch: 2, Queries: 3, Past: 9, Scores: 150}, true,
		changed(func(b *lookalike, s *onnx.Value) *onnx.Value {
			return b.Op("Where", b.Op("And", b.Op("Greater", s, 100.0), b.Op("Less", s, 200.0)), 0.0, s)
		})},
	{"scores bend far out", great, true, changed(func(b *lookalike, s *onnx.Value) *onnx.Value {
		return b.Op("Sub", s, b.Op("Mul", b.Op("Pow", s, 3.0), 1e-16))
	})},
	{"scores have a far cap", great, false, changed(func(b *lookalike, s *onnx.Value) *onnx.Value {
		return b.Op("Mul", b.Op("Tanh", b.Op("Div", s, 1e5)), 1e5)
	})},
	{"scores are rounded", Sizes{Batch: 2, Queries: 3, Past: 4, Scores: 1e-6}, true,
		changed(func(b *lookalike, s *onnx.Value) *onnx.Value {
			return b.Op("Div", b.Op("Round", b.Op("Mul", s, 1048576.0)), 1048576.0)
		})},
	{"scores leak far out", great, true, changed(func(b *lookalike, s *onnx.Value) *onnx.Value {
		return b.Op("Sub", b.Op("LeakyRelu", b.Op("Add", s, 1e5), onnx.FloatAttr("alpha", 0.5)), 1e5)
	})},
	{"less the greatest of all, clipped", great, true, changed(func(b *lookalike, s *onnx.Value) *onnx.Value {
		s = b.Op("Sub", s, b.Op("ReduceMax", s, onnx.IntAttr("keepdims", 0)))
		return b.Op("Clip", s, -50000.0, 50000.0)
	})},
	{"hidden by -10000", great, true, hiding(func(b *lookalike, s, allowed *onnx.Value) *onnx.Value {
		return b.Op("Where", allowed, s, -1e4)
	})},
	{"hidden by -1000000", Sizes{Batch: 2, Queries: 3, Past: 4, Scores: 1e7}, true,
		hiding(func(b *lookalike, s, allowed *onnx.Value) *onnx.Value {
			return b.Op("Where", allowed, s, -1e6)
		})},
	{"-10000 is added", great, false, hiding(func(b *lookalike, s, allowed *onnx.Value) *onnx.Value {
		return b.Op("Add", s, b.Op("Where", allowed, 0.0, -1e4))
	})},
	{"multiplied, and -10000 added", great, true, hiding(func(b *lookalike, s, allowed *onnx.Value) *onnx.Value {
		m := b.float(allowed)
		return b.Op("Sub", b.Op("Mul", s, m), b.Op("Mul", b.Op("Sub", 1.0, m), 1e4))
	})},
	{"small weights are zeroed", Sizes{Batch: 2, Queries: 3, Past: 9, Scores: 20}, true,
		weighing(func(b *lookalike, s *onnx.Value) *onnx.Value {
			p := b.Op("Softmax", s, onnx.IntAttr("axis", -1))
			return b.Op("Where", b.Op("Less", p, 1e-4), 0.0, p)
		})},
	{"great weights are less", Sizes{Batch: 2, Queries: 3, Past: 9, Scores: 40}, true,
		weighing(func(b *lookalike, s *onnx.Value) *onnx.Value {
			return b.Op("Min", b.Op("Softmax", s, onnx.IntAttr("axis", -1)), 0.9375)
		})},
	{"weights are dropped", Sizes{Batch: 2, Queries: 3, Past: 9}, true,
		weighing(func(b *lookalike, s *onnx.Value) *onnx.Value {
			t := onnx.NewInt64s("train", []int64{1})
			t.Dims = []int64{}
			train := b.Op("Cast", b.Constant(t), onnx.IntAttr("to", int64(onnx.Bool)))
			return b.Op("Dropout", b.Op("Softmax", s, onnx.IntAttr("axis", -1)), 0.5, train)
		})},
	{"noise is added", Sizes{Batch: 2, Queries: 3, Past: 9}, true,
		changed(func(b *lookalike, s *onnx.Value) *onnx.Value {
			return b.Op("Add", s, b.Op("RandomNormalLike", s))
		})},
	{"NaN scores are zeroed", infinite, true, changed(func(b *lookalike, s *onnx.Value) *onnx.Value {
		return b.Op("Where", b.Op("IsNaN", s), 0.0, s)
	})},
	{"infinite scores are replaced", infinite, true, changed(func(b *lookalike, s *onnx.Value) *onnx.Value {
		return b.Op("Where", b.Op("IsInf", s), -1e4, s)
	})},
	{"scores of 0 are hidden", Sizes{Batch: 2, Queries: 3, Past: 4, Scores: 1e-50}, true,
		changed(func(b *lookalike, s *onnx.Value) *onnx.Value {
			return b.Op("Where", b.Op("Equal", s, 0.0), minusInfinity, s)
		})},
	{"no number is put in its place", infinite, false,
		steps{result: func(b *lookalike, y *onnx.Value) *onnx.Value {
			return b.Op("Where", b.Op("IsNaN", y), 0.0, y)
		}}},
}
