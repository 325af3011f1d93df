package moe_test

import (
	"math"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// scattered sends every token, times its gate, through every expert: the chosen logits are scattered among numbers fill
// and then activated.
func (b *mixture) scattered(fill float64) value {
	logits := b.Op("MatMul", b.rows, b.weight(b.hidden, b.experts))
	chosen := b.Ops(2, "TopK", logits, []int64{int64(b.k)})
	others := b.Op("Expand", fill, b.Op("Shape", logits))
	gates := b.Op("Sigmoid", b.Op("ScatterElements", others, chosen[1], chosen[0], attr("axis", 1)))
	gates = b.Op("Unsqueeze", b.Op("Transpose", gates), []int64{-1})
	x := b.Op("Mul", b.Op("Unsqueeze", b.rows, []int64{0}), gates)
	b.style.packed = "halves"
	h := b.unit(b.halves(b.Op("MatMul", x, b.weight(b.experts, b.hidden, 2*b.inner))))
	return b.Op("ReduceSum", b.Op("MatMul", h, b.weight(b.experts, b.inner, b.hidden)), []int64{0}, attr("keepdims", 0))
}

func TestScatteredGates(t *testing.T) {
	for _, test := range []struct {
		fill float64
		want string
	}{{math.Inf(-1), ""}, {0, "not known to be zero"}} {
		b := newMixture(5, 2)
		if err := b.Model.Graph.RemoveNodes(b.router()); err != nil {
			t.Fatal(err)
		}
		m, why := b.read(t, b.scattered(test.fill))
		switch {
		case test.want == "" && m == nil:
			t.Errorf("fill %v: %s", test.fill, why)
		case test.want == "":
			if got := summary(m); got != "scaled silu halves in_out in_out" {
				t.Errorf("fill %v: %s", test.fill, got)
			}
		case m != nil || !strings.Contains(why, test.want):
			t.Errorf("fill %v: %v, %q, expected %q", test.fill, m != nil, why, test.want)
		}
	}
}

// TestGatesAmongZeros scatters the weights among zeros that are scores times 0, like users of onnxscript.
func TestGatesAmongZeros(t *testing.T) {
	for factor, want := range map[float64]bool{0: true, 0.5: false} {
		b := newMixture(5, 2)
		others := b.Op("Mul", b.ids.Producer.Inputs[0], factor)
		gates := b.Op("ScatterElements", others, b.ids, b.scores, attr("axis", 1))
		m, why := b.read(t, b.sum(func(e int) value {
			return b.Op("Mul", b.column(gates, e), b.expert(b.rows))
		}))
		if (m != nil) != want {
			t.Errorf("scores times %v: %v, %s", factor, m != nil, why)
		}
	}
}

// router lists the nodes of the router that newMixture makes.
func (b *mixture) router() map[*onnx.Node]bool {
	dead := map[*onnx.Node]bool{}
	for _, n := range b.Model.Graph.Nodes {
		dead[n] = n != b.rows.Producer
	}
	return dead
}
