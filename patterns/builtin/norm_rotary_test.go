package builtin_test

import (
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// A norm and a rotation are joined if only the rotation needs the norm, and only transpositions of whole heads are
// between them. Otherwise both are still found.
func TestNormRotary(t *testing.T) {
	transpose := func(r *rotaryGraph, v *onnx.Value, perm ...int64) *onnx.Value {
		return r.Op("Transpose", v, onnx.IntsAttr("perm", perm))
	}
	cast := func(r *rotaryGraph, v *onnx.Value, to onnx.DataType) *onnx.Value {
		return r.Op("Cast", v, onnx.IntAttr("to", int64(to)))
	}
	rotate := func(r *rotaryGraph, x *onnx.Value) *onnx.Value {
		return r.rotateHalf(x, r.cut(x, 4, 8, 1), r.cut(x, 0, 4, 1))
	}
	const joined, both = "NormRotary", "RMSNorm RotaryEmbedding"
	for name, tt := range map[string]struct {
		build func(r *rotaryGraph) []*onnx.Value
		want  string // the patterns found, sorted
	}{
		"one behind the other": {func(r *rotaryGraph) []*onnx.Value {
			return []*onnx.Value{rotate(r, plainNorm.build(r.graph, r.x))}
		}, joined},
		"transposed in between": {func(r *rotaryGraph) []*onnx.Value {
			return []*onnx.Value{
				rotate(r, transpose(r, plainNorm.build(r.graph, r.input("heads", "batch", "seq", 2, headSize)), 0, 2, 1,
					3))}
		}, joined},
		"transposed twice, with an identity": {func(r *rotaryGraph) []*onnx.Value {
			v := transpose(r, plainNorm.build(r.graph, r.input("heads", 2, "seq", "batch", headSize)), 2, 1, 0, 3)
			return []*onnx.Value{rotate(r, transpose(r, r.Op("Identity", v), 0, 2, 1, 3))}
		}, joined},
		"no scale": {func(r *rotaryGraph) []*onnx.Value {
			mean := r.Op("ReduceMean", r.Op("Mul", r.x, r.x), []int64{-1}, onnx.IntAttr("keepdims", 1))
			return []*onnx.Value{rotate(r, r.Op("Div", r.x, r.Op("Sqrt", r.Op("Add", mean, 1e-6))))}
		}, joined},
		"cut by its own shape": {func(r *rotaryGraph) []*onnx.Value {
			n := plainNorm.build(r.graph, r.x)
			half := r.Op("Div", r.Op("Gather", r.Op("Shape", n), []int64{3}), []int64{2})
			upper := r.Op("Slice", n, half, []int64{99}, []int64{3}, []int64{1})
			return []*onnx.Value{r.rotateHalf(n, upper, r.Op("Slice", n, []int64{0}, half, []int64{3}, []int64{1}))}
		}, joined},
		"the norm is an output": {func(r *rotaryGraph) []*onnx.Value {
			n := plainNorm.build(r.graph, r.x)
			return []*onnx.Value{rotate(r, n), n}
		}, both},
		"the norm is read elsewhere": {func(r *rotaryGraph) []*onnx.Value {
			n := plainNorm.build(r.graph, r.x)
			return []*onnx.Value{rotate(r, n), r.Op("Abs", n)}
		}, both},
		"the transposed norm is read elsewhere": {func(r *rotaryGraph) []*onnx.Value {
			n := transpose(r, plainNorm.build(r.graph, r.input("heads", "batch", "seq", 2, headSize)), 0, 2, 1, 3)
			return []*onnx.Value{rotate(r, n), r.Op("Abs", n)}
		}, both},
		"the shape of the norm is read elsewhere": {func(r *rotaryGraph) []*onnx.Value {
			n := plainNorm.build(r.graph, r.x)
			return []*onnx.Value{rotate(r, n), r.Op("Abs", r.Op("Shape", n))}
		}, both},
		"a half of the norm is read elsewhere": {func(r *rotaryGraph) []*onnx.Value {
			n := plainNorm.build(r.graph, r.x)
			lower := r.cut(n, 0, 4, 1)
			return []*onnx.Value{r.rotateHalf(n, r.cut(n, 4, 8, 1), lower), r.Op("Abs", lower)}
		}, both},
		"rotated twice": {func(r *rotaryGraph) []*onnx.Value {
			n := plainNorm.build(r.graph, r.x)
			first := rotate(r, n)
			r.cos, r.sin = r.sin, r.cos
			return []*onnx.Value{first, rotate(r, n)}
		}, both + " RotaryEmbedding"},
		"cast in between": {func(r *rotaryGraph) []*onnx.Value {
			n := cast(r, plainNorm.build(r.graph, r.x), onnx.Float16)
			r.cos, r.sin = cast(r, r.cos, onnx.Float16), cast(r, r.sin, onnx.Float16)
			return []*onnx.Value{rotate(r, n)}
		}, both},
		"a norm of all heads": {func(r *rotaryGraph) []*onnx.Value {
			n := with(func(n *norm) { n.weight = 16 }).build(r.graph, r.input("rows", "batch", "seq", 16))
			return []*onnx.Value{rotate(r, transpose(r, r.Op("Reshape", n, []int64{0, 0, 2, headSize}), 0, 2, 1, 3))}
		}, both},
		"another axis becomes the last": {func(r *rotaryGraph) []*onnx.Value {
			r.cos, r.sin = r.input("cos of all", "batch", 1, headSize, headSize),
				r.input("sin of all", "batch", 1, headSize, headSize)
			return []*onnx.Value{
				rotate(r, transpose(r, plainNorm.build(r.graph, r.input("turned", "batch", 2, headSize, headSize)), 0,
					1, 3, 2))}
		}, both},
		"a scale for each head": {func(r *rotaryGraph) []*onnx.Value {
			inverse := r.Op("Reciprocal",
				r.Op("Sqrt", r.Op("Add",
					r.Op("ReduceMean", r.Op("Pow", r.x, 2.0), []int64{-1}, onnx.IntAttr("keepdims", 1)), 1e-6)))
			scale := r.Op("Reshape", r.weight(16), []int64{2, 1, headSize})
			return []*onnx.Value{rotate(r, r.Op("Mul", r.Op("Mul", r.x, inverse), scale))}
		}, both},
		"a norm of the centered heads": {func(r *rotaryGraph) []*onnx.Value {
			centered := r.Op("Sub", r.x, r.Op("ReduceMean", r.x, []int64{-1}))
			return []*onnx.Value{rotate(r, plainNorm.build(r.graph, centered))}
		}, "LayerNorm RotaryEmbedding"},
		"a transposition of what is wider": {func(r *rotaryGraph) []*onnx.Value {
			heads := r.input("heads", "batch", "seq", 2, headSize)
			inverse := r.Op("Reciprocal",
				r.Op("Sqrt", r.Op("Add",
					r.Op("ReduceMean", r.Op("Pow", heads, 2.0), []int64{-1}, onnx.IntAttr("keepdims", 1)), 1e-6)))
			n := r.Op("Mul", cast(r, r.Op("Mul", heads, inverse), onnx.Float16),
				cast(r, r.weight(headSize), onnx.Float16))
			r.cos, r.sin = cast(r, r.cos, onnx.Float16), cast(r, r.sin, onnx.Float16)
			return []*onnx.Value{rotate(r, transpose(r, n, 0, 2, 1, 3))}
		}, both},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRotary(headSize)
			matches, _ := r.find(tt.build(r)...)
			var got []string
			for _, m := range matches {
				pattern, _, _ := strings.Cut(m, "(")
				got = append(got, pattern)
			}
			if strings.Join(got, " ") != tt.want {
				t.Errorf("matched %v, want %s", matches, tt.want)
			}
		})
	}
}

