package golden_test

import (
	"bytes"
	"encoding/binary"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/onnx"
)

type spec struct {
	name string
	dt   onnx.DataType
	dims string // blank-separated symbols or numbers; ? for neither
}

// decoder makes the inputs of a language model, the first of which indexes a table of 50 rows.
func decoder(inputs ...spec) *onnx.Model {
	m := onnx.New(10, 21)
	for _, s := range inputs {
		ty := onnx.Type{DataType: s.dt, HasShape: true}
		for _, d := range strings.Fields(s.dims) {
			dim := onnx.Dim{Value: -1, Param: d}
			if d == "?" {
				dim.Param = ""
			} else if d[0] == '=' {
				dim = onnx.Dim{Value: int64(d[1] - '0')}
			}
			ty.Dims = append(ty.Dims, dim)
		}
		m.Graph.AddInput(s.name, ty)
	}
	table := m.Graph.AddInitializer(onnx.NewFloat32s("table", []int64{50, 1}, make([]float32, 50)))
	ids := m.Graph.NewValue("cast")
	m.Graph.AddNode("Cast", []*onnx.Value{m.Graph.Inputs[0]}, []*onnx.Value{ids}, onnx.IntAttr("to", int64(onnx.Int64)))
	out := m.Graph.NewValue("embedded")
	m.Graph.AddNode("Gather", []*onnx.Value{table, ids}, []*onnx.Value{out})
	m.Graph.AddOutput(out)
	return m
}

func random(t *testing.T, m *onnx.Model, dims map[string]int64) map[string]*onnx.Tensor {
	t.Helper()
	list, err := golden.RandomInputs(m, 7, dims)
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]*onnx.Tensor{}
	for _, x := range list {
		byName[x.Name] = x
	}
	return byName
}

func shape(t *testing.T, x *onnx.Tensor, want ...int64) {
	t.Helper()
	if !slices.Equal(x.Dims, want) {
		t.Errorf("%s is %v, want %v", x.Name, x.Dims, want)
	}
}

func ints(t *testing.T, x *onnx.Tensor) []int64 {
	t.Helper()
	b, err := x.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	var v []int64
	for e := range slices.Chunk(b, x.DataType.Bits()/8) {
		v = append(v, int64(binary.LittleEndian.Uint64(append(bytes.Clone(e), make([]byte, 8-len(e))...))))
	}
	return v
}

func TestRandomDecoder(t *testing.T) {
	for name, m := range map[string]*onnx.Model{
		"named": decoder(spec{"input_ids", onnx.Int64, "batch seq"}, spec{"attention_mask", onnx.Int64, "batch total"},
			spec{"position_ids", onnx.Int64, "batch seq"},
			spec{"past_key_values.0.key", onnx.Float16, "batch =2 past =4"}),
		"dynamo": decoder(spec{"tokens", onnx.Int32, "s10 s70"}, spec{"mask", onnx.Int64, "s43 s53"},
			spec{"positions", onnx.Int64, "s10 s70"}, spec{"cache_k", onnx.Float, "s10 2 s105 4"}),
		"expressions": decoder(spec{"input_ids", onnx.Int64, "b s"}, spec{"attention_mask", onnx.Int64, "b p+1"},
			spec{"position_ids", onnx.Int64, "b s"}, spec{"k", onnx.BFloat16, "b =2 p =4"}),
		"unnamed": decoder(spec{"input_ids", onnx.Int64, "? ?"}, spec{"attention_mask", onnx.Int64, "? ?"},
			spec{"position_ids", onnx.Int64, "? ?"}, spec{"k", onnx.Double, "? =2 ? =4"}),
	} {
		t.Run(name, func(t *testing.T) {
			check := func(dims map[string]int64, batch, sequence, past int64) {
				t.Helper()
				got := random(t, m, dims)
				in := m.Graph.Inputs
				ids, mask, positions, k := got[in[0].Name], got[in[1].Name], got[in[2].Name], got[in[3].Name]
				shape(t, ids, batch, sequence)
				shape(t, mask, batch, past+sequence)
				shape(t, positions, batch, sequence)
				shape(t, k, batch, 2, past, 4)
				for _, v := range ints(t, ids) {
					if v < 0 || v >= 50 {
						t.Errorf("id %d is outside the table", v)
					}
				}
				if v := ints(t, ids); len(v) > 4 && slices.Max(v) == slices.Min(v) {
					t.Error("all ids are equal")
				}
				for _, v := range ints(t, mask) {
					if v != 1 {
						t.Errorf("the mask holds %d", v)
					}
				}
				for i, v := range ints(t, positions) {
					if want := past + int64(i)%sequence; v != want {
						t.Errorf("position %d is %d, want %d", i, v, want)
					}
				}
			}
			check(nil, 2, 6, 4)
			check(map[string]int64{"batch": 1, "sequence": 1, "past": 9}, 1, 1, 9)
			check(map[string]int64{"past": 0}, 2, 6, 0)
		})
	}
}

