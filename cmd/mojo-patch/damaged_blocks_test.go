package main

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
)

// blocks builds small models of one block that differs from a pattern in one detail. The name says which.
type blocks struct{ *onnxtest.Builder }

func newBlocks() *blocks {
	b := &blocks{onnxtest.New(20)}
	b.Graph.Name = "main"
	return b
}

// Op names nodes as TorchScript does.
func (b *blocks) Op(op string, args ...any) *onnx.Value {
	v := b.Builder.Op(op, args...)
	v.Producer.Name = fmt.Sprintf("/m/%s_%d", op, len(b.Graph.Nodes))
	return v
}

func (b *blocks) weight(name string, dims ...int64) *onnx.Value {
	n := int64(1)
	for _, d := range dims {
		n *= d
	}
	w := make([]float32, n)
	for i := range w {
		w[i] = 1.5 + float32(i)/8
	}
	return b.Constant(onnx.NewFloat32s(name, dims, w))
}

func (b *blocks) cast(x *onnx.Value, t onnx.DataType) *onnx.Value {
	return b.Op("Cast", x, onnx.IntAttr("to", int64(t)))
}

func (b *blocks) mean(x *onnx.Value, axes ...int64) *onnx.Value { return b.Op("ReduceMean", x, axes) }

// root returns 1 / sqrt(mean(x²) + epsilon).
func (b *blocks) root(x *onnx.Value, epsilon any) *onnx.Value {
	return b.Op("Reciprocal", b.Op("Sqrt", b.Op("Add", b.mean(b.Op("Pow", x, 2.0), -1), epsilon)))
}

func (b *blocks) x() *onnx.Value { return b.Input("x", onnx.Float, "batch", "sequence", 8) }

func (b *blocks) half(x *onnx.Value, from, to int64) *onnx.Value {
	return b.Op("Slice", x, []int64{from}, []int64{to}, []int64{-1}, []int64{1})
}

// rotary rotates q with a replacement for rotate_half(q).
func (b *blocks) rotary(tables int, rotated func(q *onnx.Value) *onnx.Value) *onnx.Value {
	q := b.Input("q", onnx.Float, "batch", 2, "sequence", 8)
	cos, sin := b.Input("cos", onnx.Float, 1, 1, "sequence", tables),
		b.Input("sin", onnx.Float, 1, 1, "sequence", tables)
	return b.Op("Add", b.Op("Mul", q, cos), b.Op("Mul", rotated(q), sin))
}

func (b *blocks) join(x, y *onnx.Value) *onnx.Value {
	return b.Op("Concat", x, y, onnx.IntAttr("axis", -1))
}

