package moe_test

import (
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// sideBySide multiplies the tokens with the matrices of all experts as one, [hidden, experts * width].
func (b *mixture) sideBySide(width int, transposed bool) value {
	all := b.weight(b.hidden, b.experts*width)
	if transposed {
		w := b.Op("Transpose", b.weight(b.experts, width, b.hidden), onnx.IntsAttr("perm", []int64{2, 0, 1}))
		all = b.Op("Reshape", w, []int64{int64(b.hidden), -1})
	}
	return b.Op("Reshape", b.Op("MatMul", b.rows, all), []int64{-1, int64(b.experts), int64(width)})
}

// weighted adds the experts' results, [tokens, experts, hidden], times the gates.
func (b *mixture) weighted(y value) value {
	return b.Op("Einsum", y, b.gates(false), onnx.StringAttr("equation", "teh,te->th"))
}

// TestExpertsSideBySide has products with the matrices of all experts, or of each token's experts, as one matrix, as
// tf2onnx writes Einsum.
func TestExpertsSideBySide(t *testing.T) {
	second := func(b *mixture, a value) value {
		return b.Op("Einsum", a, b.weight(b.experts, b.inner, b.hidden), onnx.StringAttr("equation", "tei,eih->teh"))
	}
	// added stacks the matrices below each other, so that the product adds the experts' results.
	added := func(b *mixture, a value) value {
		a = b.Op("Reshape", b.Op("Mul", a, b.Op("Unsqueeze", b.gates(false), []int64{2})),
			[]int64{-1, int64(b.experts * b.inner)})
		return b.Op("MatMul", a, b.weight(b.experts*b.inner, b.hidden))
	}
	forms := map[string]struct {
		build func(b *mixture) value
		want  string
	}{
		"first": {func(b *mixture) value {
			gate := b.sideBySide(b.inner, false)
			return b.weighted(second(b, b.unit(gate, b.sideBySide(b.inner, false))))
		}, "silu halves in_out in_out"},
		"first, stored by expert": {func(b *mixture) value {
			gate := b.sideBySide(b.inner, true)
			return b.weighted(second(b, b.unit(gate, b.sideBySide(b.inner, true))))
		}, "silu halves out_in in_out"},
		"first, packed": {func(b *mixture) value {
			b.style.packed = "halves"
			return b.weighted(second(b, b.unit(b.halves(b.sideBySide(2*b.inner, false)))))
		}, "silu halves in_out in_out"},
		"first, with a bias": {func(b *mixture) value {
			gate := b.Op("Add", b.sideBySide(b.inner, false), b.weight(b.experts, b.inner))
			up := b.Op("Add", b.sideBySide(b.inner, false), b.weight(b.experts, b.inner))
			return b.weighted(second(b, b.unit(gate, up)))
		}, "silu halves in_out in_out gate_up_bias"},
		"second": {func(b *mixture) value {
			first := func() value {
				w := b.weight(b.experts, b.hidden, b.inner)
				return b.Op("Einsum", b.rows, w, onnx.StringAttr("equation", "th,ehi->tei"))
			}
			gate := first()
			return added(b, b.unit(gate, first()))
		}, "silu halves in_out in_out"},
		"both": {func(b *mixture) value {
			gate := b.sideBySide(b.inner, false)
			return added(b, b.unit(gate, b.sideBySide(b.inner, false)))
		}, "silu halves in_out in_out"},
		"of each token": {func(b *mixture) value {
			first := func() value {
				w := b.Op("Gather", b.weight(b.experts, b.hidden, b.inner), b.ids, attr("axis", 0))
				w = b.Op("Transpose", w, onnx.IntsAttr("perm", []int64{0, 2, 1, 3}))
				w = b.Op("Reshape", w, []int64{0, 0, -1})
				h := b.Op("MatMul", b.Op("Unsqueeze", b.rows, []int64{1}), w)
				return b.Op("Reshape", h, []int64{-1, int64(b.k), int64(b.inner)})
			}
			gate := first()
			a := b.unit(gate, first())
			w := b.Op("Gather", b.weight(b.experts, b.inner, b.hidden), b.ids, attr("axis", 0))
			return b.Op("Einsum", a, w, b.scores, onnx.StringAttr("equation", "tki,tkih,tk->th"))
		}, "silu halves in_out in_out"},
	}
	for name, form := range forms {
		for _, experts := range []int{5, 8} {
			b := newMixture(experts, 2)
			m, why := b.read(t, form.build(b))
			if m == nil {
				t.Errorf("%s, %d experts: %s", name, experts, why)
				continue
			}
			if got := summary(m); !strings.HasSuffix(got, form.want) {
				t.Errorf("%s, %d experts: %s, expected %s", name, experts, got, form.want)
			}
			b.agrees(t, m)
		}
	}
}

// TestExpertsChannelByChannel has the first channels of all experts side by side, then the second ones. Such products
// are not read, and must not be mistaken for those above.
func TestExpertsChannelByChannel(t *testing.T) {
	b := newMixture(6, 2)
	b.inner = 6 // as many as experts
	swapped := func() value {
		return b.Op("Transpose", b.sideBySide(b.inner, false), onnx.IntsAttr("perm", []int64{0, 2, 1}))
	}
	gate := swapped()
	y := b.Op("Einsum", b.unit(gate, swapped()), b.weight(b.experts, b.inner, b.hidden),
		onnx.StringAttr("equation", "tei,eih->teh"))
	if m, why := b.read(t, b.weighted(y)); m != nil || !strings.Contains(why, "between the products") {
		t.Errorf("read: %v, %s", m != nil, why)
	}
}

// TestGemmWithZeroBias has products as jax2onnx writes them, with a bias of zero and a beta of zero.
func TestGemmWithZeroBias(t *testing.T) {
	b := newMixture(5, 2)
	linear := func(x value, in, out int) value {
		return b.Op("Gemm", x, b.weight(in, out), 0.0, onnx.FloatAttr("beta", 0))
	}
	y := b.sum(func(e int) value {
		gate := linear(b.rows, b.hidden, b.inner)
		return b.Op("Mul", linear(b.unit(gate, linear(b.rows, b.hidden, b.inner)), b.inner, b.hidden), b.gate(e))
	})
	m, why := b.read(t, y)
	if m == nil {
		t.Fatal(why)
	}
	b.agrees(t, m)
}
