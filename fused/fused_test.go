package fused

import (
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused/internal/optest"
	"github.com/mojo-patch/mojo-patch/fused/linear"
	"github.com/mojo-patch/mojo-patch/onnx"
)

func normAttrs(axis int64, epsilon float32, after int64) []*onnx.Attribute {
	return []*onnx.Attribute{onnx.IntAttr("axis", axis), onnx.FloatAttr("epsilon", epsilon),
		onnx.IntAttr("scale_after_cast", after)}
}

func rotaryAttrs(interleaved, dim int64, side, layout string) []*onnx.Attribute {
	return []*onnx.Attribute{onnx.IntAttr("interleaved", interleaved), onnx.IntAttr("rotary_dim", dim),
		onnx.StringAttr("rotated_side", side), onnx.StringAttr("output_layout", layout)}
}

// halfRotary is the form of rotate_half: all channels, pairs of halves.
func halfRotary(dim int64) []*onnx.Attribute { return rotaryAttrs(0, dim, "first", "halves") }

// normRotaryAttrs returns the attributes of NormRotary, with the given attributes of its rotation.
func normRotaryAttrs(epsilon float32, after int64, rotary []*onnx.Attribute) []*onnx.Attribute {
	return append(normAttrs(-1, epsilon, after)[1:], rotary...)
}

