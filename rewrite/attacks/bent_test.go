package attacks_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// The tables of this file bend correct blocks: each tensor, number and mask in every listed way. A bent value is
// unchanged for usual numbers and sizes, and different far out.

// bends change elements v of a tensor beyond 5,000.
var bends = []string{
	"(Where (Greater v 5000) (Where (Less v 6000000) 0 v) v)",
	"(Sub v (Relu (Sub v 5000)))",
	"(Mul v (Sub 1 (Clip (Floor (Div v 5000)) 0 1)))",
	"(Sub v (ThresholdedRelu:alpha=5000.0 v))",
	"(Sub v (Shrink:lambd=5000.0:bias=5000.0 v))",
	"(Mul v (HardSigmoid:alpha=-1.0:beta=5001.0 v))",
	"(Where (Greater (Div (int32 v) (int32 5000)) (int32 0)) 0 v)",
	"(Min v (Exp 8.52))",
	"(Clip v -1e9 (float (Mul 50i 100i)))",
	"(Mul v (Sub 1 (Relu (Sign (Sub v 5000)))))",
	"(Where (Not (LessOrEqual (int64 v) 5000i)) 5000 v)",
	"(Mul v (Sub 1 (Clip (Round (Mul v 0.0001)) 0 1)))",
	"(Neg (Max (Neg v) -5000))",
	"(Mul v (Sub 1 (Relu (Tanh (Sub v 5000)))))",
	"(Mul v (Sigmoid (Sub 5000 v)))",
	"(Sub v (Softplus (Sub v 5000)))",
	"(Mul v (Sub 1 (Min (Pow (Div v 5000) 64) 1)))",
	"(Mul v (Gather (Concat:axis=0 (Unsqueeze 1 (Range 0i 1i 1i)) (Unsqueeze 0 (Range 0i 1i 1i))) " +
		"(Clip (int64 (Div v 5000)) 0i 1i)))",
	"(Where (IsInf (Mul v 1e35)) 0 v)",
	"(Mul v (Exp (Neg (Relu (Sub v 5000)))))",
	"(Mul v (Sub 1 (Clip (Mod:fmod=1 (Max (Sub v 5000) 0) 11) 0 1)))",
	"(Where (Xor (Greater v 5000) (Greater v 6000000)) 1 v)",
	"(Where (And (Greater v 5000) (Less v 12000)) 0 v)",
}

// sizeBends change a number x if an axis has length n = 2,100.
var sizeBends = []string{
	"(Mul x (Pow (Max 1 (Div (Log (float n)) 7.3)) 40))",
	"(Add x (Clip (Sub (float n) 2048) 0 1))",
	"(Mul x (float (Clip (Sub n 2048i) 1i 2i)))",
	"(Where (Not (LessOrEqual n 1024i)) (Where (Less n 3000i) (Add x 1) x) x)",
	"(Where (Greater (int32 n) (int32 (Mul 32i 64i))) (Add x 1) x)",
	"(Add x (float (BitShift:direction=RIGHT (uint64 n) (uint64 11i))))",
	"(Add x (Floor (Mul (float n) 0.00048816)))",
	"(Where (Equal n 2100i) (Add x 1) x)",
	"(Where (Greater (ReduceMax:keepdims=0 (Range 0i n 1i)) 2047i) (Add x 1) x)",
	"(Add x (Abs (Sub (float (Add n 1i)) (float (float16 (Add n 1i))))))",
	"(Add x (Min (Abs (float (Sub n (int64 (int8 (Min n 2100i)))))) (float (Div n 2048i))))",
	"(Add x (Relu (Tanh (Sub (float n) 2048))))",
	"(Add x (Pow (Div (float n) 2100) 99))",
	"(Add x (Min (ReduceSum:keepdims=0 (float (Greater (Range 0i n 1i) 2050i))) 1))",
	"(Add x (float (And (Less 2048i n) (Less n 4096i))))",
	"(Add x (float (Equal (Mod n 2100i) 0i)))",
	"(Add x (Relu (Sign (Sub (Sqrt (float n)) 45.5))))",
	"(Div x (Max (Sub (float n) 2090) 1))",
}

