package cut

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/patterns"
)

// TestParts cuts a residual block, whose result may be added to something else of the same source.
func TestParts(t *testing.T) {
	b := onnxtest.New(20)
	x := b.Input("x", onnx.Float, "n", 4)
	weight := func() *onnx.Value { return b.Floats([]int64{4, 4}, make([]float32, 16)...) }
	before := b.Op("Identity", x)
	h := b.Op("Relu", before)
	h.SetType(onnx.Type{DataType: onnx.Float}) // inference knows the shape
	q, k, past := b.Op("MatMul", h, weight()), b.Op("Tanh", b.Op("MatMul", h, weight())), b.Op("Exp", before)
	s := b.Op("Mul", q, k)
	shape := b.Op("Cast", b.Op("Shape", x), onnx.IntAttr("to", int64(onnx.Int64)))
	o := b.Op("Reshape", b.Op("Add", b.Op("MatMul", s, weight()), b.Op("Neg", h)), shape)
	y := b.Op("Sub", o, x)
	y.SetType(onnxtest.Type(onnx.Float, "rows", 4))
	b.Output(y)
	halves := b.Ops(2, "Split", b.Op("MatMul", h, weight()), onnx.IntAttr("axis", -1), onnx.IntAttr("num_outputs", 2))
	product := b.Op("Max", halves)
	b.Output(b.Op("Sin", product))
	dead := b.Op("Cos", x)
	first, other := b.Op("MatMul", x, weight()), b.Op("Exp", b.Op("Relu", x)) // other is nearer, but not common
	second := b.Op("Tan", b.Op("MatMul", h, weight()))
	third := b.Op("MatMul", h, weight())
	joined := b.Op("Max", second, third, other)
	kept := b.Op("Add", joined, second) // depends on the block alone
	b.Output(b.Op("Div", kept, x))
	b.Output(b.Op("Acos", other))
	sizes := b.Op("Cast", b.Op("Shape", x), onnx.IntAttr("to", int64(onnx.Int64)))
	beside := b.Op("Reshape", first, sizes)
	b.Output(beside)
	branch := b.Graph.NewSubgraph("then")
	inner := branch.AddNode("Neg", []*onnx.Value{y}, []*onnx.Value{branch.NewValue("neg")})
	branch.AddOutput(inner.Outputs[0])
	chosen := b.Op("If", b.Input("c", onnx.Bool), onnx.GraphAttr("then_branch", branch),
		onnx.GraphAttr("else_branch", branch))
	b.Output(chosen)
	unknown := b.Op("far:Strange", x)
	strange := b.Op("Abs", unknown)
	picked := b.Graph.AddNode("TopK", []*onnx.Value{x, b.Ints(2)}, []*onnx.Value{nil, b.Graph.NewValue("indices")})
	c := New(b.Model)
	values := func(v ...*onnx.Value) []*onnx.Value { return v }
	site := func(op string, y *onnx.Value, in ...*onnx.Value) *patterns.Match {
		return &patterns.Match{Op: op, Root: y.Producer, Nodes: []*onnx.Node{y.Producer}, Inputs: in,
			Outputs: values(y), Roles: map[*onnx.Value]fused.Role{past: fused.RoleWeights}}
	}
	const block, end = "[matmul matmul_1 tanh mul matmul_2", "] from [relu] to [matmul_2]"
	for name, p := range map[string]struct {
		make func() (*Part, error)
		want string
	}{
		"from a value": {func() (*Part, error) { return c.Between(values(h), values(s)) },
			"[matmul matmul_1 tanh mul] from [relu] to [mul]"},
		"from the inputs": {func() (*Part, error) { return c.Between(nil, values(h)) },
			"[identity relu] from [x] to [relu]"},
		"backwards": {func() (*Part, error) { return c.Between(values(y), values(s)) },
			`no requested value is computed from "sub"`},
		"nothing": {func() (*Part, error) { return c.Between(values(s), values(s)) },
			"no node computes these outputs from these inputs"},
		"around nodes": {func() (*Part, error) { return c.Around(q.Producer, o.Producer) },
			"[matmul mul shape cast matmul_2 add reshape] from [relu tanh x neg] to [reshape]"},
		"around the end": {func() (*Part, error) { return c.Around(chosen.Producer) }, "[if] from [c sub] to [if]"},
		"a dead end":     {func() (*Part, error) { return c.Around(dead.Producer) }, "[cos] from [x] to [cos]"},
		"a subgraph's": {func() (*Part, error) { return c.Around(inner) },
			`node "neg_1" is in a subgraph: cut out the node of the main graph that contains it`},
		"a site":     {func() (*Part, error) { return c.Sites(site("Any", s, q, k)) }, "[mul] from [matmul tanh] to [mul]"},
		"its block":  {func() (*Part, error) { return c.Block(site("Any", s, q, k)) }, block + end},
		"and a past": {func() (*Part, error) { return c.Block(site("Any", s, q, k, past)) }, block + end},
		"experts": {func() (*Part, error) { return c.Block(site(fused.MoEName, s, q, k)) },
			"[matmul matmul_1 tanh mul shape cast matmul_2 neg add reshape] from [relu x] to [reshape]"},
		"one product": {func() (*Part, error) { return c.Block(site("Any", product, halves...)) },
			"[matmul_3 split max sin] from [relu] to [sin]"},
		"most operands": {func() (*Part, error) { return c.Block(site("Any", joined, second, third, other)) },
			"[matmul_5 tan matmul_6 max_1 add_1] from [relu exp_1] to [add_1]"},
		"one from an input": {func() (*Part, error) { return c.Block(site("Any", beside, first, sizes)) },
			"[matmul_4 shape_1 cast_1 reshape_1] from [x] to [reshape_1]"},
		"a declared end": {func() (*Part, error) { return c.Between(values(o, x), values(y)) },
			"[sub] from [reshape x] to [sub]"},
	} {
		part, err := p.make()
		got := fmt.Sprint(err)
		if err == nil {
			var nodes, inputs []string
			for _, n := range part.Nodes {
				nodes = append(nodes, n.Label()[len("node_"):])
			}
			for _, p := range part.Inputs {
				inputs = append(inputs, p.Value.Name)
				if text := p.Type.String(); text != "float32[n, 4]" && text != "bool[]" {
					t.Errorf("%s: input %q is %s", name, p.Value.Name, text)
				}
			}
			got = fmt.Sprint(nodes, " from ", inputs, " to ", onnx.Names(part.Outputs))
			if m, err := part.Model(); err != nil || len(m.Graph.Nodes) != len(nodes) {
				t.Errorf("%s: %v", name, err)
			} else if typ, _ := m.Graph.Outputs[0].Type(); part.Outputs[0] == y && typ.String() != "float32[?, 4]" {
				t.Errorf("%s: the output is %s", name, typ)
			}
			want := len(part.Outputs)
			for _, p := range part.Inputs {
				if !p.Value.IsInput {
					want++
				}
			}
			if m, err := part.Whole(); err != nil || len(m.Graph.Outputs) != want {
				t.Errorf("the whole for %s: %v", name, err)
			}
		}
		if got != p.want {
			t.Errorf("%s: %s, want %s", name, got, p.want)
		}
	}
	if _, err := c.Between(values(unknown), values(strange)); err == nil ||
		err.Error() != `the type of "strange", which node "node_abs" reads, is not known` {
		t.Errorf("an input of another domain: %v", err)
	}
	if part, err := c.Between(nil, values(picked.Outputs[1])); err != nil || len(part.Outputs) != 1 ||
		part.Outputs[0] != picked.Outputs[1] {
		t.Errorf("behind an output that is left out: %+v, %v", part, err)
	}
	part, err := c.Between(nil, values(unknown))
	if err == nil {
		_, err = part.Model()
	}
	if err == nil || err.Error() != `the type of "strange" is not known` {
		t.Errorf("an output of another domain: %v", err)
	}
}

