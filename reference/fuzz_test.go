package reference

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"sort"
	"testing"
	"time"

	"github.com/mojo-patch/mojo-patch/internal/cputime"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/internal/elements"
	"github.com/mojo-patch/mojo-patch/reference/internal/tensor"
)

// The limits for one fuzzed graph, with those that FuzzEvaluate sets.
const (
	fuzzTime  = 10 * time.Second
	fuzzAlloc = 1 << 30
)

// FuzzEvaluate makes a small graph from arbitrary bytes, with random ops, attributes, shapes and numbers, and evaluates
// it. It must return complete tensors or a plain error, within the limits.
//
//	go test -fuzz FuzzEvaluate ./reference
func FuzzEvaluate(f *testing.F) {
	for i := range 64 {
		b := make([]byte, 200)
		for k := range b {
			b[k] = byte(k*k*7 + i*31 + k*i)
		}
		f.Add(b)
	}
	setLimits(f, 1<<16, 1<<10)
	f.Fuzz(func(t *testing.T, b []byte) {
		r := &source{b: b}
		m := r.model()
		e, err := New(m, Options{Exact: r.next(4) == 0})
		if err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		start := cputime.Used()
		out, err := e.Run(r.inputs(m))
		took := cputime.Used() - start
		runtime.ReadMemStats(&after)
		if took > fuzzTime {
			t.Errorf("it took %v\n%s", took, m.Graph.Text())
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > fuzzAlloc {
			t.Errorf("it took %d MB in all\n%s", n>>20, m.Graph.Text())
		}
		if errors.Is(err, errInternal) {
			t.Errorf("%v\n%s", err, m.Graph.Text())
		}
		for name, o := range out {
			if o != nil && !tensor.IsSequence(o) && len(o.F)+len(o.I)+len(o.S) != o.Len() {
				t.Errorf("output %s is %s with %d elements\n%s", name, o, len(o.F)+len(o.I)+len(o.S), m.Graph.Text())
			}
		}
	})
}

// setLimits lowers the limits of evaluations until the test ends.
func setLimits(tb testing.TB, elements, steps int) {
	e, l, s := tensor.MaxElements, tensor.MaxLive, tensor.MaxSteps
	tb.Cleanup(func() { tensor.MaxElements, tensor.MaxLive, tensor.MaxSteps = e, l, s })
	tensor.MaxElements, tensor.MaxLive, tensor.MaxSteps = elements, 4*elements, steps
}

// source turns bytes into choices; after their end it returns zeros.
type source struct{ b []byte }

func (r *source) next(n int) int {
	if len(r.b) == 0 {
		return 0
	}
	v := int(r.b[0])
	if r.b = r.b[1:]; n > 256 && len(r.b) > 0 {
		v = v<<8 | int(r.b[0])
		r.b = r.b[1:]
	}
	return v % n
}

var fuzzNumbers = []int64{0, 1, -1, 2, 3, 4, -2, -3, 5, 7, 8, 16, 100, 1 << 16, 1 << 31, 1 << 32, 1 << 60, 1 << 62,
	math.MaxInt64, math.MinInt64}

func (r *source) number() int64 {
	if r.next(3) > 0 {
		return int64(r.next(5))
	}
	return fuzzNumbers[r.next(len(fuzzNumbers))]
}

func (r *source) numbers() []int64 {
	v := make([]int64, r.next(5))
	for i := range v {
		v[i] = r.number()
	}
	return v
}

var fuzzOps = func() []string {
	var names []string
	for name := range table {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

var fuzzTypes = []onnx.DataType{onnx.Float, onnx.Int64, onnx.Float16, onnx.BFloat16, onnx.Int32, onnx.Bool, onnx.Uint8,
	onnx.Int4,
	onnx.Float8E4M3FN, onnx.Double, onnx.Uint64, onnx.Int8, onnx.String}

var fuzzInts = []string{"axis", "keepdims", "to", "batch_dims", "block_size", "num_outputs", "num_heads", "q_num_heads",
	"kv_num_heads", "k",
	"largest", "start", "end", "transA", "num_scan_inputs", "p", "num_groups", "blocksize", "allowzero",
	"rotary_embedding_dim", "new_axis",
	"noop_with_empty_axes", "exclusive", "reverse", "interleaved", "scale_after_cast", "group", "ceil_mode", "upper",
	"dtype", "bits"}

var fuzzLists = []string{"axes", "perm", "split", "pads", "shape", "starts", "ends", "strides", "kernel_shape",
	"dilations", "scan_input_axes",
	"scan_output_axes", "repeats", "axis", "output_shape"}

var fuzzStrings = map[string][]string{
	"equation":    {"ij,jk", "...i,i...->...", "a,b->ab->", "ii", ",", "i...j", "abcdefgh,hgfedcba->ah"},
	"mode":        {"reflect", "edge", "wrap", "constant", "CRD", "?"},
	"approximate": {"tanh", "none"},
	"reduction":   {"add", "mul", "max", "min", "none"},
	"auto_pad":    {"SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET"},
}

func (r *source) attributes() []*onnx.Attribute {
	var list []*onnx.Attribute
	for range r.next(5) {
		switch r.next(4) {
		case 0, 1:
			list = append(list, onnx.IntAttr(fuzzInts[r.next(len(fuzzInts))], r.number()))
		case 2:
			list = append(list, onnx.IntsAttr(fuzzLists[r.next(len(fuzzLists))], r.numbers()))
		default:
			names := make([]string, 0, len(fuzzStrings))
			for name := range fuzzStrings {
				names = append(names, name)
			}
			sort.Strings(names)
			name := names[r.next(len(names))]
			list = append(list, onnx.StringAttr(name, fuzzStrings[name][r.next(len(fuzzStrings[name]))]))
		}
	}
	return list
}

// model makes a graph of up to four inputs, eight nodes, and bodies in them.
func (r *source) model() *onnx.Model {
	m := onnx.New(10, []int64{21, 13, 18, 11, 7, 1, 25}[r.next(7)])
	g := m.Graph
	var known []*onnx.Value
	for i := range 1 + r.next(4) {
		known = append(known, g.AddInput(fmt.Sprintf("in%d", i), onnx.Type{}))
	}
	ops := fuzzOps()
	for range 1 + r.next(8) {
		name := ops[r.next(max(len(ops), 257))%len(ops)]
		domain := ""
		const ms = "com.microsoft:"
		if len(name) > len(ms) && name[:len(ms)] == ms {
			domain, name = ms[:len(ms)-1], name[len(ms):]
		}
		inputs := make([]*onnx.Value, r.next(6))
		for i := range inputs {
			switch r.next(6) {
			case 0: // omitted
			case 1, 2:
				inputs[i] = known[len(known)-1]
			default:
				inputs[i] = known[r.next(len(known))]
			}
		}
		outputs := make([]*onnx.Value, 1+r.next(3))
		for i := range outputs {
			outputs[i] = g.NewValue("v")
		}
		attrs := r.attributes()
		switch name {
		case "Constant", "ConstantOfShape":
			attrs = attrs[:0]
			if t, err := r.tensor().ToONNX("value"); err == nil {
				attrs = append(attrs, onnx.TensorAttr("value", t))
			}
		}
		seen := map[string]bool{}
		var unique []*onnx.Attribute
		for _, a := range attrs {
			if !seen[a.Name] {
				seen[a.Name] = true
				unique = append(unique, a)
			}
		}
		n := g.AddNode(name, inputs, outputs, unique...)
		n.Domain = domain
		known = append(known, outputs...)
	}
	for i := range 1 + r.next(2) {
		g.AddOutput(known[len(known)-1-min(i, len(known)-1)])
	}
	return m
}

func (r *source) inputs(m *onnx.Model) map[string]*Tensor {
	in := map[string]*Tensor{}
	for _, v := range m.Graph.Inputs {
		in[v.Name] = r.tensor()
	}
	return in
}

// tensor makes a small tensor, often of integers that may be a shape.
func (r *source) tensor() *Tensor {
	t := &Tensor{DataType: fuzzTypes[r.next(len(fuzzTypes))], Shape: make([]int, r.next(5))}
	for i := range t.Shape {
		t.Shape[i] = r.next(5)
	}
	for range t.Len() {
		v := r.number()
		switch {
		case t.DataType == onnx.String:
			t.S = append(t.S, fmt.Sprint(v))
		case t.IsFloat():
			x := float64(v)
			switch v {
			case math.MinInt64:
				x = math.Inf(-1)
			case math.MaxInt64:
				x = math.NaN()
			}
			t.F = append(t.F, elements.Round(t.DataType, x))
		case t.DataType == onnx.Bool:
			t.I = append(t.I, v&1)
		default:
			t.I = append(t.I, elements.Wrap(v, t.DataType))
		}
	}
	return t
}