func TestSupports(t *testing.T) {
	const f32, f16, bf16, f64 = onnx.Float, onnx.Float16, onnx.BFloat16, onnx.Double
	types := func(ts ...onnx.DataType) []onnx.DataType { return ts }
	x, w := []int64{2, 3, 8}, []int64{8}
	tests := []optest.SupportsCase{
		{"plain", rmsNorm, normAttrs(-1, 1e-6, 0), types(f32, f32), [][]int64{x, w}, ""},
		{"unknown shapes", rmsNorm, normAttrs(-1, 1e-6, 0), types(f32, f32), nil, ""},
		{"half with wide scale", rmsNorm, normAttrs(-1, 1e-6, 0), types(f16, f32), [][]int64{x, w}, ""},
		{"the same after the cast", rmsNorm, normAttrs(-1, 1e-6, 1), types(bf16, f32), [][]int64{x, w}, "not take"},
		{"wide with half scale", rmsNorm, normAttrs(-1, 1e-6, 1), types(f32, bf16), [][]int64{x, w}, ""},
		{"the same before the cast", rmsNorm, normAttrs(-1, 1e-6, 0), types(f32, f16), [][]int64{x, w}, "not take"},
		{"two halves", rmsNorm, normAttrs(-1, 1e-6, 0), types(f16, bf16), [][]int64{x, w}, "not take"},
		{"double", rmsNorm, normAttrs(-1, 1e-6, 0), types(f64, f64), [][]int64{x, w}, "not float64"},
		{"positive axis", rmsNorm, normAttrs(2, 1e-6, 0), types(f32, f32), [][]int64{x, w}, "axis"},
		{"two axes, one scale", rmsNorm, normAttrs(-2, 1e-6, 0), types(f32, f32), [][]int64{x, w}, "scale"},
		{"broadcast scale", rmsNorm, normAttrs(-1, 1e-6, 0), types(f32, f32), [][]int64{x, {1}}, "scale"},
		{"negative epsilon", rmsNorm, normAttrs(-1, -1, 0), types(f32, f32), nil, "epsilon"},
		{"missing attribute", rmsNorm, normAttrs(-1, 1, 0)[:2], types(f32, f32), nil, "scale_after_cast"},
		{"foreign attribute", rmsNorm, append(normAttrs(-1, 1, 0), onnx.IntAttr("stash", 1)), types(f32, f32), nil,
			"stash"},
		{"broadcast residual", addRMSNorm, normAttrs(-1, 1, 0), types(f32, f32, f32), [][]int64{x, {1, 3, 8}, w},
			"broadcast"},
		{"glu", gluOp, optest.GluAttrs("silu", 1.702, 7, 1), types(bf16, bf16), [][]int64{x, x}, ""},
		{"glu broadcasting", gluOp, optest.GluAttrs("silu", 1, 0, 0), types(f32, f32), [][]int64{x, w}, "broadcast"},
		{"glu of two types", gluOp, optest.GluAttrs("silu", 1, 0, 0), types(f32, f16), nil, "one type"},
		{"unknown activation", gluOp, optest.GluAttrs("relu", 1, 0, 0), types(f32, f32), nil, "relu"},
		{"gelu with alpha", gluOp, optest.GluAttrs("gelu", 2, 0, 0), types(f32, f32), nil, "alpha"},
		{"rotary", rotaryEmbedding, halfRotary(8), types(f32, f32, f32),
			[][]int64{{2, 4, 3, 8}, {2, 1, 3, 8}, {2, 1, 3, 8}},
			""},
		{"rotary, half tables", rotaryEmbedding, halfRotary(8), types(f32, f32, f32),
			[][]int64{{2, 4, 3, 8}, {3, 4}, {3, 4}}, ""},
		{"rotary, unknown tables", rotaryEmbedding, halfRotary(8), types(f32, f32, f32), nil, "unknown"},
		{"rotary, odd tables", rotaryEmbedding, halfRotary(8), types(f32, f32, f32), [][]int64{{3, 8}, {3, 6}, {3, 6}},
			"cos is [3 6]"},
		{"rotary, tables of two widths", rotaryEmbedding, halfRotary(8), types(f32, f32, f32),
			[][]int64{{3, 8}, {3, 8}, {3, 4}}, "cos and sin of one width, not 8 and 4"},
		{"rotary, large table", rotaryEmbedding, halfRotary(8), types(f32, f32, f32), [][]int64{{3, 8}, {5, 8}, {3, 8}},
			"cos that broadcasts to [A..., rotary_dim], here [3, 8], or"},
		{"rotary, table of a higher rank", rotaryEmbedding, halfRotary(8), types(f32, f32, f32),
			[][]int64{{3, 8}, {1, 3, 8}, {3, 8}}, "[A..., rotary_dim/2], here [3, 4]: cos is [1 3 8]"},
		{"rotary of an odd number", rotaryEmbedding, halfRotary(7), types(f32, f32, f32),
			[][]int64{{3, 8}, {3, 7}, {3, 7}},
			"even"},
		{"rotary of too much", rotaryEmbedding, halfRotary(10), types(f32, f32, f32),
			[][]int64{{3, 8}, {3, 10}, {3, 10}},
			"at most the last dimension"},
		{"partial rotary", rotaryEmbedding, rotaryAttrs(0, 4, "last", "halves"), types(f32, f32, f32),
			[][]int64{{3, 9}, {3, 4}, {3, 4}}, ""},
		{"partial rotary, wide tables", rotaryEmbedding, halfRotary(4), types(f32, f32, f32),
			[][]int64{{3, 8}, {3, 8}, {3, 8}}, "here [3, 4], or [A..., rotary_dim/2], here [3, 2]"},
		{"interleaved rotary", rotaryEmbedding, rotaryAttrs(1, 8, "first", "halves"), types(bf16, bf16, bf16),
			[][]int64{{3, 8}, {3, 8}, {3, 8}}, ""},
		{"rotary, interleaved otherwise", rotaryEmbedding, rotaryAttrs(2, 8, "first", "halves"), types(f32, f32, f32),
			[][]int64{{3, 8}, {3, 8}, {3, 8}}, "interleaved is 2"},
		{"rotary of the middle", rotaryEmbedding, rotaryAttrs(0, 8, "middle", "halves"), types(f32, f32, f32),
			[][]int64{{3, 8}, {3, 8}, {3, 8}}, "rotated_side"},
		{"rotary, unknown layout", rotaryEmbedding, rotaryAttrs(0, 8, "first", ""), types(f32, f32, f32),
			[][]int64{{3, 8}, {3, 8}, {3, 8}}, "output_layout"},
		{"norm and rotary", normRotary, normRotaryAttrs(1e-6, 0, halfRotary(8)), types(f32, f32, f32, f32),
			[][]int64{{2, 4, 3, 8}, w, {3, 8}, {3, 8}}, ""},
		{"norm and rotary, half with wide scale", normRotary, normRotaryAttrs(1e-6, 0, halfRotary(8)),
			types(f16, f32, f16, f16), [][]int64{x, w, {3, 4}, {3, 4}}, ""},
		{"norm and rotary, wide with half scale", normRotary, normRotaryAttrs(1e-6, 1, halfRotary(8)),
			types(f32, bf16, bf16, bf16), [][]int64{x, w, {3, 4}, {3, 4}}, ""},
		{"norm and rotary, part of the channels", normRotary,
			normRotaryAttrs(1e-6, 0, rotaryAttrs(1, 4, "last", "halves")),
			types(f32, f32, f32, f32), [][]int64{x, w, {3, 4}, {3, 4}}, ""},
		{"norm and rotary, tables of X's type", normRotary, normRotaryAttrs(1e-6, 1, halfRotary(8)),
			types(f32, bf16, f32, f32), [][]int64{x, w, {3, 4}, {3, 4}},
			"type of the norm's result, bfloat16: cos is float32"},
		{"norm and rotary, no such norm", normRotary, normRotaryAttrs(1e-6, 1, halfRotary(8)),
			types(f16, f32, f32, f32),
			[][]int64{x, w, {3, 4}, {3, 4}}, "mojo.NormRotary does not take"},
		{"norm and rotary, scale of another width", normRotary, normRotaryAttrs(1e-6, 0, halfRotary(8)),
			types(f32, f32, f32, f32), [][]int64{x, {4}, {3, 8}, {3, 8}}, "scale"},
		{"norm and rotary, scale of two axes", normRotary, normRotaryAttrs(1e-6, 0, halfRotary(8)),
			types(f32, f32, f32, f32), [][]int64{x, {3, 8}, {3, 8}, {3, 8}}, "scale"},
		{"norm and rotary, unknown tables", normRotary, normRotaryAttrs(1e-6, 0, halfRotary(8)),
			types(f32, f32, f32, f32),
			nil, "mojo.NormRotary needs the width of cos"},
		{"norm and rotary, odd tables", normRotary, normRotaryAttrs(1e-6, 0, halfRotary(8)), types(f32, f32, f32, f32),
			[][]int64{x, w, {3, 6}, {3, 6}}, "cos is [3 6]"},
		{"norm and rotary, an axis", normRotary, append(normAttrs(-1, 1, 0), halfRotary(8)...),
			types(f32, f32, f32, f32),
			[][]int64{x, w, {3, 8}, {3, 8}}, "no attribute \"axis\""},
	}
	optest.RunSupports(t, tests)
}

