package shorten_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/patterns/shorten"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

type (
	builder = *onnxtest.Builder
	value   = *onnx.Value
)

const tokens = 100

// read reads the nodes of a graph whose input x is [2, tokens, 6].
func read(t *testing.T, build func(b builder, x value) value) (*shorten.Region, *onnx.Model,
	error) {
	t.Helper()
	b := onnxtest.New(18)
	x := b.Input("x", onnx.Float, 2, tokens, 6)
	b.Output(build(b, x))
	facts := infer.Analyze(b.Model)
	given := map[value][]shorten.Dim{x: {shorten.Fixed(2), shorten.Of(shorten.Factor{Name: 's', Size: tokens}),
		shorten.Fixed(6)}}
	r, err := shorten.Read(b.Graph.Nodes, given, 18, func(v value) ([]int64, error) {
		if shape, ok := facts.Shape(v, 0); ok {
			return shape, nil
		}
		return nil, fmt.Errorf("%q has no shape", v.Name)
	})
	return r, b.Model, err
}

func floats(n int, usual float32) []float32 { return slices.Repeat([]float32{usual}, n) }

// TestRead runs graphs with five tokens instead of a hundred equal ones: the results must hold the same numbers.
func TestRead(t *testing.T) {
	for _, c := range []struct {
		name  string
		build func(b builder, x value) value
		shape []int
	}{
		{"heads", func(b builder, x value) value {
			heads := b.Op("Reshape", x, []int64{2, tokens, 3, 2})
			return b.Op("Transpose", heads, onnx.IntsAttr("perm", []int64{0, 2, 1, 3}))
		}, []int{2, 3, 5, 2}},
		{"batch and tokens as one, and back", func(b builder, x value) value {
			return b.Op("Reshape", b.Op("Relu", b.Op("Reshape", x, []int64{2 * tokens, 6})), []int64{2, -1, 6})
		}, []int{2, 5, 6}},
		{"products", func(b builder, x value) value {
			p := b.Op("MatMul", x, b.Op("Transpose", x, onnx.IntsAttr("perm", []int64{0, 2, 1})))
			return b.Op("MatMul", b.Op("Softmax", p, onnx.IntAttr("axis", -1)), x)
		}, []int{2, 5, 6}},
		{"equal numbers for all tokens", func(b builder, x value) value {
			return b.Op("Add", x, b.Floats([]int64{tokens, 6}, floats(6*tokens, 3)...))
		}, []int{2, 5, 6}},
		{"an expansion", func(b builder, x value) value {
			row := b.Floats([]int64{1, 6}, 1, 2, 3, 4, 5, 6)
			return b.Op("Add", x, b.Op("Neg", b.Op("Expand", row, []int64{2, tokens, 6})))
		}, []int{2, 5, 6}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, m, err := read(t, c.build)
			if err != nil {
				t.Fatal(err)
			}
			run := func(n int, nodes []*onnx.Node, env map[value]*reference.Tensor) []float64 {
				x := &reference.Tensor{DataType: onnx.Float, Shape: []int{2, n, 6}}
				for i := range 2 * n * 6 {
					x.F = append(x.F, float64(i/(n*6)*7+i%6)) // the same for all tokens of a batch
				}
				env[m.Graph.Inputs[0]] = x
				y := m.Graph.Outputs[0]
				e := reference.NewForOpset(18, nil, reference.Options{Exact: true})
				if _, err := e.EvalFor(nodes, env, []value{y}); err != nil {
					t.Fatal(err)
				}
				if n == 5 && !slices.Equal(env[y].Shape, c.shape) {
					t.Errorf("shape %v instead of %v", env[y].Shape, c.shape)
				}
				list := slices.Clone(env[y].F)
				slices.Sort(list)
				for i := range list {
					list[i] = float64(float32(list[i]))
				}
				return slices.Compact(list)
			}
			five := func(rune) int64 { return 5 }
			short := run(5, r.Nodes, r.Inputs(five))
			if whole := run(tokens, m.Graph.Nodes, map[value]*reference.Tensor{}); !slices.Equal(short, whole) {
				t.Errorf("%v instead of %v", short, whole)
			}
		})
	}
}

// TestReadRefuses refuses nodes that read tokens by their number.
func TestReadRefuses(t *testing.T) {
	for _, c := range []struct {
		name  string
		build func(b builder, x value) value
	}{
		{"a number for each token", func(b builder, x value) value {
			list := floats(tokens, 1)
			list[77] = 2
			return b.Op("Mul", x, b.Floats([]int64{tokens, 1}, list...))
		}},
		{"a slice", func(b builder, x value) value {
			return b.Op("Slice", x, []int64{1}, []int64{90}, []int64{1})
		}},
		{"a product with a weight for each token", func(b builder, x value) value {
			return b.Op("MatMul", b.Floats([]int64{4, tokens}, floats(4*tokens, 1)...), x)
		}},
		{"tokens taken apart", func(b builder, x value) value {
			return b.Op("Reshape", x, []int64{2, 10, 10, 6})
		}},
		{"tokens among channels", func(b builder, x value) value {
			return b.Op("Reshape", b.Op("Transpose", x, onnx.IntsAttr("perm", []int64{0, 2, 1})), []int64{2, tokens, 6})
		}},
		{"a shape that is a number too", func(b builder, x value) value {
			shape := b.Ints(2*tokens, 6)
			y := b.Op("Reshape", x, shape)
			first := b.Op("Slice", shape, []int64{0}, []int64{1})
			return b.Op("Mul", y, b.Op("Cast", first, onnx.IntAttr("to", int64(onnx.Float))))
		}},
		{"the number of tokens", func(b builder, x value) value {
			n := b.Op("Cast", b.Op("Gather", b.Op("Shape", x), 1), onnx.IntAttr("to", int64(onnx.Float)))
			return b.Op("Mul", x, n)
		}},
		{"sums over tokens", func(b builder, x value) value {
			return b.Op("CumSum", x, b.Ints(1))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, _, err := read(t, c.build); err == nil {
				t.Error("no error")
			} else {
				t.Log(err)
			}
		})
	}
}
