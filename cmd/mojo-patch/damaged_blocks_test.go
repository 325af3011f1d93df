package main

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// blocks builds small models with one block each that is almost one of the patterns; the names say what is different.
type blocks struct {
	m *onnx.Model
	g *onnx.Graph
	n int
}

func newBlocks() *blocks {
	m := onnx.New(10, 20)
	m.Graph.Name = "main"
	return &blocks{m: m, g: m.Graph}
}

func (b *blocks) input(name string, t onnx.DataType, dims ...any) *onnx.Value {
	ty := onnx.Type{DataType: t, HasShape: dims != nil}
	for _, d := range dims {
		switch d := d.(type) {
		case int:
			ty.Dims = append(ty.Dims, onnx.Dim{Value: int64(d)})
		case string:
			ty.Dims = append(ty.Dims, onnx.Dim{Value: -1, Param: d})
		}
	}
	return b.g.AddInput(name, ty)
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
	return b.g.AddInitializer(onnx.NewFloat32s(name, dims, w))
}

// op adds a node; float64 arguments are constants, lists of integers constant lists.
func (b *blocks) op(opType string, args ...any) *onnx.Value {
	b.n++
	name := fmt.Sprintf("/m/%s_%d", opType, b.n)
	var in []*onnx.Value
	var attrs []*onnx.Attribute
	for _, a := range args {
		switch a := a.(type) {
		case *onnx.Value:
			in = append(in, a)
		case *onnx.Attribute:
			attrs = append(attrs, a)
		case float64:
			in = append(in, b.g.AddInitializer(onnx.NewFloat32s("number", []int64{}, []float32{float32(a)})))
		case []int64:
			in = append(in, b.g.AddInitializer(onnx.NewInt64s("list", a)))
		}
	}
	v := b.g.NewValue(name + "_output_0")
	b.g.AddNode(opType, in, []*onnx.Value{v}, attrs...).Name = name
	return v
}

func (b *blocks) cast(x *onnx.Value, t onnx.DataType) *onnx.Value {
	return b.op("Cast", x, onnx.IntAttr("to", int64(t)))
}

func (b *blocks) mean(x *onnx.Value, axes ...int64) *onnx.Value { return b.op("ReduceMean", x, axes) }

// root returns 1 / sqrt(mean(x²) + epsilon).
func (b *blocks) root(x *onnx.Value, epsilon any) *onnx.Value {
	return b.op("Reciprocal", b.op("Sqrt", b.op("Add", b.mean(b.op("Pow", x, 2.0), -1), epsilon)))
}

func (b *blocks) x() *onnx.Value { return b.input("x", onnx.Float, "batch", "sequence", 8) }

func (b *blocks) half(x *onnx.Value, from, to int64) *onnx.Value {
	return b.op("Slice", x, []int64{from}, []int64{to}, []int64{-1}, []int64{1})
}

// rotary rotates q by whatever is in the place of rotate_half(q).
func (b *blocks) rotary(tables int, rotated func(q *onnx.Value) *onnx.Value) *onnx.Value {
	q := b.input("q", onnx.Float, "batch", 2, "sequence", 8)
	cos, sin := b.input("cos", onnx.Float, 1, 1, "sequence", tables), b.input("sin", onnx.Float, 1, 1, "sequence", tables)
	return b.op("Add", b.op("Mul", q, cos), b.op("Mul", rotated(q), sin))
}

func (b *blocks) join(x, y *onnx.Value) *onnx.Value {
	return b.op("Concat", x, y, onnx.IntAttr("axis", -1))
}

