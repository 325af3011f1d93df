//go:build cgo

package ort_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/ort"
	"github.com/mojo-patch/mojo-patch/ort/orttest"
)

// identity is a model y = x of a type, with open dimensions.
func identity(t *testing.T, dt onnx.DataType, rank int) string {
	t.Helper()
	m := onnx.New(10, 21)
	m.Graph.Name = "identity"
	ty := onnx.Type{DataType: dt, HasShape: true}
	for range rank {
		ty.Dims = append(ty.Dims, onnx.Dim{Value: -1})
	}
	x := m.Graph.AddInput("x", ty)
	y := m.Graph.NewValue("y")
	y.SetType(ty)
	m.Graph.AddNode("Identity", []*onnx.Value{x}, []*onnx.Value{y})
	m.Graph.AddOutput(y)
	return write(t, m)
}

func write(t *testing.T, m *onnx.Model) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "model.onnx")
	if err := onnx.Write(path, m); err != nil {
		t.Fatal(err)
	}
	return path
}

func open(t *testing.T, path string, options ...ort.Option) *ort.Session {
	t.Helper()
	s, err := ort.Open(path, append([]ort.Option{ort.WithLibrary(orttest.Library(t)), ort.WithThreads(1)},
		options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func tensor(t *testing.T, name string, dt onnx.DataType, dims []int64) *onnx.Tensor {
	t.Helper()
	size := (&onnx.Tensor{DataType: dt, Dims: dims}).Size()
	raw := make([]byte, size)
	for i := range raw {
		raw[i] = byte(i*7 + 1)
		if dt == onnx.Bool {
			raw[i] &= 1
		}
	}
	x, err := onnx.NewTensor(name, dt, dims, raw)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func TestEveryTypeComesBack(t *testing.T) {
	types := []onnx.DataType{onnx.Float, onnx.Double, onnx.Float16, onnx.BFloat16, onnx.Bool, onnx.Int8, onnx.Int16,
		onnx.Int32,
		onnx.Int64, onnx.Uint8, onnx.Uint16, onnx.Uint32, onnx.Uint64, onnx.Float8E4M3FN, onnx.Float8E5M2}
	for _, dt := range types {
		t.Run(dt.String(), func(t *testing.T) {
			s := open(t, identity(t, dt, 2), ort.WithOptimization(ort.OptimizeNone))
			if got := s.Inputs()[0]; got.Name != "x" || got.DataType != dt || len(got.Dims) != 2 {
				t.Errorf("input is described as %s", got)
			}
			for _, dims := range [][]int64{{2, 3}, {1, 1}, {0, 3}, {3, 0}} {
				x := tensor(t, "x", dt, dims)
				out, err := s.Run([]*onnx.Tensor{x})
				if err != nil {
					t.Errorf("%v: %v", dims, err)
					continue
				}
				want, _ := x.Bytes()
				got, _ := out[0].Bytes()
				if out[0].Name != "y" || out[0].DataType != dt || len(out[0].Dims) != 2 || out[0].Dims[0] != dims[0] ||
					!bytes.Equal(got, want) {
					t.Errorf("%v came back as %q %s%v %v, want %v", dims, out[0].Name, out[0].DataType, out[0].Dims,
						got, want)
				}
			}
		})
	}
}

// TestPackedInput casts 4-bit integers, two per byte, because Identity has no kernel for them.
func TestPackedInput(t *testing.T) {
	m := onnx.New(10, 21)
	m.Graph.Name = "cast"
	dims := []onnx.Dim{{Value: 3}}
	x := m.Graph.AddInput("x", onnx.Type{DataType: onnx.Int4, HasShape: true, Dims: dims})
	y := m.Graph.NewValue("y")
	y.SetType(onnx.Type{DataType: onnx.Int8, HasShape: true, Dims: dims})
	m.Graph.AddNode("Cast", []*onnx.Value{x}, []*onnx.Value{y}, onnx.IntAttr("to", int64(onnx.Int8)))
	m.Graph.AddOutput(y)
	in, err := onnx.NewTensor("x", onnx.Int4, []int64{3}, []byte{0xf1, 0x07})
	if err != nil {
		t.Fatal(err)
	}
	out, err := open(t, write(t, m)).Run([]*onnx.Tensor{in})
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := out[0].Bytes(); !bytes.Equal(got, []byte{1, 0xff, 7}) {
		t.Errorf("got %v, want 1, -1, 7", got)
	}
}

func TestScalar(t *testing.T) {
	s := open(t, identity(t, onnx.Float, 0))
	out, err := s.Run([]*onnx.Tensor{onnx.NewFloat32s("x", []int64{}, []float32{2.5})})
	if err != nil || len(out[0].Dims) != 0 || out[0].Size() != 4 {
		t.Fatal(out, err)
	}
}

func TestUnalignedInput(t *testing.T) {
	s := open(t, identity(t, onnx.Double, 1))
	raw := append(make([]byte, 0, 33), make([]byte, 33)...)[1:]
	raw[0] = 3
	x, err := onnx.NewTensor("x", onnx.Double, []int64{4}, raw)
	if err != nil {
		t.Fatal(err)
	}
	out, err := s.Run([]*onnx.Tensor{x})
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := out[0].Bytes(); !bytes.Equal(got, raw) {
		t.Error(got)
	}
}

func TestInputErrors(t *testing.T) {
	path := identity(t, onnx.Float16, 2)
	s := open(t, path)
	good := tensor(t, "x", onnx.Float16, []int64{2, 2})
	for _, c := range []struct {
		inputs []*onnx.Tensor
		want   string
	}{
		{nil, `missing input "x": float16[?,?]`},
		{[]*onnx.Tensor{tensor(t, "x", onnx.Float, []int64{2, 2})},
			`input "x" is float32[2 2], but the model needs "x": float16[?,?]`},
		{[]*onnx.Tensor{tensor(t, "x", onnx.Float16, []int64{4})}, `input "x" is float16[4]`},
		{[]*onnx.Tensor{good, good}, `input "x" is given twice`},
		{[]*onnx.Tensor{good, tensor(t, "z", onnx.Float, nil)}, `no input "z"`},
	} {
		_, err := s.Run(c.inputs)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), path) {
			t.Errorf("got error %v, want one with %q", err, c.want)
		}
	}
	unnamed := tensor(t, "", onnx.Float16, []int64{2, 2})
	if _, err := s.Run([]*onnx.Tensor{unnamed}); err != nil {
		t.Error("by position:", err)
	}
}

func TestOpenErrors(t *testing.T) {
	library := ort.WithLibrary(orttest.Library(t))
	if _, err := ort.Open(filepath.Join(t.TempDir(), "none.onnx"), library); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	path := filepath.Join(t.TempDir(), "broken.onnx")
	if err := os.WriteFile(path, []byte("this is no model"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := ort.Open(path, library); err == nil || !strings.HasPrefix(err.Error(), path) {
		t.Error(err)
	}
	if _, err := ort.OpenBytes([]byte("neither"), "here.onnx", library); err == nil ||
		!strings.HasPrefix(err.Error(), "here.onnx") {
		t.Error(err)
	}
	if _, err := ort.OpenBytes(nil, "", library); err == nil {
		t.Error("an empty model was opened")
	}
	if _, err := ort.Open(identity(t, onnx.Float, 1), library, ort.WithThreads(-1)); err == nil {
		t.Error("-1 threads were accepted")
	}
	if _, err := ort.Open(identity(t, onnx.Float, 1), library, ort.WithKernelLibrary("/no/kernels.so")); err == nil ||
		!strings.Contains(err.Error(), "/no/kernels.so") {
		t.Error(err)
	}
}

func TestRunsAreConcurrentAndCloseWaits(t *testing.T) {
	s := open(t, identity(t, onnx.Float, 1))
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for range 50 {
				out, err := s.Run([]*onnx.Tensor{onnx.NewFloat32s("x", []int64{2}, []float32{float32(g), 1})})
				if errors.Is(err, ort.ErrClosed) {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
				want, _ := onnx.NewFloat32s("", []int64{2}, []float32{float32(g), 1}).Bytes()
				if got, _ := out[0].Bytes(); !bytes.Equal(got, want) {
					t.Errorf("goroutine %d got %v", g, got)
				}
			}
		})
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	wg.Wait()
	if err := s.Close(); err != nil {
		t.Error("closing twice:", err)
	}
	if _, err := s.Run(nil); !errors.Is(err, ort.ErrClosed) {
		t.Error(err)
	}
	if _, err := s.EndProfiling(); !errors.Is(err, ort.ErrClosed) {
		t.Error(err)
	}
}

func TestDimension(t *testing.T) {
	s := open(t, increment(t), ort.WithDimension("n", 3), ort.WithDimension("unknown", 2))
	if got := s.Outputs()[0].String(); got != `"y": float32[3]` {
		t.Errorf("the output is %s", got)
	}
	if _, err := s.Run([]*onnx.Tensor{floats("x", 1, 2)}); err == nil || !strings.Contains(err.Error(), "float32[3]") {
		t.Errorf("two elements where three are fixed: %v", err)
	}
	must(t, second(s.Run([]*onnx.Tensor{floats("x", 1, 2, 3)})))
}

func TestContext(t *testing.T) {
	s := open(t, identity(t, onnx.Float, 1))
	x := []*onnx.Tensor{onnx.NewFloat32s("x", []int64{1}, []float32{1})}
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := s.RunContext(ctx, x); err != nil {
		t.Error(err)
	}
	cancel()
	if _, err := s.RunContext(ctx, x); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestProfilingAndOptimizedModel(t *testing.T) {
	dir := t.TempDir()
	optimized := filepath.Join(dir, "optimized.onnx")
	s := open(t, identity(t, onnx.Float, 1), ort.WithProfiling(filepath.Join(dir, "profile")),
		ort.WithOptimizedModel(optimized),
		ort.WithOptimization(ort.OptimizeBasic), ort.WithConfig("session.use_env_allocators", "0"))
	if _, err := s.Run([]*onnx.Tensor{onnx.NewFloat32s("x", []int64{1}, []float32{1})}); err != nil {
		t.Fatal(err)
	}
	path, err := s.EndProfiling()
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var events []any
	if err := json.Unmarshal(b, &events); err != nil || len(events) == 0 {
		t.Errorf("%d events, %v", len(events), err)
	}
	if _, err := onnx.Read(optimized); err != nil {
		t.Error(err)
	}
	if _, err := open(t, identity(t, onnx.Float, 1)).EndProfiling(); err == nil {
		t.Error("a session without profiling has a profile")
	}
}

func TestOpenBytes(t *testing.T) {
	m := onnx.New(10, 21)
	m.Graph.Name = "add"
	ty := onnx.Type{DataType: onnx.Float, HasShape: true, Dims: []onnx.Dim{{Value: 2}}}
	x := m.Graph.AddInput("x", ty)
	w := m.Graph.AddInitializer(onnx.NewFloat32s("w", []int64{2}, []float32{10, 20}))
	y := m.Graph.NewValue("y")
	y.SetType(ty)
	m.Graph.AddNode("Add", []*onnx.Value{x, w}, []*onnx.Value{y})
	m.Graph.AddOutput(y)
	path := filepath.Join(t.TempDir(), "model.onnx")
	if err := onnx.Write(path, m, onnx.ExternalDataOver(1)); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	library := ort.WithLibrary(orttest.Library(t))
	s, err := ort.OpenBytes(b, path, library)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	out, err := s.Run([]*onnx.Tensor{onnx.NewFloat32s("x", []int64{2}, []float32{1, 2})})
	if err != nil {
		t.Fatal(err)
	}
	want, _ := onnx.NewFloat32s("", []int64{2}, []float32{11, 22}).Bytes()
	if got, _ := out[0].Bytes(); !bytes.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if _, err := ort.OpenBytes(b, "", library); err == nil {
		t.Error("external data were found without a path")
	}
}