func TestFunctionRefusesOldOpsets(t *testing.T) {
	s := Site{Attributes: normAttrs(-1, 1e-6, 0), Types: []onnx.DataType{onnx.Float, onnx.Float}, Opset: 12}
	if _, err := rmsNorm.Function(s); err == nil || !strings.Contains(err.Error(), "opset 13") {
		t.Errorf("got %v", err)
	}
}

// TestRotaryBodies checks that tables, layouts and sides choose the overload, and numbers do not, and that the body of
// the common form has no nodes for the other forms.
func TestRotaryBodies(t *testing.T) {
	site := func(interleaved, r int64, side, layout string, tables int64) Site {
		return Site{Attributes: rotaryAttrs(interleaved, r, side, layout), Opset: 20,
			Types: []onnx.DataType{onnx.Float, onnx.Float, onnx.Float},
			Dims:  [][]int64{{2, 3, 32}, {3, tables}, {3, tables}}}
	}
	overloads := map[string]bool{}
	for _, interleaved := range []int64{0, 1} {
		for _, layout := range []string{"halves", "interleaved"} {
			for _, side := range []string{"first", "last"} {
				for _, r := range []int64{8, 32} {
					for _, tables := range []int64{r, r / 2} {
						overloads[rotaryEmbedding.Overload(site(interleaved, r, side, layout, tables))] = true
					}
				}
			}
		}
	}
	if want := 2 * 2 * 2 * 3; len(overloads) != want { // tables, from, to, and first, last or all
		t.Errorf("%d overloads, want %d: %v", len(overloads), want, overloads)
	}
	few, more := site(1, 8, "last", "halves", 4), site(1, 12, "last", "halves", 6)
	if a, b := rotaryEmbedding.Overload(few), rotaryEmbedding.Overload(more); a != b {
		t.Errorf("the number of channels chooses the overload: %s, %s", a, b)
	}
	for name, want := range map[string]struct {
		site  Site
		nodes int
	}{
		"half_tables":                            {site(0, 32, "first", "halves", 16), 20},
		"wide_tables":                            {site(0, 32, "first", "halves", 32), 22},
		"half_tables_interleaved":                {site(1, 32, "first", "interleaved", 16), 34},
		"half_tables_halves_to_interleaved_last": {site(0, 8, "last", "interleaved", 4), 38},
	} {
		f, err := rotaryEmbedding.Function(want.site)
		if err != nil {
			t.Fatal(err)
		}
		if f.Overload != name || len(f.Body.Nodes) != want.nodes {
			t.Errorf("%s has %d nodes, want %s with %d", f.Overload, len(f.Body.Nodes), name, want.nodes)
		}
	}
}

