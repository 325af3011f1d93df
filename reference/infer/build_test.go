package infer

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
)

// builder makes models for tests, with shapes as text.
type builder struct{ *onnxtest.Builder }

func newBuilder(opset int64) *builder { return &builder{onnxtest.New(opset)} }

// dims parses "2 seq ?" as a number, a name and an unnamed dimension.
func dims(s string) onnx.Type {
	t := onnx.Type{HasShape: true, Dims: []onnx.Dim{}}
	for _, f := range strings.Fields(s) {
		n, err := strconv.ParseInt(f, 10, 64)
		switch {
		case err == nil:
			t.Dims = append(t.Dims, onnx.Dim{Value: n})
		case f == "?":
			t.Dims = append(t.Dims, onnx.Dim{Value: -1})
		default:
			t.Dims = append(t.Dims, onnx.Dim{Value: -1, Param: strings.ReplaceAll(f, "_", " ")})
		}
	}
	return t
}

func (b *builder) input(name string, t onnx.DataType, shape string) value {
	d := dims(shape)
	d.DataType = t
	return b.Graph.AddInput(name, d)
}

func (b *builder) scalar(v int64) value {
	t := onnx.NewInt64s("const", []int64{v})
	t.Dims = []int64{}
	return b.Constant(t)
}

// weight is a float32 constant too large to be followed.
func (b *builder) weight(shape ...int64) value {
	n := int64(1)
	for _, d := range shape {
		n *= d
	}
	return b.Floats(shape, make([]float32, n)...)
}

func values(v ...value) []value { return v }

// shapes formats the facts of a value: its type and its shapes in worlds 0 and 1, or one shape for all.
func shapes(f *Facts, v value) string {
	x := f.of(v)
	s := fmt.Sprintf("%s%v", x.DataType, x.Shape[0])
	if x.Shape[0] == nil {
		return fmt.Sprint(x.DataType, " ?")
	}
	if fmt.Sprint(x.Shape[0]) != fmt.Sprint(x.Shape[1]) {
		s += fmt.Sprint(x.Shape[1])
	}
	return s
}

func wantShapes(t *testing.T, f *Facts, v value, want string) {
	t.Helper()
	if got := shapes(f, v); got != want {
		t.Errorf("%s: got %s, want %s", describe(v), got, want)
	}
}

func wantInts(t *testing.T, f *Facts, v value, want ...int64) {
	t.Helper()
	c, ok := f.Constant(v)
	if !ok {
		t.Errorf("%s is not constant, want %v", describe(v), want)
	} else if fmt.Sprint(c.I) != fmt.Sprint(want) {
		t.Errorf("%s: got %v, want %v", describe(v), c.I, want)
	}
}