// The joined match holds its parts, and its replacement transposes the norm's input.
func TestNormRotaryParts(t *testing.T) {
	r := newRotary(headSize)
	n := plainNorm.build(r.graph, r.input("heads", "batch", "seq", 2, headSize))
	x := r.Op("Transpose", n, onnx.IntsAttr("perm", []int64{0, 2, 1, 3}))
	y := r.rotateHalf(x, r.cut(x, 4, 8, 1), r.cut(x, 0, 4, 1))
	r.Graph.AddOutput(y)
	matches, _ := patterns.Builtin().Find(r.Graph, infer.Analyze(r.Model))
	if len(matches) != 1 || len(matches[0].Parts) != 2 {
		t.Fatalf("%d matches", len(matches))
	}
	m := matches[0]
	if got := names(m.Inputs) + "->" + names(m.Outputs); got != "heads,w,cos,sin->"+y.Name {
		t.Errorf("it reads and writes %s", got)
	}
	if len(m.Nodes) != len(m.Parts[0].Nodes)+1+len(m.Parts[1].Nodes) || m.Root != y.Producer {
		t.Errorf("%d nodes of parts of %d and %d", len(m.Nodes), len(m.Parts[0].Nodes), len(m.Parts[1].Nodes))
	}
	var ops []string
	for _, n := range m.Replacement.Nodes {
		ops = append(ops, n.OpType)
	}
	if got := strings.Join(ops, " "); got != "Transpose NormRotary" {
		t.Errorf("it becomes %s", got)
	}
	var attrs []string
	for _, a := range m.Attributes {
		attrs = append(attrs, a.Name)
	}
	if got := strings.Join(attrs,
		" "); got != "epsilon scale_after_cast interleaved rotary_dim rotated_side output_layout" {
		t.Errorf("the attributes %s", got)
	}
	// Without one of the patterns, there is no match to join.
	some := patterns.Builtin().Select(func(p *patterns.Pattern) bool { return p.Target.Op != "RMSNorm" })
	if matches, _ := some.Find(r.Graph, infer.Analyze(r.Model)); len(matches) != 1 ||
		matches[0].Pattern != "RotaryEmbedding" {
		t.Errorf("without RMSNorm: %d matches", len(matches))
	}
}
