package linear_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/patterns"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// node returns a model of one node with two outputs, of the standard or of onnxruntime.
func node(op string, t, state onnx.DataType, inputs map[string][]any, attrs ...any) *onnx.Model {
	b := onnxtest.New(27)
	args := []any{}
	for _, name := range []string{"q", "k", "v", "past", "decay", "beta", "x", "weight", "bias", "kept"} {
		dims, given := inputs[name]
		switch {
		case !given:
		case dims == nil:
			args = append(args, nil)
		default:
			typ := t
			if name == "past" {
				typ = state
			}
			args = append(args, b.Input(name, typ, dims...))
		}
	}
	for _, v := range b.Ops(2, op, append(args, attrs...)...) {
		b.Output(v)
	}
	return b.Model
}

// heads returns the inputs of a gated delta net with two heads of queries and the given heads of keys and states.
func heads(keys, states int) map[string][]any {
	return map[string][]any{"q": {"b", "n", 16}, "k": {"b", "n", 8 * keys}, "v": {"b", "n", 5 * states},
		"past": {"b", states, 8, 5}, "decay": {"b", "n", states}, "beta": {"b", "n", states}}
}

// deltaNet returns a model of a GatedDeltaNet with two heads of keys and four states.
func deltaNet(t onnx.DataType, outer []any, gate bool, attrs ...any) *onnx.Model {
	b := onnxtest.New(20)
	in := func(name string, t onnx.DataType, dims ...any) any {
		return b.Input(name, t, append(slices.Clone(outer), dims...)...)
	}
	args := []any{in("q", t, 2, 8), in("k", t, 2, 8), in("v", t, 4, 5), nil, in("decay", onnx.Float, 4),
		in("beta", onnx.Float, 4), b.Input("past", onnx.Float, "b", 4, 5, 8)}
	if gate {
		args = append(args, b.Input("a_log", onnx.Float, 4), b.Input("dt_bias", onnx.Float, 4))
	}
	for _, v := range b.Ops(2, "com.microsoft:GatedDeltaNet", append(args, attrs...)...) {
		b.Output(v)
	}
	return b.Model
}

func TestFind(t *testing.T) {
	const attention, conv = "LinearAttention", "CausalConvWithState"
	i := onnx.IntAttr
	two := []any{i("q_num_heads", 2), i("kv_num_heads", 2)}
	four := []any{i("q_num_heads", 2), i("kv_num_heads", 4)}
	wide := heads(2, 2)
	wide["q"] = []any{"b", "n", "width"}
	linear := map[string][]any{"q": {1, "n", 16}, "k": {1, "n", 16}, "v": {1, "n", 10}}
	tokens := map[string][]any{"x": {"b", 6, "n"}, "weight": {6, 1, 4}, "bias": nil, "kept": {"b", 6, 3}}
	for _, c := range []struct {
		name  string
		model *onnx.Model
		nodes string // the nodes of the replacement, or the reason that there is none
	}{
		{"the standard's", node(attention, onnx.Float, onnx.Float, heads(2, 2), two...), "LinearAttention"},
		{"in float16", node(attention, onnx.Float16, onnx.Float16, heads(2, 2), two...),
			"Cast Cast Cast LinearAttention Cast"},
		{"in float16 with a wide state", node(attention, onnx.Float16, onnx.Float, heads(2, 2), two...),
			"Cast Cast LinearAttention"},
		{"without gates", node(attention, onnx.BFloat16, onnx.Float, linear, append(two,
			onnx.StringAttr("update_rule", "linear"))...), "LinearAttention Cast"},
		{"onnxruntime's", node("com.microsoft:"+attention, onnx.Float, onnx.Float, heads(2, 4), four...),
			"LinearAttention"},
		{"states of several tokens", node("com.microsoft:"+attention, onnx.Float, onnx.Float, heads(2, 2), append(two,
			i("state_window", 2))...), "keeps the states of several tokens"},
		{"heads of unknown width", node(attention, onnx.Float, onnx.Float, wide, two...), "widths of the heads"},
		{"onnxruntime's with separate heads", deltaNet(onnx.Float, []any{"b", "n"}, false), "Reshape Reshape Reshape " +
			"Transpose Reshape Reshape LinearAttention Reshape Transpose"},
		{"in float16 with gates", deltaNet(onnx.Float16, []any{"b", "n"}, true, onnx.StringAttr("gate_activation",
			"softplus"), onnx.StringAttr("beta_activation", "sigmoid")), "Reshape Reshape Reshape Transpose Add Exp " +
			"Softplus Mul Neg Reshape Sigmoid Reshape LinearAttention Reshape Transpose"},
		{"tokens of a batch of unknown size", deltaNet(onnx.Float, []any{"n"}, false), "a batch, of unknown sizes"},
		{"an unknown gate", deltaNet(onnx.Float, []any{"b", "n"}, true, onnx.StringAttr("gate_activation", "tanh")),
			"not known: tanh"},
		{"captured updates", deltaNet(onnx.Float, []any{"b", "n"}, false, i("state_update_capacity", 2)),
			"captures updates"},
		{"a convolution", node(conv, onnx.Float16, 0, tokens), "CausalConv"},
		{"onnxruntime's convolution", node("com.microsoft:"+conv, onnx.Float, 0, tokens, onnx.StringAttr("activation",
			"swish")), "CausalConv"},
		{"a convolution with gaps", node("com.microsoft:"+conv, onnx.Float, 0, tokens, i("dilation", 2)), "dilation=2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			matches, misses := patterns.Builtin().Find(c.model.Graph, infer.Analyze(c.model))
			var got []string
			for _, m := range matches {
				for _, n := range m.Replacement.Nodes {
					if n.OpType != "Constant" {
						got = append(got, n.OpType)
					}
				}
			}
			for _, m := range misses {
				got = append(got, m.Reason.Error())
			}
			if text := strings.Join(got, " "); len(matches)+len(misses) != 1 || text != c.nodes &&
				(len(matches) > 0 || !strings.Contains(text, c.nodes)) {
				t.Errorf("got %q, want %q", text, c.nodes)
			}
		})
	}
}