// TestSharedParts: parts take the nodes of a mask that the rest of the model reads too, but not random numbers and
// inputs with a default; a part without readers has all its values as outputs.
func TestSharedParts(t *testing.T) {
	b := onnxtest.New(20)
	x := b.Input("x", onnx.Float, "n", 4)
	given := b.Input("given", onnx.Float, 1, 4)
	given.Const = onnx.NewFloat32s("given", []int64{1, 4}, []float32{1, 2, 3, 4})
	h := b.Op("Relu", x)
	z := b.Input("z", onnx.Float, "n", 4)
	mask := b.Op("Exp", z)
	first := b.Op("Mul", b.Op("Abs", h), b.Op("Neg", mask))
	between := b.Op("Sin", first)
	second := b.Op("Sub", between, b.Op("Neg", mask))
	b.Output(b.Op("Cos", mask))
	b.Output(b.Op("Tan", second))
	noise := b.Op("Add", b.Op("RandomNormal", onnx.IntsAttr("shape", []int64{1, 4})), given)
	b.Output(noise)
	dead := b.Op("Acos", b.Op("Asin", x))
	normed := b.Ops(2, "LayerNormalization", h, b.Floats([]int64{4}, 1, 1, 1, 1))
	both := b.Op("Min", b.Op("Add", normed[0], b.Op("Exp", normed[1])), b.Op("Sub", normed))
	b.Output(both)
	picked := b.Ops(2, "TopK", h, b.Ints(2))
	picked[0].Producer.Outputs[0] = nil
	c := New(b.Model)
	site := func(y *onnx.Value, in ...*onnx.Value) *patterns.Match {
		return &patterns.Match{Op: "Any", Root: y.Producer, Nodes: []*onnx.Node{y.Producer}, Inputs: in,
			Outputs: []*onnx.Value{y}}
	}
	for name, p := range map[string]struct {
		make func() (*Part, error)
		want string
	}{
		"a site": {func() (*Part, error) { return c.Sites(site(first, h, z)) },
			"exp abs neg mul from z relu to mul"},
		"a mask": {func() (*Part, error) { return c.Sites(site(first, h, mask)) },
			"abs neg mul from relu exp to mul"},
		"a block": {func() (*Part, error) { return c.Block(site(first, h, z)) },
			"exp abs neg mul sin from z relu to sin"},
		"two sites": {func() (*Part, error) { return c.Sites(site(first, h, z), site(second, mask, between)) },
			"exp abs neg mul sin neg_1 sub from z relu to sub"},
		"two outputs of the source": {func() (*Part, error) { return c.Block(site(both, both.Producer.Inputs...)) },
			"add_1 sub_1 min from layernormalization exp_1 layernormalization_1 to min"},
		"random numbers": {func() (*Part, error) { return c.Around(noise.Producer) },
			"add from randomnormal given to add"},
		"of an unread value": {func() (*Part, error) {
			return c.Around(dead.Producer, dead.Producer.Inputs[0].Producer)
		}, "asin acos from x to asin acos"},
		"of an omitted output": {func() (*Part, error) { return c.Around(picked[1].Producer) },
			"topk from relu to topk_1"},
	} {
		part, err := p.make()
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var words []string
		for _, n := range part.Nodes {
			words = append(words, n.Label()[len("node_"):])
		}
		words = append(words, "from")
		for _, p := range part.Inputs {
			words = append(words, p.Value.Name)
		}
		if got := strings.Join(slices.Concat(words, []string{"to"}, onnx.Names(part.Outputs)), " "); got != p.want {
			t.Errorf("%s: %s, want %s", name, got, p.want)
		}
	}
}