// masks are narrower than a causal mask for 64 positions, i of queries and j of keys, and equal to it for few
// positions.
var masks = []string{
	"(Less (float (Sub i j)) 37.5)",
	"(Less (Floor (Div (float (Sub i j)) 36.5)) 1)",
	"(Equal (Div i 37i) (Div j 37i))",
	"(Equal (int64 (Mul (float i) 0.0266667)) (int64 (Mul (float j) 0.0266667)))",
	"(Equal (int64 (BitShift:direction=RIGHT (uint64 i) (uint64 5i))) " +
		"(int64 (BitShift:direction=RIGHT (uint64 j) (uint64 5i))))",
	"(Less (Sub i j) (Add (Mul 6i 6i) 1i))",
	"(Less (int32 (Sub i j)) (int32 37i))",
	"(LessOrEqual (float (Sub i j)) (Pow 2 5))",
	"(Not (Equal (Clip (Sub i j) 0i 37i) 37i))",
	"(Less (Mod (Sub i j) 64i) 37i)",
	"(Not (Or (Equal (Sub i j) 45i) (And (Greater (Sub i j) 30i) (Less (Sub i j) 40i))))",
	"(Or (Less i 37i) (Greater j 3i))",
	"(Or (Less n 40i) (Greater j 0i))",
	"(Less (Sub i j) (Max (Sub 90i n) 37i))",
	"(Less (Mul (Sub i j) (Sub i j)) 1400i)",
	"(Less (Mul i j) 2000i)",
	"(Greater (Exp (Neg (float (Sub i j)))) 1e-16)",
	"(Less (float16 (Sub i j)) (float16 37))",
	"(GreaterOrEqual (int32 (int8 (Mul (Sub i j) 4i))) (int32 0i))",
	"(Less (Abs (Sub i j)) (int64 (Ceil (Sqrt 1300))))",
	"(Not (And (GreaterOrEqual i 40i) (Less j 8i)))",
	"(Less (Sub i j) (Where (Greater n 50i) 37i n))",
}

var types = map[string]onnx.DataType{"float": onnx.Float, "float16": onnx.Float16, "int8": onnx.Int8,
	"int32": onnx.Int32, "int64": onnx.Int64, "uint64": onnx.Uint64}

// write adds the nodes of an expression: ops with attributes after colons, types to cast to, names of values, and
// numbers (integers end in i).
func (b *maker) write(text string, values map[string]*onnx.Value) *onnx.Value {
	words := strings.Fields(strings.NewReplacer("(", " ( ", ")", " ) ").Replace(text))
	var read func() *onnx.Value
	read = func() *onnx.Value {
		word := words[0]
		words = words[1:]
		if whole, ok := strings.CutSuffix(word, "i"); ok && whole != "" {
			n, _ := strconv.ParseInt(whole, 10, 64)
			return b.Op("Squeeze", b.Ints(n))
		}
		if x, err := strconv.ParseFloat(word, 64); err == nil {
			return b.number(x)
		}
		if word != "(" {
			return values[word]
		}
		op := strings.Split(words[0], ":")
		words = words[1:]
		var in []any
		for words[0] != ")" {
			in = append(in, read())
		}
		words = words[1:]
		if t, ok := types[op[0]]; ok {
			return b.cast(in[0].(*onnx.Value), t)
		}
		for _, a := range op[1:] {
			name, value, _ := strings.Cut(a, "=")
			if n, err := strconv.ParseInt(value, 10, 64); err == nil {
				in = append(in, onnx.IntAttr(name, n))
			} else if x, err := strconv.ParseFloat(value, 32); err == nil {
				in = append(in, onnx.FloatAttr(name, float32(x)))
			} else {
				in = append(in, onnx.StringAttr(name, value))
			}
		}
		return b.Op(op[0], in...)
	}
	return read()
}

// bent is a block bent at one of its places.
type bent struct {
	*maker
	place, at int // the bent place, and the next one
	by        string
}

// tensor marks a place with a tensor.
func (b *bent) tensor(v *onnx.Value) *onnx.Value {
	if b.at++; b.at-1 == b.place && b.twisted {
		return b.write(b.by, map[string]*onnx.Value{"v": v})
	}
	return v
}

// numberOf marks a place with a number.
func (b *bent) numberOf(v *onnx.Value, axis int, x float64) *onnx.Value {
	if b.at++; b.at-1 == b.place && b.twisted {
		return b.write(b.by, map[string]*onnx.Value{"n": b.size(v, axis), "x": b.number(x)})
	}
	return b.number(x)
}

