//go:build cgo

package quantized_test

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/mojo-patch/mojo-patch/internal/cputime"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/mojo-patch/mojo-patch/rewrite/registry"
	"github.com/mojo-patch/mojo-patch/rewrite/rewritetest"
	"github.com/mojo-patch/mojo-patch/rewrite/target"
)

// Limits for one fuzzed model.
const (
	fuzzTime  = 20 * time.Second
	fuzzAlloc = 1 << 30
)

func stored(form int, typ onnx.DataType) func(*testing.T) *onnx.Model {
	return func(t *testing.T) *onnx.Model { return rewritetest.StoredModel(t, rewritetest.StoredForms[form], typ) }
}

// quantizedKinds build models with every op with quantized weights.
var quantizedKinds = []func(t *testing.T) *onnx.Model{
	stored(0, onnx.Float), stored(2, onnx.Float16), stored(6, onnx.Float),
	func(t *testing.T) *onnx.Model {
		m, list := mixtures(t, onnx.Float, 1, "out_in")
		if _, err := rewrite.Quantize(m, list, "int16", rewrite.Request{}); err != nil {
			t.Fatal(err)
		}
		return m
	},
	func(t *testing.T) *onnx.Model {
		m := newOther(t, onnx.Float)
		m.nBits(4, 32, 96, m.random(onnx.Uint8, 21, 2), nil, m.random(onnx.Float, 21))
		return m.Model
	},
	func(t *testing.T) *onnx.Model {
		m := newOther(t, onnx.Float)
		m.add(onnx.Microsoft, "GatherBlockQuantized", []*onnx.Value{m.random(onnx.Uint8, 21, 48), m.ids(),
			m.random(onnx.Float, 21, 3), m.random(onnx.Uint8, 21, 2)}, 96, onnx.IntAttr("bits", 4),
			onnx.IntAttr("block_size", 32))
		return m.Model
	},
	func(t *testing.T) *onnx.Model {
		m := newOther(t, onnx.Float)
		m.product(m.Op("DequantizeLinear", m.random(onnx.Uint4, 96, 21), m.random(onnx.Float, 3, 21),
			m.random(onnx.Uint4, 3, 21), onnx.IntAttr("axis", 0), onnx.IntAttr("block_size", 32)))
		return m.Model
	},
	func(t *testing.T) *onnx.Model {
		m := newOther(t, onnx.Float)
		x := m.Input("x", 5, 64)
		m.add(onnx.Microsoft, "QMoE", []*onnx.Value{x, m.Op("MatMul", x, m.random(onnx.Float, 64, 3)),
			m.random(onnx.Uint8, 3, 64, 32), m.random(onnx.Float, 3, 64, 2), nil, m.random(onnx.Uint8, 3, 64, 16),
			m.random(onnx.Float, 3, 64, 1)}, 64, onnx.IntAttr("k", 2), onnx.IntAttr("normalize_routing_weights", 1),
			onnx.IntAttr("expert_weight_bits", 4), onnx.IntAttr("weights_prepacked", 0), onnx.IntAttr("block_size", 32),
			onnx.StringAttr("activation_type", "swiglu"), onnx.IntAttr("swiglu_fusion", 1))
		return m.Model
	},
}

// FuzzQuantized corrupts attributes, inputs and shapes of ops with quantized weights. All readers must return a model
// or an error, within time and memory limits.
//
//	go test -fuzz FuzzQuantized ./rewrite/quantized
func FuzzQuantized(f *testing.F) {
	for kind := range quantizedKinds {
		for i := range 5 {
			edits := make([]byte, 8*(1+i%3))
			for k := range edits {
				edits[k] = byte(37*i + 11*k*(i+1) + 5*kind)
			}
			f.Add(byte(kind), edits)
		}
	}
	b, err := registry.ParseBackend("+CPU")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, kind byte, edits []byte) {
		m := quantizedKinds[int(kind)%len(quantizedKinds)](t)
		lie(m, edits)
		bytes, err := onnx.Marshal(m)
		if err != nil {
			return
		}
		path := filepath.Join(t.TempDir(), "model.onnx")
		if err := os.WriteFile(path, bytes, 0o666); err != nil {
			t.Fatal(err)
		}
		for what, run := range map[string]func(m *onnx.Model) error{
			"own": func(m *onnx.Model) error {
				_, err := rewrite.Apply(m, rewrite.Request{AssumeAvailable: true, Backend: b, OwnProducts: "int16",
					Merge: rewrite.MergeAll})
				return err
			},
			"ort":  func(m *onnx.Model) error { return lowered(m, "ort") },
			"onnx": func(m *onnx.Model) error { return lowered(m, "onnx") },
			"run": func(m *onnx.Model) error {
				e, err := reference.New(m, reference.Options{})
				if err == nil {
					_, err = e.Run(someInputs(m))
				}
				return err
			},
		} {
			m, err := onnx.Read(path)
			if err != nil {
				return
			}
			limited(t, what, func() {
				if err := run(m); err == nil {
					if _, err := onnx.Marshal(m); err != nil {
						t.Errorf("%s: what was made cannot be written: %v", what, err)
					}
				}
			})
			m.Close()
		}
	})
}