func TestRandomBySymbols(t *testing.T) {
	m := decoder(spec{"input_ids", onnx.Int64, "n s"}, spec{"attention_mask", onnx.Int64, "n t"},
		spec{"k", onnx.Float, "n =2 p =4"})
	got := random(t, m, map[string]int64{"n": 3, "s": 2, "t": 7})
	shape(t, got["input_ids"], 3, 2)
	shape(t, got["attention_mask"], 3, 7)
	shape(t, got["k"], 3, 2, 5, 4)
	if _, err := golden.RandomInputs(m, 0, map[string]int64{"q": 1}); err == nil ||
		!strings.Contains(err.Error(), `"q"`) {
		t.Error(err)
	}
	if _, err := golden.RandomInputs(m, 0, map[string]int64{"n": -1}); err == nil {
		t.Error("a negative dimension was accepted")
	}

	fixed := random(t, decoder(spec{"input_ids", onnx.Int64, "=1 =3"}, spec{"attention_mask", onnx.Int64, "=1 =8"},
		spec{"k", onnx.Float, "? =2 p =4"}), nil)
	shape(t, fixed["k"], 1, 2, 5, 4)
}

func TestRandomOthers(t *testing.T) {
	m := decoder(spec{"input_ids", onnx.Int64, "b s"}, spec{"bias_mask", onnx.Float, "b =1 s s"},
		spec{"bool_mask", onnx.Bool, "b s"},
		spec{"use_cache_branch", onnx.Bool, "=1"}, spec{"lengths", onnx.Int32, "b"}, spec{"total", onnx.Int32, ""},
		spec{"logits_to_keep", onnx.Int64, ""})
	g := m.Graph
	v := func(name string) *onnx.Value { return g.Value(name) }
	n := g.AddNode("GroupQueryAttention", []*onnx.Value{v("embedded"), nil, nil, nil, nil, v("lengths"), v("total")},
		[]*onnx.Value{g.NewValue("attended")})
	n.Domain = "com.microsoft"
	got := random(t, m, nil)
	shape(t, got["bias_mask"], 2, 1, 6, 6)
	shape(t, got["lengths"], 2)
	if b, _ := got["bias_mask"].Bytes(); slices.Max(b) != 0 {
		t.Error("the mask that is added is not zero")
	}
	for name, want := range map[string]int64{"bool_mask": 1, "use_cache_branch": 0, "lengths": 5, "total": 6,
		"logits_to_keep": 1} {
		for _, x := range ints(t, got[name]) {
			if x != want {
				t.Errorf("%s holds %d, want %d", name, x, want)
			}
		}
	}
	if _, err := golden.RandomInputs(decoder(spec{"x", onnx.String, "n"}), 0, nil); err == nil ||
		!strings.Contains(err.Error(), `"x"`) {
		t.Error(err)
	}
}

// TestRandomThroughFunction follows the ids into a function whose other input is the table.
func TestRandomThroughFunction(t *testing.T) {
	f := onnx.NewFunction("local", "Embed", "", 21)
	i, w := f.Body.AddInput("i", onnx.Type{}), f.Body.AddInput("w", onnx.Type{})
	o := f.Body.NewValue("o")
	f.Body.AddNode("Gather", []*onnx.Value{w, i}, []*onnx.Value{o})
	f.Body.AddOutput(o)
	m := onnx.New(10, 21)
	m.Functions = append(m.Functions, f)
	ids := m.Graph.AddInput("x", onnx.Type{DataType: onnx.Int64, HasShape: true, Dims: []onnx.Dim{{Value: 9}}})
	table := m.Graph.AddInitializer(onnx.NewFloat32s("table", []int64{3}, make([]float32, 3)))
	n := m.Graph.AddNode("Embed", []*onnx.Value{ids, table}, []*onnx.Value{m.Graph.NewValue("y")})
	n.Domain = "local"
	v := ints(t, random(t, m, nil)["x"])
	if slices.Min(v) < 0 || slices.Max(v) > 2 || slices.Max(v) == slices.Min(v) {
		t.Errorf("ids are %v, the table has 3 rows", v)
	}
}

func TestRandomIsRepeatable(t *testing.T) {
	files, _ := filepath.Glob("../models/*.onnx")
	for _, file := range files {
		m, err := onnx.Read(file)
		if err != nil {
			t.Fatal(err)
		}
		a, errA := golden.RandomInputs(m, 1, nil)
		b, errB := golden.RandomInputs(m, 1, nil)
		c, errC := golden.RandomInputs(m, 2, nil)
		if errA != nil || errB != nil || errC != nil {
			t.Fatal(file, errA, errB, errC)
		}
		equal(t, b, a)
		differ := false
		for i := range a {
			x, _ := a[i].Bytes()
			y, _ := c[i].Bytes()
			differ = differ || !bytes.Equal(x, y)
		}
		if !differ {
			t.Errorf("%s: the seed changes nothing", file)
		}
		m.Close()
	}
}
