package golden_test

import (
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// buffered makes a model whose cache k is a buffer; its length is a symbol or a number.
func buffered(length string) *onnx.Model {
	m := decoder(spec{"input_ids", onnx.Int64, "b s"}, spec{"attention_mask", onnx.Int64, "b t"},
		spec{"k", onnx.Float, "b =2 " + length + " =1"})
	g := m.Graph
	present := g.NewValue("present")
	n := g.AddNode("Attention", []*onnx.Value{nil, nil, nil, nil, g.Value("k"), nil, g.NewValue("length")},
		[]*onnx.Value{g.NewValue("y"), present})
	n.Domain = "mojo"
	g.AddOutput(present)
	return m
}

// counted returns a tensor of 1, 2, ….
func counted(name string, dims ...int64) *onnx.Tensor {
	var list []float32
	for i := range (&onnx.Tensor{Dims: dims}).Len() {
		list = append(list, float32(i+1))
	}
	return onnx.NewFloat32s(name, dims, list)
}

func numbers(t *testing.T, x *onnx.Tensor) []float32 {
	t.Helper()
	b, err := x.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	var list []float32
	for len(b) > 0 {
		list, b = append(list, math.Float32frombits(binary.LittleEndian.Uint32(b))), b[4:]
	}
	return list
}

// TestInBuffers puts the cache of a recorded case into buffers of any and of a fixed length.
func TestInBuffers(t *testing.T) {
	mask := onnx.NewInt64s("attention_mask", []int64{1, 1, 1})
	mask.Dims = []int64{1, 3}
	c := golden.Case{Inputs: []*onnx.Tensor{mask, counted("k", 1, 2, 2, 1)},
		Outputs: []*onnx.Tensor{counted("embedded", 1, 2, 1, 1), counted("present", 1, 2, 3, 1)}}
	for length, want := range map[string][2][]float32{
		"m":  {{1, 2, 0, 3, 4, 0}, {1, 2, 3, 4, 5, 6}},
		"=4": {{1, 2, 0, 0, 3, 4, 0, 0}, {1, 2, 3, 0, 4, 5, 6, 0}},
	} {
		got, err := golden.InBuffers(buffered(length), c)
		if err != nil {
			t.Fatal(err)
		}
		if k, p := numbers(t, got.Input("k")), numbers(t, got.Output("present")); !slices.Equal(k, want[0]) ||
			!slices.Equal(p, want[1]) || len(numbers(t, got.Output("embedded"))) != 2 {
			t.Errorf("%s: %v becomes %v", length, k, p)
		}
		again, err := golden.InBuffers(buffered(length), got)
		if err != nil || !slices.Equal(numbers(t, again.Input("k")), want[0]) {
			t.Errorf("%s: buffers become %v, %v", length, again.Input("k").Dims, err)
		}
	}
	if _, err := golden.InBuffers(buffered("=2"), c); err == nil ||
		!strings.Contains(err.Error(), `input "k" holds 2 tokens, but the case has 3`) {
		t.Error(err)
	}
	counted := buffered("=4")
	counted.Graph.Inputs = append(counted.Graph.Inputs, counted.Graph.Value("length"))
	counted.Graph.Value("length").SetType(onnx.Type{DataType: onnx.Int64, HasShape: true, Dims: []onnx.Dim{{Value: 1}}})
	got, err := golden.InBuffers(counted, c)
	if err != nil {
		t.Fatal(err)
	}
	shape(t, got.Input("attention_mask"), 1, 4)
	if n, m := ints(t, got.Input("length")), ints(t, got.Input("attention_mask")); !slices.Equal(n, []int64{2}) ||
		!slices.Equal(m, []int64{1, 1, 1, 0}) {
		t.Errorf("the length is %v, the mask %v", n, m)
	}
	grows := decoder(spec{"input_ids", onnx.Int64, "b s"}, spec{"k", onnx.Float, "b =2 p =1"})
	if got, err := golden.InBuffers(grows, c); err != nil || got.Input("k") != c.Input("k") {
		t.Errorf("a cache that grows: %v", err)
	}
}

// TestWithoutPast converts a case that says it has no past, whatever its past inputs hold.
func TestWithoutPast(t *testing.T) {
	mask := onnx.NewInt64s("attention_mask", []int64{1, 1})
	mask.Dims = []int64{1, 2}
	m := buffered("m")
	m.Graph.AddInput("use_cache_branch", onnx.Type{DataType: onnx.Bool, HasShape: true, Dims: []onnx.Dim{{Value: 1}}})
	for flag, want := range [][]float32{make([]float32, 4), {1, 2, 3, 4, 5, 6}} {
		use, err := onnx.NewTensor("use_cache_branch", onnx.Bool, []int64{1}, []byte{byte(flag)})
		if err != nil {
			t.Fatal(err)
		}
		c := golden.Case{Inputs: []*onnx.Tensor{mask, counted("k", 1, 2, 3, 1), use},
			Outputs: []*onnx.Tensor{counted("present", 1, 2, 2+int64(flag), 1)}}
		got, err := golden.InBuffers(m, c)
		if k := numbers(t, got.Input("k")); err != nil || !slices.Equal(k, want) {
			t.Errorf("%d: %v, %v", flag, k, err)
		}
	}
}

// TestRandomBuffers makes buffers that have room for the past and the new tokens.
func TestRandomBuffers(t *testing.T) {
	for _, test := range []struct {
		length     string
		dims       map[string]int64
		total, has int64
	}{{"m", nil, 10, 10}, {"m", map[string]int64{"past": 1, "m": 20}, 7, 20}, {"=8", nil, 8, 8},
		{"=9", map[string]int64{"past": 2}, 8, 9}, {"=3", nil, 6, 3}} {
		got := random(t, buffered(test.length), test.dims)
		shape(t, got["attention_mask"], 2, test.total)
		shape(t, got["k"], 2, 2, test.has, 1)
	}
}