// attend writes attention with places for its scores, scale and mask.
func (b *bent) attend() {
	q, k, v := b.heads("q"), b.heads("k"), b.heads("v")
	s := b.Op("MatMul", q, b.Op("Transpose", k, onnx.IntsAttr("perm", []int64{0, 1, 3, 2})))
	s = b.Op("Mul", b.tensor(s), b.numberOf(q, 2, 0.35))
	n := b.size(q, 2)
	places := b.Op("Range", 0, n, 1)
	i, j := b.Op("Unsqueeze", places, []int64{1}), b.Op("Unsqueeze", places, []int64{0})
	seen := b.Op("LessOrEqual", j, i)
	if b.place == 2 && b.twisted {
		seen = b.Op("And", seen, b.write(b.by, map[string]*onnx.Value{"i": i, "j": j, "n": n}))
	}
	s = b.Op("Where", seen, s, b.number(-3e38))
	b.Output(b.Op("MatMul", b.Op("Softmax", s, last()), v))
}

func (b *bent) mixture(gate, up func(*onnx.Value) *onnx.Value) {
	x := b.input("x", "seq", width)
	w, ids := b.router(x, 8, []int64{2})
	b.Output(b.experts(x, w, ids, func(g, u *onnx.Value) *onnx.Value {
		return b.Op("Mul", b.silu(gate(g), b.number(1)), up(u))
	}))
}

func (b *maker) heads(name string) *onnx.Value { return b.input(name, "batch", 2, "seq", 8) }

