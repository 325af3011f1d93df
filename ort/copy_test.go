//go:build cgo

package ort

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// TestCopier uses the session that copies for devices on the host, which needs no device.
func TestCopier(t *testing.T) {
	for _, dt := range []onnx.DataType{onnx.Float, onnx.Float16, onnx.BFloat16, onnx.Int64, onnx.Bool} {
		m := onnx.New(10, 21)
		m.Graph.Name = "identity"
		ty := onnx.Type{DataType: dt, HasShape: true, Dims: []onnx.Dim{{Value: -1}, {Value: -1}}}
		x := m.Graph.AddInput("x", ty)
		y := m.Graph.NewValue("y")
		y.SetType(ty)
		m.Graph.AddNode("Identity", []*onnx.Value{x}, []*onnx.Value{y})
		m.Graph.AddOutput(y)
		path := filepath.Join(t.TempDir(), "model.onnx")
		if err := onnx.Write(path, m); err != nil {
			t.Fatal(err)
		}
		s, err := Open(path, WithOptimization(OptimizeNone))
		if err != nil {
			t.Skip(err)
		}
		defer s.Close()
		v, err := s.Allocate("x", []int64{2, 3})
		if err != nil {
			t.Fatal(err)
		}
		size := (&onnx.Tensor{DataType: dt, Dims: v.Dims}).Size()
		want, got := make([]byte, size), make([]byte, size)
		for i := range want {
			want[i] = byte(i % 2)
		}
		if err := v.copy(want, true); err != nil {
			t.Fatal(dt, err)
		}
		if err := v.copy(got, false); err != nil {
			t.Fatal(dt, err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", dt, got, want)
		}
	}
}
