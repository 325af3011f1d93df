//go:build cgo

package ort_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/ort"
	"github.com/mojo-patch/mojo-patch/ort/orttest"
)

// bind opens a session with a binding on the provider under test.
func bind(t *testing.T, path string, options ...ort.Option) (*ort.Session, *ort.Binding) {
	t.Helper()
	s := open(t, path, append(options, orttest.Provider())...)
	b, err := s.Bind()
	if err != nil {
		t.Fatal(err)
	}
	return s, b
}

// device returns onnxruntime's name of the memory that sessions of the provider under test write to.
func device() string {
	if os.Getenv(orttest.ProviderVariable) == "CUDA" {
		return "Cuda"
	}
	return "Cpu"
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// outputs returns the outputs of the last run, on the host.
func outputs(t *testing.T, b *ort.Binding) []*onnx.Tensor {
	t.Helper()
	values, err := b.Outputs()
	must(t, err)
	var list []*onnx.Tensor
	for _, v := range values {
		if v.Device != device() {
			t.Errorf("output %q lies on %s, want %s", v.Name, v.Device, device())
		}
		x, err := v.Tensor()
		must(t, err, v.Close())
		list = append(list, x)
	}
	return list
}

func equal(t *testing.T, got, want *onnx.Tensor) {
	t.Helper()
	g, err := got.Bytes()
	must(t, err)
	w, err := want.Bytes()
	must(t, err)
	if got.DataType != want.DataType || len(got.Dims) != len(want.Dims) || !bytes.Equal(g, w) {
		t.Errorf("%s: got %s%v %v, want %s%v %v", got.Name, got.DataType, got.Dims, g, want.DataType, want.Dims, w)
	}
}

func TestBindingOfEveryType(t *testing.T) {
	for _, dt := range []onnx.DataType{onnx.Float, onnx.Double, onnx.Float16, onnx.BFloat16, onnx.Bool, onnx.Int32,
		onnx.Int64, onnx.Uint8} {
		t.Run(dt.String(), func(t *testing.T) {
			_, b := bind(t, identity(t, dt, 2), ort.WithOptimization(ort.OptimizeNone))
			for _, dims := range [][]int64{{2, 3}, {2, 3}, {4, 1}, {0, 3}} {
				x := tensor(t, "x", dt, dims)
				must(t, b.Input(x), b.Output("y"), b.Run(t.Context()))
				equal(t, outputs(t, b)[0], x)
			}
		})
	}
}

// increment is a model y = x + 1 whose output has the shape of its input.
func increment(t *testing.T) string {
	t.Helper()
	m := onnx.New(10, 21)
	m.Graph.Name = "increment"
	ty := onnx.Type{DataType: onnx.Float, HasShape: true, Dims: []onnx.Dim{{Value: -1, Param: "n"}}}
	x := m.Graph.AddInput("x", ty)
	one := m.Graph.AddInitializer(onnx.NewFloat32s("one", []int64{1}, []float32{1}))
	y := m.Graph.NewValue("y")
	y.SetType(ty)
	m.Graph.AddNode("Add", []*onnx.Value{x, one}, []*onnx.Value{y})
	m.Graph.AddOutput(y)
	return write(t, m)
}

func floats(name string, v ...float32) *onnx.Tensor {
	return onnx.NewFloat32s(name, []int64{int64(len(v))}, v)
}

// TestOutputIsTheNextInput runs a model on its own output without the host.
func TestOutputIsTheNextInput(t *testing.T) {
	_, b := bind(t, increment(t))
	must(t, b.Input(floats("x", 1, 2)))
	for range 3 {
		must(t, b.Output("y"), b.Run(t.Context()))
		values, err := b.Outputs()
		must(t, err, b.InputValue("x", values[0]), values[0].Close())
	}
	equal(t, outputs(t, b)[0], floats("y", 4, 5))
	must(t, b.Input(floats("x", 7, 8)), b.Output("y"), b.Run(t.Context()))
	equal(t, outputs(t, b)[0], floats("y", 8, 9))
}

// TestBoundMemoryStays checks the requirement of CUDA graphs: inputs and outputs are overwritten in place.
func TestBoundMemoryStays(t *testing.T) {
	s, b := bind(t, increment(t))
	y, err := s.Allocate("y", []int64{2})
	must(t, err, b.Input(floats("x", 1, 2)), b.OutputValue("y", y), b.Run(t.Context()))
	must(t, b.Input(floats("x", 5, 6)), b.Run(t.Context()))
	got, err := y.Tensor()
	must(t, err)
	equal(t, got, floats("y", 6, 7))

	x, err := s.Allocate("x", []int64{2})
	must(t, err, b.InputValue("x", x), x.Write(floats("x", 9, 9)), b.Run(t.Context()))
	equal(t, outputs(t, b)[0], floats("y", 10, 10))
	must(t, x.Write(floats("x", 3, 4)), b.Run(t.Context()))
	equal(t, outputs(t, b)[0], floats("y", 4, 5))

	must(t, x.CopyRow(1, 0), b.Run(t.Context()))
	equal(t, outputs(t, b)[0], floats("y", 4, 4))
	for _, bad := range [][2]int{{2, 0}, {0, -1}} {
		if err := x.CopyRow(bad[0], bad[1]); err == nil {
			t.Errorf("row %d was copied to row %d of 2", bad[1], bad[0])
		}
	}

	must(t, b.Input(floats("x", 1, 2, 3)))
	if err := b.Run(t.Context()); err == nil {
		t.Error("an output of three elements was written into one of two")
	}
	must(t, b.Output("y"), b.Run(t.Context()))
	equal(t, outputs(t, b)[0], floats("y", 2, 3, 4))
}

// TestQueue runs a model on its own output several times before it waits.
func TestQueue(t *testing.T) {
	s, b := bind(t, increment(t))
	x, err := s.Allocate("x", []int64{2})
	must(t, err, x.Write(floats("x", 1, 2)), b.InputValue("x", x), b.OutputValue("y", x))
	must(t, b.Queue(t.Context()), b.Queue(t.Context()), b.Run(t.Context()))
	got, err := x.Tensor()
	must(t, err)
	got.Name = "y"
	equal(t, got, floats("y", 4, 5))
	must(t, b.Close())
	if err := b.Queue(t.Context()); !errors.Is(err, ort.ErrClosed) {
		t.Errorf("a closed binding: %v", err)
	}
	cuda := []ort.Option{ort.WithThreads(1), ort.WithProvider("cuda", nil)}
	if !ort.HasProvider("CUDAExecutionProvider", cuda...) || ort.HasProvider("CUDA", cuda[0]) {
		t.Error("the provider of options is not found, or one that is not there")
	}
}

// TestBoundCache generates with a cache: each run reads the present of the last one as past, in place.
func TestBoundCache(t *testing.T) {
	path := "../models/llama-kv-dynamo-fp32.onnx"
	m, err := onnx.Read(path)
	must(t, err)
	defer m.Close()
	s, b := bind(t, path)
	first, err := golden.RandomInputs(m, 3, map[string]int64{"batch": 1, "sequence": 2, "past": 2})
	must(t, err)
	past := map[string]string{"present_k0": "past_k0", "present_v0": "past_v0", "present_k1": "past_k1",
		"present_v1": "past_v1"}
	fed := append([]*onnx.Tensor{}, first...)
	for _, x := range first {
		must(t, b.Input(x))
	}
	for step := range 3 {
		for _, o := range s.Outputs() {
			must(t, b.Output(o.Name))
		}
		must(t, b.Run(t.Context()))
		want, err := s.Run(fed)
		must(t, err)
		got := outputs(t, b)
		for i := range want {
			stats, err := golden.Compare(got[i], want[i], golden.Tolerance{Abs: 1e-5, Rel: 1e-5})
			if err != nil || !stats.Passed {
				t.Fatalf("step %d: %v %s", step, err, stats.Summary())
			}
		}
		next, err := golden.RandomInputs(m, uint64(step),
			map[string]int64{"batch": 1, "sequence": 2, "past": int64(4 + 2*step)})
		must(t, err)
		fed = fed[:0]
		for _, x := range next {
			if strings.HasPrefix(x.Name, "past") {
				continue
			}
			fed = append(fed, x)
			must(t, b.Input(x))
		}
		values, err := b.Outputs()
		must(t, err)
		for i, v := range values {
			if name := past[v.Name]; name != "" {
				must(t, b.InputValue(name, v))
				fed = append(fed, &onnx.Tensor{})
				fed[len(fed)-1] = renamed(t, want[i], name)
			}
			must(t, v.Close())
		}
	}
}

func renamed(t *testing.T, x *onnx.Tensor, name string) *onnx.Tensor {
	t.Helper()
	b, err := x.Bytes()
	must(t, err)
	x, err = onnx.NewTensor(name, x.DataType, x.Dims, b)
	must(t, err)
	return x
}

func TestBindingErrors(t *testing.T) {
	s, b := bind(t, increment(t))
	v, err := s.Allocate("y", []int64{2})
	must(t, err)
	for _, c := range []struct {
		err  error
		want string
	}{
		{b.Input(floats("z", 1)), `no input "z"`},
		{b.Input(tensor(t, "x", onnx.Float16, []int64{1})), `input "x" is float16[1]`},
		{b.InputValue("z", v), `no input "z"`},
		{b.Output("x"), `no output "x"`},
		{v.Write(floats("y", 1, 2, 3)), `cannot write float32[3] to "y", which is float32[2]`},
		{b.Run(t.Context()), "cannot run it"},
		{second(s.Allocate("q", []int64{2})), `no output "q"`},
		{second(s.Allocate("y", []int64{-1})), `"y" cannot be float32[-1]`},
	} {
		if c.err == nil || !strings.Contains(c.err.Error(), c.want) || !strings.HasPrefix(c.err.Error(), s.Path()) {
			t.Errorf("got error %v, want one with %q", c.err, c.want)
		}
	}
	must(t, b.Input(floats("x", 1, 2)), b.Output("y"))
	if _, err := b.Outputs(); err == nil || !strings.Contains(err.Error(), "not run") {
		t.Errorf("outputs before the first run: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	must(t, b.Run(ctx))
	cancel()
	if err := b.Run(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	must(t, b.Configure("memory.enable_memory_arena_shrinkage", "cpu:0"), b.Run(t.Context()))
	equal(t, outputs(t, b)[0], floats("y", 2, 3))
}

func second[T any](_ T, err error) error { return err }

// TestSessionClosesBindings closes a session before its bindings and values.
func TestSessionClosesBindings(t *testing.T) {
	s, b := bind(t, increment(t))
	must(t, b.Input(floats("x", 1, 2)), b.Output("y"), b.Run(t.Context()))
	values, err := b.Outputs()
	must(t, err, s.Close())
	_, tensorErr := values[0].Tensor()
	_, outputsErr := b.Outputs()
	_, bindErr := s.Bind()
	_, allocateErr := s.Allocate("x", []int64{1})
	for i, err := range []error{tensorErr, outputsErr, bindErr, allocateErr, b.Run(t.Context()),
		b.Input(floats("x", 1)), b.Output("y"),
		b.Configure("a", "b"), b.InputValue("x", values[0]), b.OutputValue("y", values[0]),
		values[0].Write(floats("y", 1, 2))} {
		if !errors.Is(err, ort.ErrClosed) {
			t.Errorf("call %d: %v", i, err)
		}
	}
	must(t, b.Close(), values[0].Close(), b.Close())
}

// TestHostOutput reads an output that the run put on the host.
func TestHostOutput(t *testing.T) {
	_, b := bind(t, increment(t))
	must(t, b.Input(floats("x", 1, 2)), b.HostOutput("y"), b.Run(t.Context()))
	values, err := b.Outputs()
	must(t, err)
	got, err := values[0].Bytes()
	must(t, err)
	want, err := floats("y", 2, 3).Bytes()
	must(t, err)
	if !bytes.Equal(got, want) || values[0].Device != "Cpu" {
		t.Errorf("%v on %s, want %v", got, values[0].Device, want)
	}
	must(t, values[0].Close())
	if _, err := values[0].Bytes(); !errors.Is(err, ort.ErrClosed) {
		t.Errorf("of a closed value: %v", err)
	}
}