func TestEveryParameterIsDocumented(t *testing.T) {
	for _, o := range Ops() {
		if Lookup(o.Name) != o || o.Summary == "" || len(o.Formula) == 0 || len(o.Types) == 0 || o.Source == "" {
			t.Errorf("%s: incomplete", o.Name)
		}
		for _, p := range append(append([]Param(nil), o.Inputs...), o.Outputs...) {
			if p.Dims == "" || p.Type == "" {
				t.Errorf("%s: parameter %s has no shape", o.Name, p.Name)
			}
		}
	}
}

// TestTheCatalogueIsWhole checks that the declarations are complete.
func TestTheCatalogueIsWhole(t *testing.T) {
	for _, o := range Ops() {
		if o.Family == nil || o.Family.Summary == "" || len(o.Devices) > 0 && !slices.Contains(o.Devices, CPU) {
			t.Errorf("%s: no family, or kernels for other devices, but not for the CPU", o.Name)
		}
		names := func(p Param) bool { // its type is a type, a variable that combinations have, or one that follows
			return o.TypeOf(p, o.Types[0]) != onnx.Undefined || o.Variable(p.Type) != nil
		}
		optional := false
		for _, p := range o.Inputs {
			if !names(p) || optional && !p.Optional {
				t.Errorf("%s: input %s has the type %s, or comes after inputs that may be left out", o.Name, p.Name,
					p.Type)
			}
			optional = p.Optional
		}
		for _, c := range o.Types {
			sites := o.Examples(c, 20)
			if len(sites) == 0 {
				t.Errorf("%s: no form has the types %v", o.Name, c)
			}
			for _, s := range sites {
				for i, typ := range o.OutputTypes(s) {
					if want := o.TypeOf(o.Outputs[i], c); typ != want {
						t.Errorf("%s: output %s of %v is %s, in the table of types %s", o.Name, o.Outputs[i].Name, c,
							typ, want)
					}
				}
				if f, err := o.Function(s); err != nil || len(f.Body.Outputs) != len(o.Outputs) {
					t.Errorf("%s.%s: no definition: %v", o.Name, o.Overload(s), err)
				}
			}
		}
	}
}

// TestFamilies lists each family once, in the order of the catalogue.
func TestFamilies(t *testing.T) {
	var want []*Family
	for _, o := range Ops() {
		if len(want) == 0 || want[len(want)-1] != o.Family {
			want = append(want, o.Family)
		}
	}
	if got := Families(); !slices.Equal(got, want) {
		t.Errorf("%d families, want %d", len(got), len(want))
	}
}

// TestPartial checks OnEvery, and that every value in Partial is a value of the attribute.
func TestPartial(t *testing.T) {
	for _, o := range Ops() {
		for _, p := range o.Partial {
			i := slices.IndexFunc(o.Attributes, func(a AttributeSpec) bool { return a.Name == p.Attribute })
			if i < 0 || !slices.Contains(o.Attributes[i].Values, p.Value) || !slices.Contains(o.Devices, p.Device) {
				t.Errorf("%s has no %s=%s on %s", o.Name, p.Attribute, p.Value, p.Device)
				continue
			}
			s := Site{Attributes: []*onnx.Attribute{onnx.StringAttr(p.Attribute, p.Value)}}
			if o.OnEvery(p.Device, s) || !o.OnEvery(CPU, s) {
				t.Errorf("%s with %s=%s is on every %s", o.Name, p.Attribute, p.Value, p.Device)
			}
		}
	}
	if linearOp.OnEvery(CUDA, Site{Attributes: []*onnx.Attribute{onnx.StringAttr("code", linear.CodeE4M3)}}) {
		t.Error("Linear multiplies e4m3 on every GPU")
	}
}

var rmsNorm, addRMSNorm, normRotary, rotaryEmbedding, gluOp, linearOp = Lookup(RMSNormName), Lookup(AddRMSNormName),
	Lookup(NormRotaryName), Lookup(RotaryEmbeddingName), Lookup(GLUName), Lookup(LinearName)
