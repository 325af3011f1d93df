package learn_test

import (
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/patterns"
	"github.com/mojo-patch/mojo-patch/patterns/learn"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

const channels = 12

func vector(b *onnxtest.Builder) *onnx.Value {
	w := make([]float32, channels)
	for i := range w {
		w[i] = 0.5 + float32(i)/8
	}
	return b.Floats([]int64{channels}, w...)
}

// tests are spellings of x, and the text written for them from the first statement on.
var tests = []struct {
	name string
	make func(b *onnxtest.Builder, x *onnx.Value) *onnx.Value
	want string
}{
	{"a sum of squares, divided", func(b *onnxtest.Builder, x *onnx.Value) *onnx.Value {
		mean := b.Op("Div", b.Op("ReduceSumSquare", x, []int64{-1}), float64(channels))
		return b.Op("Mul", b.Op("Div", x, b.Op("Sqrt", b.Op("Add", mean, 1e-5))), vector(b))
	}, `
  a = Add(Div(ReduceSumSquare<axes=[-1], keepdims=1>(x), $size), $epsilon)
  y = Mul(Div(x, Root(a)), Row(scale))
  where epsilon > 0 && near(size, dim(x, -1)) && dim(scale, -1) == dim(x, -1) && !centered(x) && sameshape(x, y) && ` +
		`type(x) == type(y) && type(scale) == type(y)
} => mojo.RMSNorm(x, scale; axis=-1, epsilon=epsilon, scale_after_cast=0)
`},
	{"an epsilon in a sum, an axis from the front, no scale", func(b *onnxtest.Builder, x *onnx.Value) *onnx.Value {
		ones := b.Floats([]int64{channels, 1}, []float32{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}...)
		sum := b.Op("Add", b.Op("MatMul", b.Op("Mul", x, x), ones), channels*1e-5)
		rows := b.Op("Unsqueeze", b.Op("Squeeze", b.Op("Sqrt", sum), []int64{2}), []int64{2})
		return b.Op("Mul", b.Op("Div", x, rows), 3.4641016151377544) // the root of 12
	}, `
  a = Div(x, Root(Add(MatMul(Square(x), Filled<value=1>()), $epsilon_of_sum)))
  y = Mul(a, $root)
  where near(root * root, dim(x, -1)) && !centered(x) && dim(x, -1) > 0 && !weighted(y) && sameshape(x, y) && ` +
		`type(x) == type(y)
} => mojo.RMSNorm(x, Expand(1, [dim(x, -1)]); axis=-1, epsilon=epsilon_of_sum / dim(x, -1), scale_after_cast=0)
`},
	{"a gate by tanh", func(b *onnxtest.Builder, x *onnx.Value) *onnx.Value {
		tanh := b.Op("Tanh", b.Op("Mul", x, 0.851))
		sigmoid := b.Op("Mul", b.Op("Add", tanh, 1.0), 0.5)
		return b.Op("Mul", b.Op("Mul", x, b.Input("up", onnx.Float, "b", "s", channels)), sigmoid)
	}, `
  y = Mul(gate, up, Add(Tanh(Mul(gate, $half_alpha)), 1), 0.5)
  where sameshape(gate, up) && !routed(gate) && sameshape(gate, y) && type(gate) == type(y) && type(up) == type(y)
} => mojo.GLU(gate, up; activation="silu", alpha=2 * half_alpha, limit=0.0, up_offset=0.0)
`},
	{"a rotation by a matrix", func(b *onnxtest.Builder, x *onnx.Value) *onnx.Value {
		m := make([]float32, channels*channels)
		for i := range channels / 2 {
			m[i*channels+i+channels/2], m[(i+channels/2)*channels+i] = 1, -1
		}
		angles := b.Input("angles", onnx.Float, "s", channels/2)
		twice := func(v *onnx.Value) *onnx.Value { return b.Op("Concat", v, v, onnx.IntAttr("axis", -1)) }
		turned := b.Op("MatMul", x, b.Floats([]int64{channels, channels}, m...))
		return b.Op("Add", b.Op("Mul", x, twice(b.Op("Cos", angles))), b.Op("Mul", turned, twice(b.Op("Sin", angles))))
	}, `
  a = MatMul(x, HalfTurn<layout=halves, sign=1>())
  b = Mul(a, Concat<axis=-1>(sin, sin))
  y = Add(b, Mul(x, Concat<axis=-1>(cos, cos)))
  where rank(x) == 3 && rank(cos) == 2 && samedim(cos, 0, x, -2) && rank(sin) == 2 && samedim(sin, 0, x, -2) && ` +
		`sameshape(x, y) && type(x) == type(y) && type(cos) == type(y) && type(sin) == type(y)
} => mojo.RotaryEmbedding(x, cos, sin; interleaved=0, rotary_dim=dim(x, -1), rotated_side="first", output_layout="halves")
`},
}

func TestWrite(t *testing.T) {
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			b := onnxtest.New(20)
			b.Output(test.make(b, b.Input("x", onnx.Float, "b", "s", channels)))
			facts, set := infer.Analyze(b.Model), patterns.Builtin()
			matches, _ := set.Find(b.Graph, facts)
			if len(matches) != 1 || !matches[0].Fitted() {
				t.Fatalf("%d matches", len(matches))
			}
			p, err := learn.Write(set, set.View(b.Graph, facts), matches[0])
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasSuffix(p.String(), test.want) {
				t.Errorf("got\n%s\nwant\n%s", p, test.want)
			}
			read := func(text string) string {
				s, err := set.With("learnt.pat", text)
				if err != nil {
					t.Fatal(err)
				}
				return s.Patterns[0].String()
			}
			expanded := read(p.String())
			if text := read(expanded); text != expanded {
				t.Errorf("read again\n%s\nwant\n%s", text, expanded)
			}
		})
	}
}
