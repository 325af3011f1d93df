package inline

import (
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// TestStaticConditions: a branch is taken if constants, ranks and fixed sizes decide, and not if anything else does.
func TestStaticConditions(t *testing.T) {
	type values = func(b *onnxtest.Builder, fixed, open *onnx.Value) *onnx.Value // an integer that is never 0
	deep := func(steps int) values {
		return func(b *onnxtest.Builder, fixed, _ *onnx.Value) *onnx.Value {
			v := b.Op("Size", fixed)
			for range steps {
				v = b.Op("Identity", v)
			}
			return v
		}
	}
	size := func(open bool, op string, attrs ...any) values {
		return func(b *onnxtest.Builder, fixed, other *onnx.Value) *onnx.Value {
			if open {
				fixed = other
			}
			return b.Op("ReduceSum", b.Op(op, append([]any{fixed}, attrs...)...))
		}
	}
	for name, c := range map[string]struct {
		of    values
		taken bool
	}{
		"a constant": {func(b *onnxtest.Builder, _, _ *onnx.Value) *onnx.Value { return b.Op("Neg", 3) }, true},
		"an initializer": {func(b *onnxtest.Builder, _, _ *onnx.Value) *onnx.Value {
			return b.Op("Identity", []int64{1})
		}, true},
		"fixed sizes":      {size(false, "Shape"), true},
		"a fixed count":    {size(false, "Size"), true},
		"open sizes":       {size(true, "Shape"), false},
		"the fixed of all": {size(true, "Shape", onnx.IntAttr("start", 1)), false},
		"an open count":    {size(true, "Size"), false},
		"the rank": {func(b *onnxtest.Builder, _, open *onnx.Value) *onnx.Value {
			return b.Op("Size", b.Op("Shape", open))
		}, true},
		"one of two open": {func(b *onnxtest.Builder, fixed, open *onnx.Value) *onnx.Value {
			return b.Op("Mul", b.Op("Size", fixed), b.Op("Size", open))
		}, false},
		"an omitted operand": {func(b *onnxtest.Builder, fixed, _ *onnx.Value) *onnx.Value {
			return b.Op("Clip", b.Op("Size", fixed), (*onnx.Value)(nil), 9)
		}, true},
		"an input": {func(b *onnxtest.Builder, fixed, _ *onnx.Value) *onnx.Value {
			return b.Op("ReduceMax", b.Op("Cast", fixed, onnx.IntAttr("to", int64(onnx.Int64))))
		}, false},
		"another domain": {func(b *onnxtest.Builder, fixed, _ *onnx.Value) *onnx.Value {
			v := b.Op("Size", fixed)
			v.Producer.Domain = "other"
			return v
		}, false},
		"15 steps": {deep(15), true},
		"16 steps": {deep(16), false},
	} {
		b := onnxtest.New(20)
		v := c.of(b, b.Input("fixed", onnx.Float, 2, 3), b.Input("open", onnx.Float, "n", 4))
		then := b.Graph.NewSubgraph("then")
		then.AddOutput(then.AddNode("Neg", []*onnx.Value{v}, []*onnx.Value{then.NewValue("neg")}).Outputs[0])
		y := b.Op("If", b.Op("Cast", v, onnx.IntAttr("to", int64(onnx.Bool))), onnx.GraphAttr("then_branch", then),
			onnx.GraphAttr("else_branch", b.Graph.NewSubgraph("else")))
		b.Output(y)
		facts := infer.Analyze(b.Model)
		want := then
		if !c.taken {
			want = nil
		}
		if got := takenBranch(y.Producer, facts); got != want {
			t.Errorf("%s: the branch is taken: %v", name, got != nil)
		}
		if got := isStatic(y, facts, 0); got {
			t.Errorf("%s: the result of the branch is static", name)
		}
	}
}
