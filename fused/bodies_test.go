package fused

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused/internal/optest"
	"github.com/mojo-patch/mojo-patch/onnx"
)

type bodyCase struct {
	Op          string         `json:"op"`
	Inputs      []string       `json:"inputs"`
	Outputs     []string       `json:"outputs"`
	Types       []string       `json:"types"`
	OutputTypes []string       `json:"output_types"`
	Shapes      [][]int64      `json:"shapes"`
	Attributes  map[string]any `json:"attributes"`
	// Spread is the standard deviation of the inputs; 0: as check_bodies.py has it.
	Spread float64 `json:"spread,omitempty"`
}

// TestBodiesInOnnxruntime has onnx.checker check the bodies and onnxruntime run them with no kernel registered,
// optimized and not, at the opsets where bodies or the types of the standard's ops differ (with -short at three of
// them). If the library of kernels is built, the kernels, which know no opset, run on the inputs of the last one.
func TestBodiesInOnnxruntime(t *testing.T) {
	python := pythonWithOnnxruntime(t)
	dir := t.TempDir()
	opsets := []int64{13, 15, 17, 18, 21, 24}
	if testing.Short() {
		opsets = []int64{13, 18, 24}
	}
	for _, opset := range opsets {
		for name, bodies := range map[string]func(optest.AddCase, int64){"forms": addFormBodies,
			"dense":  addDenseBodies,
			"router": optest.AddRouterBodies, "moe": optest.AddMoEBodies} {
			for part, m := range modelsOfBodies(t, opset, bodies) {
				path := filepath.Join(dir, fmt.Sprintf("opset%d-%s-%d", opset, name, part))
				if err := onnx.Write(path+".onnx", m.model); err != nil {
					t.Fatal(err)
				}
				for i := range m.cases {
					if name == "forms" {
						m.cases[i].Spread = 1 // float16 has no room for the squares of more
					}
				}
				b, err := json.Marshal(m.cases)
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path+".json", b, 0o666); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	args := []string{"testdata/check_bodies.py", dir}
	library, err := FindLibrary("")
	if err != nil && os.Getenv(LibraryVariable) == "" {
		library, err = FindLibrary(filepath.Join("..", "build"))
	}
	if err == nil {
		args = append(args, library, fmt.Sprint(opsets[len(opsets)-1]))
	} else if !errors.Is(err, ErrNoLibrary) || os.Getenv("MOJO_REQUIRE_ORT") == "1" {
		t.Fatal(err)
	}
	out, err := exec.Command(python, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}

// pythonWithOnnxruntime returns a Python that has onnx and onnxruntime, or skips the test; with MOJO_REQUIRE_ORT=1 it
// fails instead.
func pythonWithOnnxruntime(t *testing.T) string {
	t.Helper()
	candidates := []string{os.Getenv("MOJO_PYTHON"), "../build/venv/bin/python", "python3"}
	for _, p := range candidates {
		if p != "" && exec.Command(p, "-c", "import onnx, onnxruntime, ml_dtypes").Run() == nil {
			return p
		}
	}
	if os.Getenv("MOJO_REQUIRE_ORT") == "1" {
		t.Fatal("no Python with onnx, onnxruntime and ml_dtypes, and MOJO_REQUIRE_ORT=1")
	}
	t.Skip("no Python with onnx, onnxruntime and ml_dtypes; set MOJO_PYTHON")
	return ""
}

// bodiesOfModel bounds the bodies in one model: onnxruntime takes time with the square of them.
var bodiesOfModel = 24

type bodiesModel struct {
	model *onnx.Model
	cases []bodyCase
}

// modelsOfBodies makes models of the cases that bodies adds.
func modelsOfBodies(t *testing.T, opset int64, bodies func(optest.AddCase, int64)) (list []*bodiesModel) {
	var last *bodiesModel
	bodies(func(op *Op, attrs []*onnx.Attribute, types []onnx.DataType, dims ...[]int64) {
		if last == nil || len(last.cases) == bodiesOfModel {
			last = &bodiesModel{model: onnx.New(10, opset)}
			last.model.ImportOpset(Domain, Version)
			list = append(list, last)
		}
		site := Site{Attributes: attrs, Types: types, Dims: dims, Opset: opset}
		last.cases = append(last.cases, addBody(t, last.model, op, site, len(last.cases)))
	}, opset)
	return list
}

// addFormBodies has every op of the catalogue: some of its forms and types at each opset, others at the next one.
func addFormBodies(add optest.AddCase, opset int64) {
	const most = 5
	for _, op := range Ops() {
		var sites []Site
		for _, c := range op.Types {
			sites = append(sites, op.Examples(c, opset)...)
		}
		step := max(1, len(sites)/most)
		for i := int(opset) % step; i < len(sites); i += step {
			add(op, sites[i].Attributes, sites[i].Types, sites[i].Dims...)
		}
	}
}

func addDenseBodies(add optest.AddCase, opset int64) {
	const f32, f16, bf16 = onnx.Float, onnx.Float16, onnx.BFloat16
	x, w, plane := []int64{2, 5, 64}, []int64{64}, []int64{5, 64}
	for _, after := range []int64{0, 1} {
		pairs := [][]onnx.DataType{{f32, f32}, {f16, f16}, {bf16, bf16}, {f16, f32}, {bf16, f32}}
		for _, p := range pairs {
			if after == 1 {
				p[0], p[1] = p[1], p[0]
			}
			add(rmsNorm, normAttrs(-1, 1e-6, after), p, x, w)
			add(addRMSNorm, normAttrs(-1, 1e-5, after), []onnx.DataType{p[0], p[0], p[1]}, x, x, w)
			n := p[after] // of the norm's result
			for _, tables := range []int64{64, 32} {
				add(normRotary, normRotaryAttrs(1e-6, after, halfRotary(64)), []onnx.DataType{p[0], p[1], n, n}, x, w,
					[]int64{5, tables}, []int64{2, 1, tables})
			}
			add(normRotary, normRotaryAttrs(1e-3, after, rotaryAttrs(after, 24, "last", "interleaved")),
				[]onnx.DataType{p[0], p[1], n, n}, x, w, []int64{24}, []int64{5, 24})
			add(normRotary, normRotaryAttrs(1e-3, after, rotaryAttrs(1-after, 24, "first", "halves")),
				[]onnx.DataType{p[0], p[1], n, n}, x, w, []int64{12}, []int64{5, 12})
		}
		add(rmsNorm, normAttrs(-2, 1e-3, after), []onnx.DataType{f32, f32}, x, plane)
	}
	for _, typ := range []onnx.DataType{f32, f16, bf16} {
		two := []onnx.DataType{typ, typ}
		for _, activation := range []string{"silu", "gelu", "gelu_tanh"} {
			add(gluOp, optest.GluAttrs(activation, 1, 0, 0), two, x, x)
			add(gluOp, optest.GluAttrs(activation, 1, 0.75, 0.25), two, x, x)
		}
		add(gluOp, optest.GluAttrs("silu", 1.702, 2, 1), two, x, x)
		three := []onnx.DataType{typ, typ, typ}
		add(rotaryEmbedding, halfRotary(16), three, []int64{2, 4, 3, 16}, []int64{2, 1, 3, 16}, []int64{2, 1, 3, 16})
		add(rotaryEmbedding, halfRotary(16), three, []int64{2, 4, 3, 16}, []int64{3, 8}, []int64{3, 8})
		if typ != f32 && opset != 13 && opset != 18 && opset != 24 {
			continue // bodies differ by opset only at 15 and 18
		}
		for _, interleaved := range []int64{0, 1} {
			for _, layout := range []string{"halves", "interleaved"} {
				for _, r := range []int64{16, 6} {
					for _, tables := range []int64{r, r / 2} {
						first, last := rotaryAttrs(interleaved, r, "first", layout),
							rotaryAttrs(interleaved, r, "last", layout)
						add(rotaryEmbedding, first, three, []int64{2, 3, 4, 16}, []int64{3, 1, tables},
							[]int64{2, 1, 1, tables})
						add(rotaryEmbedding, last, three, []int64{3, 1, 16}, []int64{tables}, []int64{3, 1, tables})
					}
				}
			}
		}
	}
}

func addBody(t *testing.T, m *onnx.Model, op *Op, s Site, number int) bodyCase {
	t.Helper()
	f, err := op.Function(s)
	if err != nil {
		t.Fatal(err)
	}
	if m.Function(f.Domain, f.Name, f.Overload) == nil {
		m.Functions = append(m.Functions, f)
	}
	c := bodyCase{Op: op.Name, Shapes: s.Dims, Attributes: map[string]any{}}
	var inputs, outputs []*onnx.Value
	cast := func(v *onnx.Value, name string, to onnx.DataType) *onnx.Value {
		w := m.Graph.NewValue(name)
		m.Graph.AddNode("Cast", []*onnx.Value{v}, []*onnx.Value{w}, onnx.IntAttr("to", int64(to)))
		return w
	}
	for i, typ := range s.Types {
		if typ == onnx.Undefined { // left out
			c.Inputs, c.Types = append(c.Inputs, ""), append(c.Types, "")
			inputs = append(inputs, nil)
			continue
		}
		name := fmt.Sprintf("%s_%d_%s", op.Name, number, op.Inputs[i].Name)
		v := m.Graph.AddInput(name, onnx.TensorType(onnx.Float, s.Dims[i]))
		c.Inputs, c.Types = append(c.Inputs, v.Name), append(c.Types, typ.String())
		inputs = append(inputs, cast(v, name+"_t", typ))
	}
	for _, p := range op.Outputs {
		outputs = append(outputs, m.Graph.NewValue(fmt.Sprintf("%s_%d_%s_t", op.Name, number, p.Name)))
	}
	n := m.Graph.AddNode(op.Name, inputs, outputs, s.Attributes...)
	n.Domain, n.Overload = Domain, f.Overload
	shapes := op.OutputShapes(s, func(a, _ int64) int64 { return a })
	for i, typ := range op.OutputTypes(s) {
		v := cast(outputs[i], fmt.Sprintf("%s_%d_%s", op.Name, number, op.Outputs[i].Name), onnx.Float)
		v.SetType(onnx.TensorType(onnx.Float, shapes[i]))
		m.Graph.AddOutput(v)
		c.Outputs, c.OutputTypes = append(c.Outputs, v.Name), append(c.OutputTypes, typ.String())
	}
	for _, a := range s.Attributes {
		switch a.Type {
		case onnx.AttrInt:
			c.Attributes[a.Name] = a.Int
		case onnx.AttrFloat:
			c.Attributes[a.Name] = a.Float
			if math.IsInf(float64(a.Float), 0) {
				c.Attributes[a.Name] = fmt.Sprint(a.Float) // JSON has no infinity
			}
		case onnx.AttrString:
			c.Attributes[a.Name] = a.String
		}
	}
	return c
}
