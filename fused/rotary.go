package fused

import (
	"fmt"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// rotaryEmbedding rotates pairs of channels by the angles whose cosines and sines are given.
var rotaryEmbedding = &Op{
	Name:    "RotaryEmbedding",
	Summary: "Rotary position embedding of the half-rotation kind (rotate_half), cosines and sines given.",
	Formula: []string{
		"D = X.shape[-1]; x1 = X[..., :D/2], x2 = X[..., D/2:]; (c1, c2), (s1, s2) likewise from cos, sin, or c1 = c2 = cos, s1 = s2 = sin where they are D/2 wide",
		"Y[..., :D/2] = round_T(round_T(x1 * c1) - round_T(x2 * s1))",
		"Y[..., D/2:] = round_T(round_T(x2 * c2) + round_T(x1 * s2))",
	},
	Inputs: []Param{
		{"X", "T", "rank at least 1, last dimension D even"},
		{"cos", "T", "rank at most that of X; broadcast to X, but for the last dimension, which is D (taken element by element) or D/2"},
		{"sin", "T", "as cos, with the same last dimension"},
	},
	Outputs: []Param{{"Y", "T", "shape of X"}},
	Attributes: []AttributeSpec{
		{Name: "interleaved", Type: onnx.AttrInt, Doc: "0: the pairs are (i, i + D/2); other layouts are not there yet"},
		{Name: "rotary_dim", Type: onnx.AttrInt, Doc: "how many channels are rotated; must be D, partial rotation is not there yet"},
	},
	Types:       "T is float32, float16 or bfloat16",
	Source:      "Su et al., RoFormer (2021), in the layout of rotate_half in PyTorch transformers",
	supports:    rotarySupports,
	outputTypes: func(s Site) []onnx.DataType { return s.Types[:1] },
	overload: func(s Site) string {
		if cosWide(s) {
			return "wide_tables"
		}
		return "half_tables"
	},
	define: func(b *body, s Site) []*onnx.Value {
		x1, x2 := b.halves("x1", "x2", b.float32("x", b.in[0]))
		cos, sin := b.float32("cos_32", b.in[1]), b.float32("sin_32", b.in[2])
		c1, c2, s1, s2 := cos, cos, sin, sin
		if cosWide(s) {
			c1, c2 = b.halves("c1", "c2", cos)
			s1, s2 = b.halves("s1", "s2", sin)
		}
		product := func(name string, p, q *onnx.Value) *onnx.Value {
			return b.rounded(name+"_rounded", b.call(name, "Mul", p, q), 0)
		}
		first := b.call("first", "Sub", product("x1_c1", x1, c1), product("x2_s1", x2, s1))
		second := b.call("second", "Add", product("x2_c2", x2, c2), product("x1_s2", x1, s2))
		y := b.op("rotated", "Concat", []*onnx.Value{first, second}, onnx.IntAttr("axis", -1))
		return []*onnx.Value{b.round("Y", y, 0)}
	},
}

// cosWide says whether the tables are as wide as X, rather than half as wide.
func cosWide(s Site) bool { return s.lastDim(1) == s.attr("rotary_dim").Int }

func rotarySupports(s Site) error {
	if err := oneKernelType("RotaryEmbedding", []Param{{Name: "X"}, {Name: "cos"}, {Name: "sin"}}, s.Types); err != nil {
		return err
	}
	d := s.attr("rotary_dim").Int
	if s.attr("interleaved").Int != 0 {
		return fmt.Errorf("mojo.RotaryEmbedding has no kernel for interleaved=%d yet, only for 0 (half rotation)", s.attr("interleaved").Int)
	}
	if d <= 0 || d%2 != 0 {
		return fmt.Errorf("mojo.RotaryEmbedding attribute rotary_dim is %d; it must be positive and even", d)
	}
	if x := s.lastDim(0); x >= 0 && x != d {
		return fmt.Errorf("mojo.RotaryEmbedding has no kernel for partial rotation yet: rotary_dim is %d, the last dimension of X %d", d, x)
	}
	c, n := s.lastDim(1), s.lastDim(2)
	if c < 0 {
		return fmt.Errorf("mojo.RotaryEmbedding needs to know how wide cos is, and its last dimension is unknown")
	}
	if n >= 0 && c != n {
		return fmt.Errorf("mojo.RotaryEmbedding takes cos and sin of one width, not %d and %d", c, n)
	}
	if c != d && c != d/2 {
		return fmt.Errorf("mojo.RotaryEmbedding takes cos and sin %d or %d wide, not %d", d, d/2, c)
	}
	for i := 1; i <= 2; i++ {
		if err := broadcasts(s.dims(i), s.dims(0)); err != nil {
			return fmt.Errorf("mojo.RotaryEmbedding: %s does not broadcast to X: %w", []string{"", "cos", "sin"}[i], err)
		}
	}
	return nil
}

// broadcasts says whether a table of shape t broadcasts to x in all dimensions but the last.
func broadcasts(t, x []int64) error {
	if t == nil || x == nil {
		return nil
	}
	if len(t) > len(x) {
		return fmt.Errorf("shape %v has more dimensions than %v", t, x)
	}
	for i := 2; i <= len(t); i++ {
		if a, b := t[len(t)-i], x[len(x)-i]; a >= 0 && b >= 0 && a != 1 && a != b {
			return fmt.Errorf("shape %v against %v", t, x)
		}
	}
	return nil
}