// bentBlocks are blocks with places, and inputs that exceed 5,000 at the places of tensors.
var bentBlocks = []struct {
	name   string
	places int
	sizes  bool // the places have numbers
	write  func(b *bent)
	at     map[string]func(int) float64
}{
	{"gate", 3, false, func(b *bent) {
		a := b.tensor(b.silu(b.tensor(b.rows("g")), b.number(1)))
		b.Output(b.Op("Mul", a, b.tensor(b.rows("u"))))
	}, map[string]func(int) float64{"g": filled(5500, 1, -2, 8000), "u": filled(5700, 2, 0.5)}},
	{"norm", 1, false, func(b *bent) { b.Output(b.norm(b.tensor(b.rows("x")), b.number(1e-6))) }, nil},
	{"square norm", 1, false, func(b *bent) { b.Output(b.squareNorm(b.tensor(b.rows("x")))) }, nil},
	{"rotation", 2, false, func(b *bent) {
		x := b.heads("x")
		cos, sin := b.angles(b.size(x, 2), 4)
		b.Output(b.tensor(b.rotate(b.tensor(x), cos, sin, 8)))
	}, nil},
	{"router", 1, false, func(b *bent) {
		x := b.input("x", "seq", width)
		s := b.Op("Softmax", b.tensor(b.Op("MatMul", x, b.weight(width, 8))), last())
		top := b.Ops(2, "TopK", s, []int64{2}, last())
		b.Output(b.experts(x, top[0], top[1], b.swiglu))
	}, nil},
	{"experts", 2, false, func(b *bent) { b.mixture(b.tensor, b.tensor) }, nil},
	{"layer norm", 2, false, func(b *bent) {
		x := b.tensor(b.rows("x"))
		d := b.tensor(b.Op("Sub", x, b.Op("ReduceMean", x, []int64{-1}, onnx.IntAttr("keepdims", 1))))
		b.Output(b.Op("Add", b.norm(d, b.number(1e-5)), b.weight(width)))
	}, nil},
	{"gated norm", 2, false, func(b *bent) {
		b.Output(b.Op("Mul", b.norm(b.rows("x"), b.number(1e-6)), b.tensor(b.silu(b.tensor(b.rows("g")), b.number(1)))))
	}, map[string]func(int) float64{"g": filled(5500, 1, -2, 8000)}},
	{"sum and norm", 2, false, func(b *bent) {
		s := b.tensor(b.Op("Add", b.tensor(b.rows("x")), b.rows("x2")))
		b.Output(s)
		b.Output(b.norm(s, b.number(1e-6)))
	}, nil},
	{"values", 1, false, func(b *bent) {
		s := b.Op("MatMul", b.heads("q"), b.Op("Transpose", b.heads("k"), onnx.IntsAttr("perm", []int64{0, 1, 3, 2})))
		b.Output(b.tensor(b.Op("MatMul", b.Op("Softmax", b.Op("Mul", s, b.number(0.35)), last()), b.heads("x"))))
	}, nil},
	{"sigmoids", 1, false, func(b *bent) {
		x := b.input("x", "seq", width)
		s := b.Op("Sigmoid", b.tensor(b.Op("MatMul", x, b.weight(width, 8))))
		ids := b.Ops(2, "TopK", b.Op("Add", s, b.weight(8)), []int64{2}, last())[1]
		w := b.Op("GatherElements", s, ids, last())
		b.Output(b.experts(x, b.Op("Div", w, b.Op("ReduceSum", w, []int64{-1})), ids, b.swiglu))
	}, nil},
	{"attention", 1, false, (*bent).attend,
		map[string]func(int) float64{"q": filled(90, 80, 50, -70, 30), "k": filled(70, 60, -50, 80, 81, 9)}},
	{"norm", 1, true, func(b *bent) { x := b.rows("x"); b.Output(b.norm(x, b.numberOf(x, 1, 0.125))) }, nil},
	{"square norm", 1, true, func(b *bent) {
		x := b.rows("x")
		mean := b.Op("Div", b.Op("ReduceSumSquare", x, []int64{-1}), b.number(width))
		root := b.Op("Pow", b.Op("Add", mean, b.numberOf(x, 1, 0.125)), b.number(-0.5))
		b.Output(b.Op("Mul", b.Op("Mul", x, root), b.weight(width)))
	}, nil},
	{"gate", 2, true, func(b *bent) {
		g, u := b.rows("g"), b.rows("u")
		b.Output(b.Op("Mul", b.silu(g, b.numberOf(g, 1, 1.5)), b.Op("Add", u, b.numberOf(g, 1, 1))))
	}, nil},
	{"rotation", 1, true, func(b *bent) {
		x := b.heads("x")
		cos, sin := b.angles(b.size(x, 2), 4)
		scale := b.numberOf(x, 2, 1)
		b.Output(b.rotate(x, b.Op("Mul", cos, scale), b.Op("Mul", sin, scale), 8))
	}, nil},
	{"router", 2, true, func(b *bent) {
		x := b.input("x", "seq", width)
		logits := b.Op("Mul", b.Op("MatMul", x, b.weight(width, 8)), b.numberOf(x, 0, 0.5))
		top := b.Ops(2, "TopK", b.Op("Softmax", logits, last()), []int64{2}, last())
		b.Output(b.experts(x, b.Op("Mul", top[0], b.numberOf(x, 0, 2.5)), top[1], b.swiglu))
	}, nil},
	{"experts", 1, true, func(b *bent) {
		same := func(g *onnx.Value) *onnx.Value { return g }
		b.mixture(same, func(u *onnx.Value) *onnx.Value { return b.Op("Add", u, b.numberOf(b.Graph.Inputs[0], 0, 1)) })
	}, nil},
}

func TestBent(t *testing.T) {
	try := func(name string, write func(b *bent), place int, by string, at trial) {
		t.Run(fmt.Sprintf("%s/%d/%s", name, place, by), func(t *testing.T) {
			saturated := name == "sigmoids" // large scores are 1, however large
			a := attack{at: at, same: saturated, write: func(b *maker) { write(&bent{maker: b, place: place, by: by}) }}
			a.run(t)
		})
	}
	for _, block := range bentBlocks {
		ways, at := bends, trial{fill: block.at}
		if block.sizes {
			ways, at = sizeBends, trial{sizes: map[string]int{"seq": 2100, "batch": 1}}
		} else if block.at == nil {
			at = only("x", 5500, 1000, -2, 130, 8000)
		}
		for place := range block.places {
			for _, by := range ways {
				try(block.name, block.write, place, by, at)
			}
		}
	}
	try("attention", (*bent).attend, 1, sizeBends[0], trial{sizes: map[string]int{"seq": 2100, "batch": 1}})
	for _, by := range masks {
		try("attention", (*bent).attend, 2, by, trial{sizes: map[string]int{"seq": 64}})
	}
}
