package crosscheck

import (
	"bytes"
	"os"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// Arbitrary bytes must be read or rejected without a panic.
func FuzzCheck(f *testing.F) {
	m := onnx.New(10, 20)
	x := m.Graph.AddInput("x", onnx.Type{DataType: onnx.Float})
	v := m.Graph.NewValue("v")
	yes, err := onnx.NewTensor("", onnx.Bool, []int64{1}, []byte{1})
	if err != nil {
		f.Fatal(err)
	}
	m.Graph.AddNode("ConstantOfShape", []*onnx.Value{x}, []*onnx.Value{v}, onnx.TensorAttr("value", yes),
		onnx.FloatAttr("f", 1))
	m.Graph.AddOutput(v)
	path := f.TempDir() + "/m.onnx"
	if err := onnx.Write(path, m); err != nil {
		f.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		check(bytes.NewReader(b), int64(len(b)), "m.onnx", m)
	})
}