// someInputs returns small inputs with the declared types and shapes.
func someInputs(m *onnx.Model) map[string]*reference.Tensor {
	in := map[string]*reference.Tensor{}
	for _, v := range m.Graph.Inputs {
		typ, _ := v.Type()
		n, shape := 1, make([]int, len(typ.Dims))
		for i, d := range typ.Dims {
			if shape[i] = int(d.Value); d.Value < 0 {
				shape[i] = 2
			}
			n *= shape[i]
		}
		if typ.DataType.IsFloat() {
			in[v.Name] = reference.NewFloats(typ.DataType, shape, slices.Repeat([]float64{0.5}, n))
		} else {
			in[v.Name] = reference.NewInts(typ.DataType, shape, make([]int64, n))
		}
	}
	return in
}

func lowered(m *onnx.Model, name string) error {
	to, err := target.Lookup(name)
	if err == nil {
		_, err = rewrite.Apply(m, rewrite.Request{Target: to, AccuracyLevel: 4})
	}
	return err
}

// limited checks that f ends soon and allocates little memory.
func limited(t *testing.T, what string, f func()) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := cputime.Used()
	f()
	runtime.ReadMemStats(&after)
	if took := cputime.Used() - start; took > fuzzTime {
		t.Errorf("%s: it took %v", what, took)
	}
	if n := after.TotalAlloc - before.TotalAlloc; n > fuzzAlloc {
		t.Errorf("%s: it took %d MB in all", what, n>>20)
	}
}

// lies are numbers to put into attributes and dimensions.
var lies = []int64{0, 1, 2, 3, 4, 8, 15, 16, 17, 31, 32, 33, 48, 64, 96, 128, 256, 1 << 20, math.MaxInt32, 1 << 33,
	math.MaxInt64, -1, -32, math.MinInt64}

// lie changes a model, guided by groups of 8 bytes.
func lie(m *onnx.Model, edits []byte) {
	for ; len(edits) >= 8; edits = edits[8:] {
		n := m.Graph.Nodes[int(edits[0])%len(m.Graph.Nodes)]
		number := lies[int(edits[4])%len(lies)]
		switch which := int(edits[2]); edits[1] % 7 {
		case 0, 1: // an attribute
			if len(n.Attributes) == 0 {
				continue
			}
			a := n.Attributes[which%len(n.Attributes)]
			switch a.Type {
			case onnx.AttrInt:
				n.SetAttr(onnx.IntAttr(a.Name, number))
			case onnx.AttrString:
				words := []string{"int4", "int8", "e2m1", "e4m3", "float", "int16", "fp8", "silu", "none", "halves", ""}
				n.SetAttr(onnx.StringAttr(a.Name, words[int(edits[3])%len(words)]))
			case onnx.AttrFloat:
				n.SetAttr(onnx.FloatAttr(a.Name, math.Float32frombits(binary.LittleEndian.Uint32(edits[4:]))))
			}
		case 2: // an attribute is left out
			if len(n.Attributes) > 0 {
				i := which % len(n.Attributes)
				n.Attributes = slices.Delete(slices.Clone(n.Attributes), i, i+1)
			}
		case 3: // an input is another value, or none
			if len(n.Inputs) > 0 {
				values := append(m.Graph.Initializers(), m.Graph.Inputs...)
				values = append(values, nil)
				n.SetInput(which%len(n.Inputs), values[int(edits[3])%len(values)])
			}
		default: // a constant has another shape or type
			list := m.Graph.Initializers()
			v := list[which%len(list)]
			dims, typ := slices.Clone(v.Const.Dims), v.Const.DataType
			switch at := int(edits[3]); {
			case edits[1]%7 == 4 && len(dims) > 0:
				dims[at%len(dims)] = number
			case edits[1]%7 == 5 && len(dims) > 1:
				dims[0], dims[at%len(dims)] = dims[at%len(dims)], dims[0]
			case at%3 == 0:
				dims = append(dims, number)
			case at%3 == 1 && len(dims) > 0:
				dims = dims[1:]
			default:
				typ = []onnx.DataType{onnx.Float, onnx.Float16, onnx.Uint8, onnx.Int8, onnx.Int64, onnx.Uint4,
					onnx.Int4, onnx.Float8E4M3FN}[at/3%8]
			}
			size := int64(typ.Bits())
			for _, d := range dims {
				if size *= d; size <= 0 || size > 1<<20 {
					break
				}
			}
			if size >= 0 && size <= 1<<20 {
				if t, err := onnx.NewTensor(v.Name, typ, dims, make([]byte, (size+7)/8)); err == nil {
					v.Const = t
				}
			}
		}
	}
}