// damagedBlocks builds the output of each block.
var damagedBlocks = map[string]func(b *blocks) *onnx.Value{
	"norm-as-it-should-be": func(b *blocks) *onnx.Value {
		x := b.x()
		return b.Op("Mul", b.weight("scale", 8), b.Op("Mul", x, b.root(x, 1e-6)))
	},
	"norm-epsilon-outside": func(b *blocks) *onnx.Value {
		x := b.x()
		inverse := b.Op("Reciprocal", b.Op("Add", b.Op("Sqrt", b.mean(b.Op("Pow", x, 2.0), -1)), 1e-6))
		return b.Op("Mul", b.weight("scale", 8), b.Op("Mul", x, inverse))
	},
	"norm-epsilon-outside-division": func(b *blocks) *onnx.Value {
		x := b.x()
		return b.Op("Mul", b.weight("scale", 8),
			b.Op("Div", x, b.Op("Add", b.Op("Sqrt", b.mean(b.Op("Mul", x, x), -1)), 1e-6)))
	},
	"norm-epsilon-input": func(b *blocks) *onnx.Value {
		x := b.x()
		return b.Op("Mul", b.weight("scale", 8),
			b.Op("Mul", x, b.root(x, b.Graph.AddInput("epsilon", onnx.Type{DataType: onnx.Float}))))
	},
	"norm-epsilon-negative": func(b *blocks) *onnx.Value {
		x := b.x()
		return b.Op("Mul", b.weight("scale", 8), b.Op("Mul", x, b.root(x, -1e-6)))
	},
	"norm-wrong-axis": func(b *blocks) *onnx.Value {
		x := b.x()
		inverse := b.Op("Reciprocal", b.Op("Sqrt", b.Op("Add", b.mean(b.Op("Pow", x, 2.0), 1), 1e-6)))
		return b.Op("Mul", b.weight("scale", 8), b.Op("Mul", x, inverse))
	},
	"norm-cube": func(b *blocks) *onnx.Value {
		x := b.x()
		inverse := b.Op("Reciprocal", b.Op("Sqrt", b.Op("Add", b.mean(b.Op("Pow", x, 3.0), -1), 1e-6)))
		return b.Op("Mul", b.weight("scale", 8), b.Op("Mul", x, inverse))
	},
	"norm-sum": func(b *blocks) *onnx.Value {
		x := b.x()
		inverse := b.Op("Reciprocal",
			b.Op("Sqrt", b.Op("Add", b.Op("ReduceSum", b.Op("Pow", x, 2.0), []int64{-1}), 1e-6)))
		return b.Op("Mul", b.weight("scale", 8), b.Op("Mul", x, inverse))
	},
	"norm-of-another": func(b *blocks) *onnx.Value {
		return b.Op("Mul", b.weight("scale", 8), b.Op("Mul", b.Input("other", onnx.Float, "batch", "sequence", 8),
			b.root(b.x(), 1e-6)))
	},
	"norm-scale-matrix": func(b *blocks) *onnx.Value {
		x := b.x()
		return b.Op("Mul", b.weight("scale", 4, 8), b.Op("Mul", x, b.root(x, 1e-6)))
	},
	"norm-scale-scalar": func(b *blocks) *onnx.Value {
		x := b.x()
		return b.Op("Mul", b.weight("scale", 1), b.Op("Mul", x, b.root(x, 1e-6)))
	},
	"norm-no-scale": func(b *blocks) *onnx.Value {
		x := b.x()
		return b.Op("MatMul", b.Op("Mul", x, b.root(x, 1e-6)), b.weight("w", 8, 8))
	},
	"norm-centered": func(b *blocks) *onnx.Value {
		x := b.x()
		x = b.Op("Sub", x, b.mean(x, -1))
		return b.Op("Mul", b.weight("scale", 8), b.Op("Mul", x, b.root(x, 1e-6)))
	},
	"norm-no-cast-back": func(b *blocks) *onnx.Value {
		x := b.cast(b.Input("x", onnx.Float16, "batch", "sequence", 8), onnx.Float)
		return b.Op("Mul", b.weight("scale", 8), b.Op("Mul", x, b.root(x, 1e-6)))
	},
	"norm-missing-cast": func(b *blocks) *onnx.Value {
		half, _ := onnx.NewTensor("scale", onnx.Float16, []int64{8},
			[]byte{0, 60, 1, 60, 2, 60, 3, 60, 4, 60, 5, 60, 6, 60, 7, 60})
		x := b.cast(b.Input("x", onnx.Float16, "batch", "sequence", 8), onnx.Float)
		return b.Op("Mul", b.cast(b.Constant(half), onnx.Float), b.Op("Mul", x, b.root(x, 1e-6)))
	},
	"norm-read-elsewhere": func(b *blocks) *onnx.Value {
		x := b.x()
		n := b.Op("Mul", x, b.root(x, 1e-6))
		b.Output(n)
		return b.Op("Mul", b.weight("scale", 8), n)
	},
	"norm-double": func(b *blocks) *onnx.Value {
		x := b.Input("x", onnx.Double, "batch", "sequence", 8)
		d := func(name string, v ...float64) *onnx.Value {
			raw := make([]byte, 0, 8*len(v))
			for _, f := range v {
				raw = binary.LittleEndian.AppendUint64(raw, math.Float64bits(f))
			}
			dims := []int64{}
			if len(v) > 1 {
				dims = []int64{int64(len(v))}
			}
			t, _ := onnx.NewTensor(name, onnx.Double, dims, raw)
			return b.Constant(t)
		}
		inverse := b.Op("Reciprocal",
			b.Op("Sqrt", b.Op("Add", b.mean(b.Op("Pow", x, d("two", 2)), -1), d("epsilon", 1e-6))))
		return b.Op("Mul", d("scale", 2, 2, 2, 2, 2, 2, 2, 3), b.Op("Mul", x, inverse))
	},
	"norm-unknown-shape": func(b *blocks) *onnx.Value {
		x := b.Graph.AddInput("x", onnx.Type{DataType: onnx.Float})
		return b.Op("Mul", b.weight("scale", 8), b.Op("Mul", x, b.root(x, 1e-6)))
	},
	"norm-unknown-last-axis": func(b *blocks) *onnx.Value {
		x := b.Input("x", onnx.Float, "batch", "sequence", "hidden")
		return b.Op("Mul", b.weight("scale", 8), b.Op("Mul", x, b.root(x, 1e-6)))
	},
	"norm-two-things": func(b *blocks) *onnx.Value {
		x := b.x()
		inverse := b.Op("Reciprocal", b.Op("Sqrt", b.Op("Add", b.mean(b.Op("Pow", x, 3.0), 1), 1e-6)))
		return b.Op("Mul", b.weight("scale", 8), b.Op("Mul", x, inverse))
	},
	"swiglu-dropout": func(b *blocks) *onnx.Value {
		gate := b.x()
		yes, _ := onnx.NewTensor("training", onnx.Bool, []int64{}, []byte{1})
		act := b.Op("Dropout", b.Op("Mul", gate, b.Op("Sigmoid", gate)), 0.5, b.Constant(yes))
		return b.Op("Mul", act, b.Input("up", onnx.Float, "batch", "sequence", 8))
	},
	"norm-residual-broadcast": func(b *blocks) *onnx.Value {
		x := b.Op("Add", b.x(), b.weight("bias", 8))
		return b.Op("Mul", b.weight("scale", 4, 8), b.Op("Mul", x, b.root(x, 1e-6)))
	},
	"swiglu-gate-scaled": func(b *blocks) *onnx.Value {
		gate := b.x()
		return b.Op("Mul", b.Op("Mul", gate, b.Op("Sigmoid", b.Op("Mul", gate, 1.702))),
			b.Input("up", onnx.Float, "batch", "sequence", 8))
	},
	"swiglu-sigmoid-of-up": func(b *blocks) *onnx.Value {
		gate, other := b.x(), b.Input("other", onnx.Float, "batch", "sequence", 8)
		return b.Op("Mul", b.Op("Mul", gate, b.Op("Sigmoid", other)), b.Input("up", onnx.Float, "batch", "sequence", 8))
	},
	"swiglu-broadcast": func(b *blocks) *onnx.Value {
		gate := b.x()
		return b.Op("Mul", b.Op("Mul", gate, b.Op("Sigmoid", gate)), b.Input("up", onnx.Float, 1, 1, 8))
	},
	"norm-open-width": func(b *blocks) *onnx.Value {
		x := b.Input("x", onnx.Float, "batch", "sequence", "hidden")
		return b.Op("Mul", b.Input("scale", onnx.Float, "hidden"), b.Op("Mul", x, b.root(x, 1e-6)))
	},
	"positions-subtracted": func(b *blocks) *onnx.Value {
		length := b.Op("Squeeze", b.Op("Shape", b.x(), onnx.IntAttr("start", 1), onnx.IntAttr("end", 2)))
		positions := b.Op("Range", 0, length, 1)
		return b.Op("Sub", b.Op("Gather", positions, []int64{0, 1}), 1)
	},
	"silu-alone": func(b *blocks) *onnx.Value {
		x := b.x()
		return b.Op("MatMul", b.Op("Mul", x, b.Op("Sigmoid", x)), b.weight("w", 8, 8))
	},
	"sigmoid-alone": func(b *blocks) *onnx.Value { return b.Op("MatMul", b.Op("Sigmoid", b.x()), b.weight("w", 8, 8)) },
	"reglu": func(b *blocks) *onnx.Value {
		return b.Op("Mul", b.Op("Relu", b.x()), b.Input("up", onnx.Float, "batch", "sequence", 8))
	},
	"geglu-other-constant": func(b *blocks) *onnx.Value {
		x := b.x()
		erf := b.Op("Add", b.Op("Erf", b.Op("Div", x, 1.5)), 1.0)
		return b.Op("Mul", b.Op("Mul", b.Op("Mul", x, erf), 0.5), b.Input("up", onnx.Float, "batch", "sequence", 8))
	},
	"gelu-alone": func(b *blocks) *onnx.Value {
		x := b.x()
		erf := b.Op("Add", b.Op("Erf", b.Op("Div", x, math.Sqrt2)), 1.0)
		return b.Op("MatMul", b.Op("Mul", b.Op("Mul", x, erf), 0.5), b.weight("w", 8, 8))
	},
	"rotary-as-it-should-be": func(b *blocks) *onnx.Value {
		return b.rotary(8, func(q *onnx.Value) *onnx.Value {
			return b.join(b.Op("Neg", b.half(q, 4, 8)), b.half(q, 0, 4))
		})
	},
	"rotary-halves-swapped": func(b *blocks) *onnx.Value {
		return b.rotary(8, func(q *onnx.Value) *onnx.Value {
			return b.join(b.Op("Neg", b.half(q, 0, 4)), b.half(q, 4, 8))
		})
	},
	"rotary-no-minus": func(b *blocks) *onnx.Value {
		return b.rotary(8, func(q *onnx.Value) *onnx.Value { return b.join(b.half(q, 4, 8), b.half(q, 0, 4)) })
	},
	"rotary-both-minus": func(b *blocks) *onnx.Value {
		return b.rotary(8, func(q *onnx.Value) *onnx.Value {
			return b.Op("Neg", b.join(b.half(q, 4, 8), b.half(q, 0, 4)))
		})
	},
	"rotary-uneven": func(b *blocks) *onnx.Value {
		return b.rotary(8, func(q *onnx.Value) *onnx.Value {
			return b.join(b.Op("Neg", b.half(q, 2, 8)), b.half(q, 0, 2))
		})
	},
	"rotary-unknown-size": func(b *blocks) *onnx.Value {
		q := b.Input("q", onnx.Float, "batch", 2, "sequence", "width")
		cos, sin := b.Input("cos", onnx.Float, 1, 1, "sequence", "width"),
			b.Input("sin", onnx.Float, 1, 1, "sequence", "width")
		return b.Op("Add", b.Op("Mul", q, cos), b.Op("Mul", b.join(b.Op("Neg", b.half(q, 4, 8)), b.half(q, 0, 4)), sin))
	},
	"rotary-tables-of-heads": func(b *blocks) *onnx.Value {
		q := b.Input("q", onnx.Float, "batch", 2, "sequence", 8)
		cos, sin := b.Input("cos", onnx.Float, 3, "batch", 2, "sequence", 8),
			b.Input("sin", onnx.Float, 3, "batch", 2, "sequence", 8)
		return b.Op("Add", b.Op("Mul", q, cos), b.Op("Mul", b.join(b.Op("Neg", b.half(q, 4, 8)), b.half(q, 0, 4)), sin))
	},
	"rotary-of-another": func(b *blocks) *onnx.Value {
		other := b.Input("other", onnx.Float, "batch", 2, "sequence", 8)
		return b.rotary(8, func(*onnx.Value) *onnx.Value {
			return b.join(b.Op("Neg", b.half(other, 4, 8)), b.half(other, 0, 4))
		})
	},
}

// damagedBlock returns the model of one block.
func damagedBlock(name string) (*onnx.Model, error) {
	build := damagedBlocks[name]
	if build == nil {
		return nil, fmt.Errorf("unknown block %q; the blocks are %s", name,
			strings.Join(slices.Sorted(maps.Keys(damagedBlocks)), ", "))
	}
	b := newBlocks()
	b.Output(build(b))
	return b.Model, nil
}