// damagedBlocks makes the output of each block.
var damagedBlocks = map[string]func(b *blocks) *onnx.Value{
	"norm-as-it-should-be": func(b *blocks) *onnx.Value {
		x := b.x()
		return b.op("Mul", b.weight("scale", 8), b.op("Mul", x, b.root(x, 1e-6)))
	},
	"norm-epsilon-outside": func(b *blocks) *onnx.Value {
		x := b.x()
		inverse := b.op("Reciprocal", b.op("Add", b.op("Sqrt", b.mean(b.op("Pow", x, 2.0), -1)), 1e-6))
		return b.op("Mul", b.weight("scale", 8), b.op("Mul", x, inverse))
	},
	"norm-epsilon-outside-division": func(b *blocks) *onnx.Value {
		x := b.x()
		return b.op("Mul", b.weight("scale", 8), b.op("Div", x, b.op("Add", b.op("Sqrt", b.mean(b.op("Mul", x, x), -1)), 1e-6)))
	},
	"norm-epsilon-input": func(b *blocks) *onnx.Value {
		x := b.x()
		return b.op("Mul", b.weight("scale", 8), b.op("Mul", x, b.root(x, b.input("epsilon", onnx.Float))))
	},
	"norm-epsilon-negative": func(b *blocks) *onnx.Value {
		x := b.x()
		return b.op("Mul", b.weight("scale", 8), b.op("Mul", x, b.root(x, -1e-6)))
	},
	"norm-no-epsilon": func(b *blocks) *onnx.Value {
		x := b.x()
		return b.op("Mul", b.weight("scale", 8), b.op("Mul", x, b.op("Reciprocal", b.op("Sqrt", b.mean(b.op("Pow", x, 2.0), -1)))))
	},
	"norm-wrong-axis": func(b *blocks) *onnx.Value {
		x := b.x()
		inverse := b.op("Reciprocal", b.op("Sqrt", b.op("Add", b.mean(b.op("Pow", x, 2.0), 1), 1e-6)))
		return b.op("Mul", b.weight("scale", 8), b.op("Mul", x, inverse))
	},
	"norm-cube": func(b *blocks) *onnx.Value {
		x := b.x()
		inverse := b.op("Reciprocal", b.op("Sqrt", b.op("Add", b.mean(b.op("Pow", x, 3.0), -1), 1e-6)))
		return b.op("Mul", b.weight("scale", 8), b.op("Mul", x, inverse))
	},
	"norm-sum": func(b *blocks) *onnx.Value {
		x := b.x()
		inverse := b.op("Reciprocal", b.op("Sqrt", b.op("Add", b.op("ReduceSum", b.op("Pow", x, 2.0), []int64{-1}), 1e-6)))
		return b.op("Mul", b.weight("scale", 8), b.op("Mul", x, inverse))
	},
	"norm-of-another": func(b *blocks) *onnx.Value {
		return b.op("Mul", b.weight("scale", 8), b.op("Mul", b.input("other", onnx.Float, "batch", "sequence", 8), b.root(b.x(), 1e-6)))
	},
	"norm-scale-matrix": func(b *blocks) *onnx.Value {
		x := b.x()
		return b.op("Mul", b.weight("scale", 4, 8), b.op("Mul", x, b.root(x, 1e-6)))
	},
	"norm-scale-scalar": func(b *blocks) *onnx.Value {
		x := b.x()
		return b.op("Mul", b.weight("scale", 1), b.op("Mul", x, b.root(x, 1e-6)))
	},
	"norm-no-scale": func(b *blocks) *onnx.Value {
		x := b.x()
		return b.op("MatMul", b.op("Mul", x, b.root(x, 1e-6)), b.weight("w", 8, 8))
	},
	"norm-centered": func(b *blocks) *onnx.Value {
		x := b.x()
		x = b.op("Sub", x, b.mean(x, -1))
		return b.op("Mul", b.weight("scale", 8), b.op("Mul", x, b.root(x, 1e-6)))
	},
	"norm-no-cast-back": func(b *blocks) *onnx.Value {
		x := b.cast(b.input("x", onnx.Float16, "batch", "sequence", 8), onnx.Float)
		return b.op("Mul", b.weight("scale", 8), b.op("Mul", x, b.root(x, 1e-6)))
	},
	"norm-missing-cast": func(b *blocks) *onnx.Value {
		half, _ := onnx.NewTensor("scale", onnx.Float16, []int64{8}, []byte{0, 60, 1, 60, 2, 60, 3, 60, 4, 60, 5, 60, 6, 60, 7, 60})
		x := b.cast(b.input("x", onnx.Float16, "batch", "sequence", 8), onnx.Float)
		return b.op("Mul", b.cast(b.g.AddInitializer(half), onnx.Float), b.op("Mul", x, b.root(x, 1e-6)))
	},
	"norm-read-elsewhere": func(b *blocks) *onnx.Value {
		x := b.x()
		n := b.op("Mul", x, b.root(x, 1e-6))
		b.g.AddOutput(n)
		return b.op("Mul", b.weight("scale", 8), n)
	},
	"norm-double": func(b *blocks) *onnx.Value {
		x := b.input("x", onnx.Double, "batch", "sequence", 8)
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
			return b.g.AddInitializer(t)
		}
		inverse := b.op("Reciprocal", b.op("Sqrt", b.op("Add", b.mean(b.op("Pow", x, d("two", 2)), -1), d("epsilon", 1e-6))))
		return b.op("Mul", d("scale", 2, 2, 2, 2, 2, 2, 2, 3), b.op("Mul", x, inverse))
	},
	"norm-unknown-shape": func(b *blocks) *onnx.Value {
		x := b.input("x", onnx.Float)
		return b.op("Mul", b.weight("scale", 8), b.op("Mul", x, b.root(x, 1e-6)))
	},
	"norm-unknown-last-axis": func(b *blocks) *onnx.Value {
		x := b.input("x", onnx.Float, "batch", "sequence", "hidden")
		return b.op("Mul", b.weight("scale", 8), b.op("Mul", x, b.root(x, 1e-6)))
	},
	"norm-two-things": func(b *blocks) *onnx.Value {
		x := b.x()
		inverse := b.op("Reciprocal", b.op("Sqrt", b.op("Add", b.mean(b.op("Pow", x, 3.0), 1), 1e-6)))
		return b.op("Mul", b.weight("scale", 8), b.op("Mul", x, inverse))
	},
	"swiglu-dropout": func(b *blocks) *onnx.Value {
		gate := b.x()
		yes, _ := onnx.NewTensor("training", onnx.Bool, []int64{}, []byte{1})
		act := b.op("Dropout", b.op("Mul", gate, b.op("Sigmoid", gate)), 0.5, b.g.AddInitializer(yes))
		return b.op("Mul", act, b.input("up", onnx.Float, "batch", "sequence", 8))
	},
	"norm-residual-broadcast": func(b *blocks) *onnx.Value {
		x := b.op("Add", b.x(), b.weight("bias", 8))
		return b.op("Mul", b.weight("scale", 4, 8), b.op("Mul", x, b.root(x, 1e-6)))
	},
	"swiglu-gate-scaled": func(b *blocks) *onnx.Value {
		gate := b.x()
		return b.op("Mul", b.op("Mul", gate, b.op("Sigmoid", b.op("Mul", gate, 1.702))), b.input("up", onnx.Float, "batch", "sequence", 8))
	},
	"swiglu-sigmoid-of-up": func(b *blocks) *onnx.Value {
		gate, other := b.x(), b.input("other", onnx.Float, "batch", "sequence", 8)
		return b.op("Mul", b.op("Mul", gate, b.op("Sigmoid", other)), b.input("up", onnx.Float, "batch", "sequence", 8))
	},
	"swiglu-broadcast": func(b *blocks) *onnx.Value {
		gate := b.x()
		return b.op("Mul", b.op("Mul", gate, b.op("Sigmoid", gate)), b.input("up", onnx.Float, 1, 1, 8))
	},
	"silu-alone": func(b *blocks) *onnx.Value {
		x := b.x()
		return b.op("MatMul", b.op("Mul", x, b.op("Sigmoid", x)), b.weight("w", 8, 8))
	},
	"sigmoid-alone": func(b *blocks) *onnx.Value { return b.op("MatMul", b.op("Sigmoid", b.x()), b.weight("w", 8, 8)) },
	"reglu": func(b *blocks) *onnx.Value {
		return b.op("Mul", b.op("Relu", b.x()), b.input("up", onnx.Float, "batch", "sequence", 8))
	},
	"geglu-other-constant": func(b *blocks) *onnx.Value {
		x := b.x()
		erf := b.op("Add", b.op("Erf", b.op("Div", x, 1.5)), 1.0)
		return b.op("Mul", b.op("Mul", b.op("Mul", x, erf), 0.5), b.input("up", onnx.Float, "batch", "sequence", 8))
	},
	"gelu-alone": func(b *blocks) *onnx.Value {
		x := b.x()
		erf := b.op("Add", b.op("Erf", b.op("Div", x, math.Sqrt2)), 1.0)
		return b.op("MatMul", b.op("Mul", b.op("Mul", x, erf), 0.5), b.weight("w", 8, 8))
	},
	"rotary-as-it-should-be": func(b *blocks) *onnx.Value {
		return b.rotary(8, func(q *onnx.Value) *onnx.Value { return b.join(b.op("Neg", b.half(q, 4, 8)), b.half(q, 0, 4)) })
	},
	"rotary-halves-swapped": func(b *blocks) *onnx.Value {
		return b.rotary(8, func(q *onnx.Value) *onnx.Value { return b.join(b.op("Neg", b.half(q, 0, 4)), b.half(q, 4, 8)) })
	},
	"rotary-no-minus": func(b *blocks) *onnx.Value {
		return b.rotary(8, func(q *onnx.Value) *onnx.Value { return b.join(b.half(q, 4, 8), b.half(q, 0, 4)) })
	},
	"rotary-both-minus": func(b *blocks) *onnx.Value {
		return b.rotary(8, func(q *onnx.Value) *onnx.Value { return b.op("Neg", b.join(b.half(q, 4, 8), b.half(q, 0, 4))) })
	},
	"rotary-uneven": func(b *blocks) *onnx.Value {
		return b.rotary(8, func(q *onnx.Value) *onnx.Value { return b.join(b.op("Neg", b.half(q, 2, 8)), b.half(q, 0, 2)) })
	},
	"rotary-unknown-size": func(b *blocks) *onnx.Value {
		q := b.input("q", onnx.Float, "batch", 2, "sequence", "width")
		cos, sin := b.input("cos", onnx.Float, 1, 1, "sequence", "width"), b.input("sin", onnx.Float, 1, 1, "sequence", "width")
		return b.op("Add", b.op("Mul", q, cos), b.op("Mul", b.join(b.op("Neg", b.half(q, 4, 8)), b.half(q, 0, 4)), sin))
	},
	"rotary-tables-of-heads": func(b *blocks) *onnx.Value {
		q := b.input("q", onnx.Float, "batch", 2, "sequence", 8)
		cos, sin := b.input("cos", onnx.Float, 3, "batch", 2, "sequence", 8), b.input("sin", onnx.Float, 3, "batch", 2, "sequence", 8)
		return b.op("Add", b.op("Mul", q, cos), b.op("Mul", b.join(b.op("Neg", b.half(q, 4, 8)), b.half(q, 0, 4)), sin))
	},
	"rotary-of-another": func(b *blocks) *onnx.Value {
		other := b.input("other", onnx.Float, "batch", 2, "sequence", 8)
		return b.rotary(8, func(*onnx.Value) *onnx.Value { return b.join(b.op("Neg", b.half(other, 4, 8)), b.half(other, 0, 4)) })
	},
}

// damagedBlock makes the model of one block.
func damagedBlock(name string) (*onnx.Model, error) {
	build := damagedBlocks[name]
	if build == nil {
		return nil, fmt.Errorf("there is no block %q; there are %s", name, strings.Join(slices.Sorted(maps.Keys(damagedBlocks)), ", "))
	}
	b := newBlocks()
	b.g.AddOutput(build(b))
	return b.m, nil
}
