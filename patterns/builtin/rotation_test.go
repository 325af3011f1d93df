package builtin_test

import (
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

const (
	headSize = 8
	lastAxis = 3
)

// rotaryGraph builds rotations of x [batch, 2, seq, 8] by tables [batch, 1, seq, width].
type rotaryGraph struct {
	*graph
	x, cos, sin *onnx.Value
}

func newRotary(width int) *rotaryGraph {
	g := newGraph()
	return &rotaryGraph{g, g.input("x", "batch", 2, "seq", headSize), g.input("cos", "batch", 1, "seq", width),
		g.input("sin", "batch", 1, "seq", width)}
}

func (r *rotaryGraph) cut(v *onnx.Value, start, end, step int64) *onnx.Value {
	return r.Op("Slice", v, []int64{start}, []int64{end}, []int64{lastAxis}, []int64{step})
}

func (r *rotaryGraph) join(vs ...any) *onnx.Value {
	return r.Op("Concat", append(vs, onnx.IntAttr("axis", -1))...)
}

// products returns a cos - b sin and b cos + a sin.
func (r *rotaryGraph) products(a, b *onnx.Value) (p, q *onnx.Value) {
	return r.Op("Sub", r.Op("Mul", a, r.cos), r.Op("Mul", r.sin, b)),
		r.Op("Add", r.Op("Mul", a, r.sin), r.Op("Mul", b, r.cos))
}

// rotateHalf returns x cos + concat(-second, first) sin.
func (r *rotaryGraph) rotateHalf(x, second, first *onnx.Value) *onnx.Value {
	return r.Op("Add", r.Op("Mul", x, r.cos), r.Op("Mul", r.join(r.Op("Neg", second), first), r.sin))
}

func TestRotation(t *testing.T) {
	for _, c := range []struct {
		name  string
		width int
		build func(r *rotaryGraph) *onnx.Value
		want  string // the attributes, or after "!" the reason of the miss
	}{
		{"rotate half", 8, func(r *rotaryGraph) *onnx.Value {
			return r.rotateHalf(r.x, r.cut(r.x, 4, 8, 1), r.cut(r.x, 0, 4, 1))
		}, "0 8 first halves"},
		{"gather in place of slice", 8, func(r *rotaryGraph) *onnx.Value {
			second := r.Op("Gather", r.x, []int64{4, 5, -2, -1}, onnx.IntAttr("axis", -1))
			return r.rotateHalf(r.x, second, r.cut(r.x, -8, -4, 1))
		}, "0 8 first halves"},
		{"a swap and a vector of signs", 8, func(r *rotaryGraph) *onnx.Value {
			signs := r.Graph.AddInitializer(onnx.NewFloat32s("signs", []int64{8},
				[]float32{-1, -1, -1, -1, 1, 1, 1, 1}))
			swapped := r.Op("Gather", r.x, []int64{4, 5, 6, 7, 0, 1, 2, 3}, onnx.IntAttr("axis", 3))
			return r.Op("Add", r.Op("Mul", r.Op("Mul", swapped, signs), r.sin), r.Op("Mul", r.cos, r.x))
		}, "0 8 first halves"},
		{"halves one by one", 4, func(r *rotaryGraph) *onnx.Value {
			p, q := r.products(r.cut(r.x, 0, 4, 1), r.cut(r.x, 4, 99, 1))
			return r.join(p, q)
		}, "0 8 first halves"},
		{"neighbors into halves", 4, func(r *rotaryGraph) *onnx.Value {
			p, q := r.products(r.cut(r.x, 0, 8, 2), r.cut(r.x, 1, 8, 2))
			return r.join(p, q)
		}, "1 8 first halves"},
		{"neighbors stacked", 8, func(r *rotaryGraph) *onnx.Value {
			stacked := r.join(r.Op("Unsqueeze", r.Op("Neg", r.cut(r.x, 1, 8, 2)), []int64{-1}),
				r.Op("Unsqueeze", r.cut(r.x, 0, 8, 2), []int64{-1}))
			rotated := r.Op("Reshape", stacked, []int64{0, 2, -1, 8})
			return r.Op("Add", r.Op("Mul", r.x, r.cos), r.Op("Mul", rotated, r.sin))
		}, "1 8 first interleaved"},
		{"pairs as an axis, tables with one too", 4, func(r *rotaryGraph) *onnx.Value {
			pairs := r.Op("Reshape", r.x, []int64{0, 2, -1, 4, 2})
			r.cos, r.sin = r.Op("Unsqueeze", r.cos, []int64{-1}), r.Op("Unsqueeze", r.sin, []int64{-1})
			part := func(i int64) *onnx.Value { return r.Op("Slice", pairs, []int64{i}, []int64{i + 1}, []int64{-1}) }
			p, q := r.products(part(0), part(1))
			return r.Op("Reshape", r.join(p, q), []int64{0, 2, -1, 8})
		}, "1 8 first interleaved"},
		{"first channels", 4, func(r *rotaryGraph) *onnx.Value {
			part := r.cut(r.x, 0, 4, 1)
			return r.join(r.rotateHalf(part, r.cut(part, 2, 4, 1), r.cut(part, 0, 2, 1)), r.cut(r.x, 4, 8, 1))
		}, "0 4 first halves"},
		{"last channels, in one flat Concat", 2, func(r *rotaryGraph) *onnx.Value {
			p, q := r.products(r.cut(r.x, 4, 6, 1), r.cut(r.x, 6, 8, 1))
			return r.join(r.cut(r.x, 0, 4, 1), p, q)
		}, "0 4 last halves"},
		{"back by the angle", 4, func(r *rotaryGraph) *onnx.Value {
			p, q := r.products(r.cut(r.x, 4, 8, 1), r.cut(r.x, 0, 4, 1))
			return r.join(q, p)
		}, "0 8 first halves"},
		{"halves swapped in the result", 4, func(r *rotaryGraph) *onnx.Value {
			p, q := r.products(r.cut(r.x, 0, 4, 1), r.cut(r.x, 4, 8, 1))
			return r.join(q, p)
		}, "!a sign or the order of the angles differs"},
		{"another pairing", 4, func(r *rotaryGraph) *onnx.Value {
			b := r.Op("Gather", r.x, []int64{5, 4, 7, 6}, onnx.IntAttr("axis", -1))
			p, q := r.products(r.cut(r.x, 0, 4, 1), b)
			return r.join(p, q)
		}, "!pair channels in another way"},
		{"channels in the middle", 2, func(r *rotaryGraph) *onnx.Value {
			p, q := r.products(r.cut(r.x, 2, 4, 1), r.cut(r.x, 4, 6, 1))
			return r.join(r.cut(r.x, 0, 2, 1), p, q, r.cut(r.x, 6, 8, 1))
		}, "!a rotation of only the middle channels"},
		{"channels moved", 2, func(r *rotaryGraph) *onnx.Value {
			p, q := r.products(r.cut(r.x, 0, 2, 1), r.cut(r.x, 2, 4, 1))
			return r.join(p, q, r.cut(r.x, 6, 8, 1), r.cut(r.x, 4, 6, 1))
		}, "!a rotation that passes channel 6 of its input on as channel 4"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRotary(c.width)
			r.Graph.AddOutput(c.build(r))
			matches, misses := patterns.Builtin().Find(r.Graph, infer.Analyze(r.Model))
			got := ""
			for _, m := range matches {
				for _, name := range []string{"interleaved", "rotary_dim", "rotated_side", "output_layout"} {
					for _, a := range m.Attributes {
						if a.Name == name && a.Type == onnx.AttrInt {
							got += " " + string(rune('0'+a.Int))
						} else if a.Name == name {
							got += " " + a.String
						}
					}
				}
			}
			if reason, missed := strings.CutPrefix(c.want, "!"); missed {
				for _, m := range misses {
					got += m.Reason.Error() + "\n"
				}
				if len(matches) > 0 || !strings.Contains(got, reason) {
					t.Errorf("%d matches, misses %q; want the reason %q", len(matches), got, reason)
				}
			} else if got != " "+c.want {
				t.Errorf("found %q, want %q", got, c.want)
			}
		})
	}
}
