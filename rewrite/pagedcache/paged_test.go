package pagedcache_test

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/roles"
	"github.com/mojo-patch/mojo-patch/ort"
	"github.com/mojo-patch/mojo-patch/ort/orttest"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/reference/infer"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/mojo-patch/mojo-patch/rewrite/applytest"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
	"github.com/mojo-patch/mojo-patch/rewrite/pagedcache"
	"github.com/mojo-patch/mojo-patch/rewrite/pass"
	"github.com/mojo-patch/mojo-patch/rewrite/rewritetest"
	"github.com/mojo-patch/mojo-patch/rewrite/staticcache"
)

// runner runs a model in onnxruntime with tensors by name.
type runner struct {
	t       *testing.T
	model   *onnx.Model
	session *ort.Session
}

func open(t *testing.T, m *onnx.Model) *runner {
	t.Helper()
	b, err := onnx.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	s, err := ort.OpenBytes(b, "", ort.WithLibrary(orttest.Library(t)), ort.WithThreads(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return &runner{t, m, s}
}

func (r *runner) run(in map[string]*reference.Tensor) map[string]*reference.Tensor {
	r.t.Helper()
	var list []*onnx.Tensor
	for _, v := range r.model.Graph.Inputs {
		x, err := in[v.Name].ToONNX(v.Name)
		if err != nil {
			r.t.Fatal(err)
		}
		list = append(list, x)
	}
	out, err := r.session.Run(list)
	if err != nil {
		r.t.Fatal(err)
	}
	got := map[string]*reference.Tensor{}
	for i, v := range r.model.Graph.Outputs {
		if got[v.Name], err = reference.FromONNX(out[i]); err != nil {
			r.t.Fatal(err)
		}
	}
	return got
}

// greatest returns the index of the greatest logit of a row.
func greatest(logits *reference.Tensor, row int) int64 {
	width := logits.Shape[len(logits.Shape)-1]
	l := logits.F[row*width : (row+1)*width]
	return int64(slices.Index(l, slices.Max(l)))
}

// alone decodes one sequence with the unconverted model.
func (r *runner) alone(prompt []int64, steps int) (tokens []int64) {
	in, ids := map[string]*reference.Tensor{}, prompt
	past := 0
	for range steps {
		for _, i := range roles.Find(r.model) {
			switch name := i.Value.Name; {
			case i.Role == roles.Index:
				in[name] = reference.NewInts(i.DataType, []int{1, len(ids)}, ids)
			case i.Role == roles.Mask:
				n := past + len(ids)
				in[name] = reference.NewInts(i.DataType, []int{1, n}, slices.Repeat([]int64{1}, n))
			case i.Role == roles.CacheFlag:
				in[name] = reference.NewInts(onnx.Bool, []int{1}, []int64{int64(min(past, 1))})
			case past == 0:
				in[name] = reference.NewFloats(i.DataType, []int{1, int(i.Dims[1].Value), 0, int(i.Dims[3].Value)}, nil)
			}
		}
		out := r.run(in)
		for name, x := range out {
			in[strings.Replace(name, "present", "past", 1)] = x
		}
		past += len(ids)
		logits := out["logits"]
		ids = []int64{greatest(logits, logits.Shape[1]-1)}
		tokens = append(tokens, ids[0])
	}
	return tokens
}

// TestPagedCache decodes sequences that join at different steps, with prompts in chunks, in onnxruntime. Each gets the
// tokens of the unconverted model. Free blocks hold NaN.
func TestPagedCache(t *testing.T) { bothProofs(t, testPagedCache) }

func testPagedCache(t *testing.T) {
	for _, name := range []string{"llama-kv-dynamo-fp32", "deepseek3naive-kv-dynamo-fp32", "llama-merged-ts-fp32"} {
		for _, last := range []bool{true, false} {
			t.Run(fmt.Sprint(name, last), func(t *testing.T) { decodePaged(t, name, last) })
		}
	}
}

func decodePaged(t *testing.T, name string, last bool) {
	const block, blocks, most = 4, 40, 9
	m := rewritetest.ReadModel(t, name)
	report := applytest.Apply(t, m, rewrite.Request{PagedCache: block, LastLogits: last})
	r, removed := report.Paged, []string{"attention_mask"}
	if name == "llama-merged-ts-fp32" { // the input that chose a branch goes with it
		removed = append(removed, "use_cache_branch")
	}
	if r == nil || report.Cache != nil || r.Block != block || len(r.Pools) != 4 || r.LastOnly != last ||
		!slices.Equal(r.Packed, []string{"input_ids"}) || !slices.Equal(r.Removed, removed) ||
		r.Check.Cases != 1 {
		t.Errorf("reported %+v", r)
	}
	rewritetest.CheckOrder(t, m)
	if n := rewritetest.CountOps(m)["PagedAttention"]; n != 2 {
		t.Errorf("%d nodes of PagedAttention", n)
	}
	paged, original := open(t, m), open(t, rewritetest.ReadModel(t, name))
	prompts := make([][]int64, 4)
	for s, n := range []int{5, 17, 9, 1} {
		for k := range n {
			prompts[s] = append(prompts[s], int64((31*k+17*s+3)%150))
		}
	}
	const steps = 12
	got, fed := make([][]int64, len(prompts)), make([]int, len(prompts))
	in := map[string]*reference.Tensor{"use_cache_branch": reference.NewInts(onnx.Bool, []int{1}, []int64{1})}
	for _, v := range m.Graph.Inputs {
		if typ, _ := v.Type(); len(typ.Dims) == 4 {
			shape := []int{blocks, block, int(typ.Dims[2].Value), int(typ.Dims[3].Value)}
			in[v.Name] = reference.NewFloats(typ.DataType, shape,
				slices.Repeat([]float64{math.NaN()}, shape[0]*shape[1]*shape[2]*shape[3]))
		}
	}
	for step := 0; slices.ContainsFunc(got, func(x []int64) bool { return len(x) < steps }); step++ {
		var ids, table, past []int64
		cum, members := []int64{0}, []int{}
		for s, prompt := range prompts {
			if step < 2*s || len(got[s]) == steps { // not there yet, or done
				continue
			}
			all := append(slices.Clone(prompt), got[s]...)
			next := all[fed[s]:min(len(all), fed[s]+6)]
			ids, past = append(ids, next...), append(past, int64(fed[s]))
			cum, members = append(cum, int64(len(ids))), append(members, s)
			for k := range most {
				table = append(table, int64((s*most+k)*7%blocks))
			}
		}
		ints := func(name string, t onnx.DataType, list []int64, shape ...int) {
			in[name] = reference.NewInts(t, shape, list)
		}
		ints("input_ids", onnx.Int64, ids, len(ids))
		ints(pagedcache.CumulativeName, onnx.Int32, cum, len(cum))
		ints(pagedcache.PastName, onnx.Int32, past, len(past))
		ints(pagedcache.TableName, onnx.Int32, table, len(past), most)
		out := paged.run(in)
		for name, x := range out {
			in[strings.Replace(name, "present", "past", 1)] = x
		}
		for i, s := range members {
			row := i
			if !last {
				row = int(cum[i+1]) - 1
			}
			fed[s] += int(cum[i+1] - cum[i])
			if fed[s] == len(prompts[s])+len(got[s]) {
				got[s] = append(got[s], greatest(out["logits"], row))
			}
		}
	}
	for s, prompt := range prompts {
		if want := original.alone(prompt, steps); !slices.Equal(got[s], want) {
			t.Errorf("sequence %d: tokens %v, want %v", s, got[s], want)
		}
	}
}

// TestWrongChange: a converted model that computes something else is refused.
func TestWrongChange(t *testing.T) { bothProofs(t, testWrongChange) }

func testWrongChange(t *testing.T) {
	for name, change := range map[string]func(c *edit.Change, m *onnx.Model){
		"a window": func(c *edit.Change, m *onnx.Model) {
			for _, n := range m.Graph.Nodes {
				if n.OpType == fused.PagedAttentionName {
					c.SetAttr(n, onnx.IntAttr("window", 4))
					f, err := fused.Lookup(n.OpType).Function(pass.FusedSite(m, infer.Analyze(m), n))
					if err != nil {
						t.Fatal(err)
					}
					c.SetDomain(n, n.Domain, f.Overload)
					c.AddFunction(m, f)
				}
			}
		},
		"positions of the packed tokens": func(c *edit.Change, m *onnx.Model) {
			for _, n := range m.Graph.Nodes {
				if n.Is("Add") && n.Outputs[0].Name == "positions" {
					c.Become(n, "Identity")
					c.SetInputs(n, n.Inputs[0])
				}
			}
		},
	} {
		m := rewritetest.ReadModel(t, "llama-kv-dynamo-fp32")
		err := convert(t, m, func(m *onnx.Model) { change(new(edit.Change), m) })
		if err == nil || !strings.Contains(err.Error(), "the cache cannot be paged: node ") {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if err := convert(t, rewritetest.ReadModel(t, "llama-kv-dynamo-fp32"), func(*onnx.Model) {}); err != nil {
		t.Error(err)
	}
}

// TestStandInsReported: the report counts the products and mixtures of experts that were proven by stand-ins.
func TestStandInsReported(t *testing.T) {
	// Each layer of the first has 7 products. The second has one with 7, and one with 4, a router, experts and 3 for
	// all tokens. Both have one of logits.
	for name, want := range map[string]int{"llama-kv-dynamo-fp32": 15, "deepseek3naive-kv-dynamo-fp32": 17} {
		apply := func() int {
			return applytest.Apply(t, rewritetest.ReadModel(t, name), rewrite.Request{PagedCache: 16}).Paged.StandIns
		}
		whole := apply()
		restore := pagedcache.ByParts()
		if parts := apply(); whole != 0 || parts != want {
			t.Errorf("%s: %d stand-ins, by parts %d, want 0 and %d", name, whole, parts, want)
		}
		restore()
	}
}

// TestWrongProducts: a changed product with weights is refused, also if stand-ins compute the products.
func TestWrongProducts(t *testing.T) { bothProofs(t, testWrongProducts) }

func testWrongProducts(t *testing.T) {
	before := func(op string, other func(c *edit.Change, g *onnx.Graph) []*onnx.Value,
		attrs ...*onnx.Attribute) func(c *edit.Change, g *onnx.Graph, products []*onnx.Node) {
		return func(c *edit.Change, g *onnx.Graph, products []*onnx.Node) {
			n := c.NewNode(g, op, append([]*onnx.Value{products[1].Inputs[0]}, other(c, g)...),
				[]*onnx.Value{g.NewValue("wrong")}, attrs...)
			c.Insert(products[1], n)
			c.SetInput(products[1], 0, n.Outputs[0])
		}
	}
	list := func(c *edit.Change, g *onnx.Graph, x ...int64) *onnx.Value {
		return c.AddInitializer(g, onnx.NewInt64s("list", x))
	}
	for name, change := range map[string]func(c *edit.Change, g *onnx.Graph, products []*onnx.Node){
		"exchanged weights": func(c *edit.Change, _ *onnx.Graph, products []*onnx.Node) {
			a, b := products[0].Inputs[1], products[1].Inputs[1]
			c.SetInput(products[0], 1, b)
			c.SetInput(products[1], 1, a)
		},
		"other weights": func(c *edit.Change, g *onnx.Graph, products []*onnx.Node) {
			w := products[1].Inputs[1].Const
			c.SetInput(products[1], 1, c.AddInitializer(g, onnx.NewFloat32s("other", w.Dims,
				slices.Repeat([]float32{0.5}, int(w.Len())))))
		},
		"another op": func(c *edit.Change, g *onnx.Graph, products []*onnx.Node) {
			k := products[1].Inputs[1].Const.Dims[0]
			twice := c.NewNode(g, "Mul", []*onnx.Value{products[1].Inputs[1],
				c.AddInitializer(g, onnx.NewFloat32s("two", []int64{k, 1}, slices.Repeat([]float32{2}, int(k))))},
				[]*onnx.Value{g.NewValue("twice")})
			c.Insert(products[1], twice)
			c.SetInput(products[1], 1, twice.Outputs[0])
		},
		"tokens in another order": before("Slice", func(c *edit.Change, g *onnx.Graph) []*onnx.Value {
			return []*onnx.Value{list(c, g, -1), list(c, g, math.MinInt64), list(c, g, 1), list(c, g, -1)}
		}),
		"one other element": before("Mul", func(c *edit.Change, g *onnx.Graph) []*onnx.Value {
			x := slices.Repeat([]float32{1}, 64)
			x[41] = 1.001
			return []*onnx.Value{c.AddInitializer(g, onnx.NewFloat32s("factors", []int64{64}, x))}
		}),
		"sums of tokens": before("CumSum", func(c *edit.Change, g *onnx.Graph) []*onnx.Value {
			return []*onnx.Value{c.AddInitializer(g, axis(1))}
		}),
	} {
		err := convert(t, rewritetest.ReadModel(t, "llama-kv-dynamo-fp32"), func(m *onnx.Model) {
			var products []*onnx.Node
			for _, n := range m.Graph.Nodes {
				if n.Is("MatMul") && n.Inputs[1].IsConstant() && slices.Equal(n.Inputs[1].Const.Dims, []int64{64, 64}) {
					products = append(products, n)
				}
			}
			if len(products) < 2 {
				t.Fatalf("%d products", len(products))
			}
			c := new(edit.Change)
			change(c, m.Graph, products)
			if err := c.Finish(); err != nil {
				t.Fatal(err)
			}
		})
		if err == nil || !strings.Contains(err.Error(), "computes something else for packed sequences") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// TestNumbersAsSymbols: some exporters declare fixed sizes as symbols.
func TestNumbersAsSymbols(t *testing.T) { bothProofs(t, testNumbersAsSymbols) }

func testNumbersAsSymbols(t *testing.T) {
	m := rewritetest.ReadModel(t, "llama-kv-dynamo-fp32")
	for _, v := range slices.Concat(m.Graph.Inputs, m.Graph.Outputs) {
		if typ, _ := v.Type(); len(typ.Dims) == 4 {
			typ.Dims[1], typ.Dims[3] = onnx.Dim{Value: -1, Param: "2"}, onnx.Dim{Value: -1, Param: "16"}
			v.SetType(typ)
		}
	}
	r := applytest.Apply(t, m, rewrite.Request{PagedCache: 16}).Paged
	if r.BytesPerToken != 512 {
		t.Errorf("reported %+v", r)
	}
}

// TestFarPositions: tables that depend on the greatest position of all sequences are refused.
func TestFarPositions(t *testing.T) { bothProofs(t, testFarPositions) }

func testFarPositions(t *testing.T) {
	err := convert(t, rewritetest.ReadModel(t, "llama-kv-dynamo-fp32"), func(m *onnx.Model) {
		var c edit.Change
		g := m.Graph
		i := slices.IndexFunc(g.Nodes, func(n *onnx.Node) bool { return n.Is("Cos") })
		j := slices.IndexFunc(g.Nodes, func(n *onnx.Node) bool { return n.Outputs[0].Name == "packed_positions" })
		add := func(op string, in ...*onnx.Value) *onnx.Value {
			n := c.NewNode(g, op, in, []*onnx.Value{g.NewValue("longest_" + op)})
			c.Insert(g.Nodes[i+1], n)
			return n.Outputs[0]
		}
		number := func(x float32) *onnx.Value {
			return c.AddInitializer(g, onnx.NewFloat32s("number", nil, []float32{x}))
		}
		limit := axis(4096)
		limit.Name = "limit"
		cos := g.Nodes[i].Outputs[0]
		uses := slices.Clone(cos.Uses())
		factor := add("Where", add("Greater", add("ReduceMax", g.Nodes[j].Outputs[0]), c.AddInitializer(g, limit)),
			number(2), number(1))
		scaled := add("Mul", cos, factor)
		for _, u := range uses {
			c.SetInput(u.Node, u.Index, scaled)
		}
		if err := c.Finish(); err != nil {
			t.Fatal(err)
		}
	})
	if err == nil || !strings.Contains(err.Error(), "than for one sequence if a position is 4099") {
		t.Errorf("got %v", err)
	}
}

// bothProofs runs a test with proofs that use the model's weights, and with proofs by parts.
func bothProofs(t *testing.T, test func(t *testing.T)) {
	t.Run("whole", test)
	t.Run("by parts", func(t *testing.T) {
		defer pagedcache.ByParts()()
		test(t)
	})
}

// convert converts a model and changes it before the proof.
func convert(t *testing.T, m *onnx.Model, change func(*onnx.Model)) error {
	facts := infer.Analyze(m)
	applytest.Apply(t, m)
	c, b := buffers(t, m, facts, onnx.Undefined, false)
	return c.ApplyChanged(b, change)
}

// buffers makes the caches of a patched model buffers, between the steps of a change to pools.
func buffers(t *testing.T, m *onnx.Model, facts *infer.Facts, codes onnx.DataType,
	packed bool) (*pagedcache.Change, pagedcache.Buffers) {
	t.Helper()
	run := &pass.Run{Editor: edit.Editor{Model: m}, Facts: facts, Skips: func(*onnx.Function) bool { return true }}
	c, err := pagedcache.Before(run, 4, codes)
	if err != nil {
		t.Fatal(err)
	}
	r, err := staticcache.Apply(run, staticcache.Options{RowLengths: true, Packed: packed}, "")
	if err != nil {
		t.Fatal(err)
	}
	return c, pagedcache.Buffers{Positions: r.Counted}
}

// TestRefusedNodes: a node that looks along the sequence is named.
func TestRefusedNodes(t *testing.T) { bothProofs(t, testRefusedNodes) }

func testRefusedNodes(t *testing.T) {
	for _, c := range []struct {
		op   string
		add  func(c *edit.Change, g *onnx.Graph, x *onnx.Value) *onnx.Node
		want string
	}{
		{"the sum of earlier tokens", func(c *edit.Change, g *onnx.Graph, x *onnx.Value) *onnx.Node {
			return c.NewNode(g, "CumSum", []*onnx.Value{x, c.AddInitializer(g, axis(1))},
				[]*onnx.Value{g.NewValue("mixed")})
		}, `node "mixing" (CumSum) computes something else for packed sequences than for one sequence`},
		{"the mean of the sequence", func(c *edit.Change, g *onnx.Graph, x *onnx.Value) *onnx.Node {
			return c.NewNode(g, "LpNormalization", []*onnx.Value{x}, []*onnx.Value{g.NewValue("mixed")},
				onnx.IntAttr("axis", 1))
		}, `node "mixing" (LpNormalization) computes something else`},
	} {
		m := rewritetest.ReadModel(t, "llama-kv-dynamo-fp32")
		var change edit.Change
		i := slices.IndexFunc(m.Graph.Nodes, func(n *onnx.Node) bool { return n.Name == "node_embedding" })
		x := m.Graph.Nodes[i].Outputs[0]
		n := c.add(&change, m.Graph, x)
		n.Name = "mixing"
		for _, u := range slices.Clone(x.Uses()) {
			if u.Node != n {
				change.SetInput(u.Node, u.Index, n.Outputs[0])
			}
		}
		change.Insert(m.Graph.Nodes[i+1], n)
		if err := change.Finish(); err != nil {
			t.Fatal(err)
		}
		plan := applytest.Plan(t, m, rewrite.Request{PagedCache: 16})
		if err := plan.Replace(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v", c.op, err)
		}
	}
	m := rewritetest.ReadModel(t, "llama-dynamo-fp32")
	_, err := rewrite.Apply(m, rewrite.Request{AssumeAvailable: true, PagedCache: 16})
	if err == nil || !strings.Contains(err.Error(), "the cache cannot be paged: the cache "+
		"cannot be static: the model has no mojo.Attention with a cache") {
		t.Errorf("without a cache: got %v", err)
	}
	hybrid, err := onnx.Read(filepath.Join("..", "..", "llm", "generate", "testdata", "hybrid-fp32.onnx"))
	if err != nil {
		t.Fatal(err)
	}
	defer hybrid.Close()
	_, err = rewrite.Apply(hybrid, rewrite.Request{AssumeAvailable: true, PagedCache: 16})
	if err == nil || !strings.Contains(err.Error(), `input "past_conv_0" is a state of each sequence`) {
		t.Errorf("with states: got %v", err)
	}
}

func axis(x int64) *onnx.Tensor {
	t := onnx.NewInt64s("axis", []int64{x})
	t.Dims = []int64{}
	return t
}

func TestParse(t *testing.T) {
	for text, want := range map[string]int64{"paged": 256, "paged=16": 16, "paged=0": 0,
		"paged=": 0, "pages": 0} {
		if got, err := pagedcache.Parse(text); got != want || (err == nil) != (want > 0) {
			t.Errorf("%q: got %d, %v", text, got, err)
		}
	}
}

// TestWorkIsBounded: a proof that would take too long is refused before it begins, unless no proof is wanted.
func TestWorkIsBounded(t *testing.T) {
	const tokens, weights = 56, 71_680 // all matrices of the model except its table of tokens
	refused := "the cache cannot be paged: the proof runs 56 tokens through about 7.17e+04 weights, which is more " +
		"than 4.01e+06 multiplications: use --verify off"
	for products, want := range map[int64]string{tokens * weights: "", tokens*weights - 1: refused} {
		restore := pagedcache.BoundWork(products)
		_, err := rewrite.Apply(rewritetest.ReadModel(t, "llama-kv-dynamo-fp32"), rewrite.Request{AssumeAvailable: true,
			PagedCache: 16})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%d multiplications: got %v, want %q", products, err, want)
		}
		_, err = rewrite.Apply(rewritetest.ReadModel(t, "llama-kv-dynamo-fp32"), rewrite.Request{AssumeAvailable: true,
			PagedCache: 16, Verify: rewrite.VerifyOff})
		if err != nil {
			t.Error(err)
		}
		restore()
	}
}

// TestNothingHidesPadding: attention without a mask, which sees all tokens of its sequence, needs none without padding.
func TestNothingHidesPadding(t *testing.T) { bothProofs(t, testNothingHidesPadding) }

func testNothingHidesPadding(t *testing.T) {
	m := rewritetest.ReadModel(t, "llama-kv-dynamo-fp32")
	facts := infer.Analyze(m)
	applytest.Apply(t, m)
	var c edit.Change
	for _, n := range m.Graph.Nodes {
		if n.OpType != fused.AttentionName {
			continue
		}
		c.SetAttr(n, onnx.IntAttr(fused.AttrCausal, 0))
		c.SetInput(n, fused.AttentionKeyValid, nil)
		f, err := fused.Lookup(n.OpType).Function(pass.FusedSite(m, infer.Analyze(m), n))
		if err != nil {
			t.Fatal(err)
		}
		c.SetDomain(n, n.Domain, f.Overload)
		c.AddFunction(m, f)
	}
	change, buffers := buffers(t, m, facts, onnx.Undefined, true)
	if _, err := change.Apply(buffers); err != nil {
		t.Error(err)
	}
}
