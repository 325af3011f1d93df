package sites

import (
	"errors"
	"fmt"
	"hash/crc32"
	"iter"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/patterns"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/reference/infer"
	"github.com/mojo-patch/mojo-patch/rewrite/pass"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
	"github.com/mojo-patch/mojo-patch/rewrite/registry"
	"github.com/mojo-patch/mojo-patch/rewrite/rewritetest"
)

// siteOf returns a match as a site, replaced by one op.
func siteOf(t *testing.T, m *onnx.Model, match *patterns.Match) (*Checker, *Site) {
	t.Helper()
	match.Domain = fused.Domain
	rewritetest.OneNode(match, m.Opset(""))
	k := checkerOf(m)
	scope := pass.Scopes(m, func(*onnx.Function) bool { return true })[0]
	c, err := NewSite(match, scope, k.run.Facts)
	if err == nil {
		_, err = c.AddCall(match.Replacement.Nodes[0], &registry.Kernel{ID: "any"}, m.Opset(""))
	}
	if err == nil {
		err = c.Cut(k.run.Facts)
	}
	if err != nil {
		t.Fatal(err)
	}
	c.coarse = coarsest(c, k.run.Facts)
	c.narrowest = c.coarse
	return k, c
}

// expertsOf returns the check of a mixture of experts with 8 channels, whose nodes compute with these weights.
func expertsOf(t *testing.T, typ onnx.DataType, n, chosen int, weights func(m *rewritetest.MoE) value) *routed {
	t.Helper()
	m := rewritetest.NewMoE(t, typ, n, chosen, 8, 6)
	w := m.Weights
	if weights != nil {
		m.Weights = weights(m)
	}
	y := m.Gathered("")
	m.Weights = w
	m.Out(y, "tokens", m.Hidden)
	k, s := siteOf(t, m.Model, m.Match(y, "silu"))
	x := newRouted(k, s, &prove.CheckReport{})
	var err error
	if x.sizes, err = k.sizes(s, x.r); err != nil {
		t.Fatal(err)
	}
	x.failure = errors.New("it fails")
	return x
}

// summary returns the number of trials and a checksum of their names and inputs, and calls seen for each.
func summary(t *testing.T, trials iter.Seq2[prove.Trial, error], seen func(prove.Trial)) string {
	t.Helper()
	n, sum := 0, crc32.NewIEEE()
	for trial, err := range trials {
		if err != nil {
			return fmt.Sprintf("%d trials and %v", n, err)
		}
		n++
		fmt.Fprintln(sum, trial.Name, trial.Kind, trial.Pass)
		for _, x := range trial.Inputs {
			x, err := x.Dense()
			if err != nil {
				t.Fatal(err)
			}
			if x != nil {
				write(sum, x)
			}
		}
		if seen != nil {
			seen(trial)
		}
	}
	return fmt.Sprintf("%d trials %08x", n, sum.Sum32())
}

func write(to interface{ Write([]byte) (int, error) }, x *reference.Tensor) {
	fmt.Fprintln(to, x.DataType, x.Shape, x.I)
	for _, v := range x.F {
		fmt.Fprintf(to, "%.4g ", v)
	}
}

// TestTrialsOfSites: what the check of a site shows depends on the inputs that it tries. They are always the same; a
// change of them must be intended, and cover the cases that the comments of the trials name.
func TestTrialsOfSites(t *testing.T) {
	bounds := BigMatrices
	t.Cleanup(func() { BigMatrices = bounds })
	for name, c := range map[string]struct {
		typ       onnx.DataType
		n, chosen int
		big       bool
		works     func(hits string) bool
		want      string
		repairs   string
	}{
		"experts": {onnx.Float, 5, 2, false, nil,
			"49 trials 0626eb43", ""},
		"one of many experts": {onnx.Float16, 20, 1, false, nil,
			"63 trials 376c452b", ""},
		"all experts": {onnx.BFloat16, 3, 3, false, nil,
			"31 trials 8fa254a3", ""},
		"eight experts": {onnx.Float, 8, 2, false, nil,
			"58 trials 002ef178", ""},
		"nine experts": {onnx.Float, 9, 2, false, nil,
			"47 trials 9dd3cf67", ""},
		"great experts": {onnx.Float, 11, 2, true, nil,
			"16 trials 235271e5", ""},
		"traced experts": {onnx.Float, 5, 2, false, func(on string) bool { return on == "on 4 of 5 experts" },
			"39 trials ce6563f0", "unless the tokens go to 4 of the 5 experts"},
		"one at a time": {onnx.Float, 60, 1, false, func(on string) bool { return on == "on 2 of 60 experts" },
			"152 trials c33327c8", "unless the tokens go to 2 of the 60 experts"},
		"an odd number": {onnx.Float, 7, 2, false, func(on string) bool { return on[3]%2 == 1 },
			"47 trials 51342625", "unless the tokens go to 3, 5 or 7 of the 7 experts"},
		"no routing": {onnx.Float, 5, 2, false, func(string) bool { return false },
			"12 trials and cannot be checked: the matched nodes fail for all of 12 routings: it fails", "unless"},
	} {
		if BigMatrices = bounds; c.big {
			BigMatrices = 1
		}
		x := expertsOf(t, c.typ, c.n, c.chosen, nil)
		x.big = c.big
		x.matrices = int64(c.n * (12*8 + 8*6))
		got := summary(t, x.trials(x.experts), func(trial prove.Trial) {
			_, on, _ := strings.Cut(trial.Name, " on ")
			x.defined = c.works == nil || c.works("on "+on)
		})
		if repairs := x.repairs(); !strings.HasPrefix(got, c.want) || !strings.Contains(repairs, c.repairs) ||
			(repairs == "") != (c.repairs == "") {
			t.Errorf("%s: %s, %q", name, got, x.repairs())
		}
	}
}

// TestTrialsOfOps is TestTrialsOfSites for the other ops, and for the inputs of kernels.
func TestTrialsOfOps(t *testing.T) {
	router := func(typ onnx.DataType, groups int64) string {
		b := rewritetest.New(t, 20, typ)
		logits, bias := b.In("logits", "tokens", 8), b.Weight("bias", 8)
		w, ids := b.TopK(b.Op("Add", b.Op("Sigmoid", logits), bias), 3)
		w = b.Op("Cast", w, onnx.IntAttr("to", int64(onnx.Float)))
		k, s := siteOf(t, b.Model, &patterns.Match{Op: "TopKRouter", Inputs: []value{logits, bias},
			Roles: map[value]fused.Role{logits: fused.RoleLogits, bias: fused.RoleCorrection}, Outputs: []value{w, ids},
			Attributes: fused.TopKRouter{TopK: 3, Score: "sigmoid", Order: "score_first", Groups: groups,
				GroupTopK:  (groups + 1) / 2,
				GroupScore: "max", Scale: 1}.Attributes()})
		x := newRouted(k, s, nil)
		var err error
		if x.sizes, err = k.sizes(s, x.r); err != nil {
			t.Fatal(err)
		}
		return summary(t, x.trials(x.router), nil)
	}
	attention := func(typ onnx.DataType, a fused.Attention) string {
		b := onnxtest.New(20)
		q, key := b.Input("q", typ, "b", 2, "n", 8), b.Input("k", typ, "b", 2, "m", 8)
		v := b.Input("v", typ, "b", 2, "m", 4)
		scores := b.Op("MatMul", q, b.Op("Transpose", key, onnx.IntsAttr("perm", []int64{0, 1, 3, 2})))
		y := b.Op("MatMul", b.Op("Softmax", scores, onnx.IntAttr("axis", -1)), v)
		b.Output(y)
		a.Empty, a.HeadOrder, a.QLayout, a.KLayout = "mean", "blocked", "bnsh", "bnsh"
		a.VLayout, a.YLayout = "bnsh", "bnsh"
		k, s := siteOf(t, b.Model, &patterns.Match{Op: fused.AttentionName, Inputs: []value{q, key, v},
			Outputs: []value{y}, Attributes: a.Attributes(), Roles: map[value]fused.Role{q: fused.RoleQueries,
				key: fused.RoleKeys, v: fused.RoleValues}})
		add := func(v value, typ onnx.DataType, role fused.Role) {
			s.Match.Inputs, s.Match.Roles[v], s.Types = append(s.Match.Inputs, v), role, append(s.Types, typ)
		}
		add(b.Input("bias", typ, "b", 1, "n", "m"), typ, fused.RoleScoreBias)
		add(b.Input("exists", onnx.Int64, "b", "m"), onnx.Int64, fused.RoleKeyExists)
		add(b.Input("hidden", onnx.Bool, "b", "m"), onnx.Bool, fused.RoleKeyHidden)
		add(b.Input("lengths", onnx.Int32, "b", "m"), onnx.Int32, fused.RoleKeyLengths)
		add(b.Floats([]int64{2}, 1, 2), onnx.Float, fused.NoRole)
		k.run.Facts = infer.Analyze(b.Model)
		p := &proof{Checker: k, c: s}
		return summary(t, p.trials(func() error {
			for n := range prove.CheckedWorlds {
				w := world{k.run.Facts, n}
				shapes, err := k.shapes(s, w)
				if err != nil {
					return err
				}
				for _, pass := range []prove.Pass{prove.Exactly, prove.Rounded} {
					if err := p.attention(w, shapes, pass); err != nil {
						return err
					}
				}
			}
			return nil
		}), nil)
	}
	numbers := func(typ onnx.DataType, epsilon float32, dims ...any) string {
		b := rewritetest.New(t, 20, typ)
		x, scale := b.In("x", append(dims, 16)...), b.Weight("scale", 16)
		y := b.Norm(x, scale, 1e-6)
		k, s := siteOf(t, b.Model, &patterns.Match{Op: "RMSNorm", Inputs: []value{x, scale}, Outputs: []value{y},
			Attributes: fused.RMSNorm{Axis: -1, Epsilon: epsilon}.Attributes()})
		w := world{k.run.Facts, 0}
		shapes, err := k.shapes(s, w)
		if err != nil {
			t.Fatal(err)
		}
		return summary(t, k.numbers(s, w, shapes, prove.Kinds).Trials, nil)
	}
	linearly := func(varying bool) string {
		b := onnxtest.New(20)
		roles := []fused.Role{fused.NoRole, fused.RoleLinearKeys, fused.NoRole, fused.RoleDecay, fused.RoleDecayLog,
			fused.RoleShare}
		s := &Site{Match: &patterns.Match{Roles: map[value]fused.Role{}}, slice: &slice{varying: varying}}
		for i, role := range roles {
			v := b.Input(fmt.Sprint("in", i), onnx.Float, "b", "n", 8)
			s.Match.Inputs, s.Match.Roles[v], s.Types = append(s.Match.Inputs, v), role, append(s.Types, onnx.Float)
		}
		s.Match.Inputs, s.Types = append(s.Match.Inputs, b.Floats([]int64{2}, 1, 2)), append(s.Types, onnx.Float)
		k := checkerOf(b.Model)
		x := &linear{proof: &proof{Checker: k, c: s}, width: 8, key: 4}
		got := summary(t, x.trials(func() error { return x.lengths([]int{0, 1}) }), func(prove.Trial) {
			if x.failure = nil; x.rows > 64 && !x.fixed {
				x.failure = errors.New("too long")
			}
		})
		return fmt.Sprint(got, x.works, x.fails, s.terms)
	}
	hard := func(op string, s fused.Site) string {
		sum, n := crc32.NewIEEE(), 0
		for _, h := range HardInputsOf(fused.Lookup(op), s) {
			for i := range s.Types {
				x, err := h.Tensor(fused.Lookup(op), s, i)
				if err != nil {
					t.Fatal(err)
				}
				if fmt.Fprintln(sum, h.Name, h.Numbers(fused.Lookup(op), s, i)); x != nil {
					write(sum, x)
				}
				n++
			}
		}
		return fmt.Sprintf("%d inputs %08x", n, sum.Sum32())
	}
	chosen := func(w weightKind) string {
		r, sum := &routing{experts: 6, chosen: 2}, crc32.NewIEEE()
		logits := r.choosing(&trial{size: size{tokens: 4}, weights: w, start: 1}, onnx.Float16, r.route(4, 5, 1))
		write(sum, reference.NewFloats(onnx.Float16, []int{4, 6}, logits))
		return fmt.Sprintf("%08x", sum.Sum32())
	}
	type types = []onnx.DataType
	f, half := onnx.Float, onnx.Float16
	attends := func(a fused.Attention) fused.Site {
		a.QLayout, a.KLayout = "bnsh", "bnsh"
		s := fused.Site{Attributes: a.Attributes(), Types: make([]onnx.DataType, 9), Dims: make([][]int64, 9)}
		for i, dims := range map[int][]int64{fused.AttentionQ: {2, 2, 3, 8}, fused.AttentionK: {2, 2, 3, 8},
			fused.AttentionV: {2, 2, 3, 4}, fused.AttentionPastKey: {2, 2, 2, 8},
			fused.AttentionPastValue: {2, 2, 2, 4}, fused.AttentionBias: {2, 1, 3, 5}} {
			s.Types[i], s.Dims[i] = f, dims
		}
		if a.Causal {
			s.Types[fused.AttentionKeyValid], s.Dims[fused.AttentionKeyValid] = onnx.Int64, []int64{2, 5}
		}
		return s
	}
	for name, c := range map[string][2]string{
		"chosen":     {chosen(someWeights), "8989b6e0"},
		"one weight": {chosen(oneWeight), "b4d25be6"},
		"router": {router(f, 1),
			"26 trials 711a8cfe"},
		"groups": {router(half, 4),
			"34 trials 97a55ca5"},
		"attention": {attention(f, fused.Attention{}),
			"24 trials 6c1227ec"},
		"attention, scaled": {attention(half, fused.Attention{Scale: 0.5, Causal: true}),
			"18 trials 67209994"},
		"norm": {numbers(f, 1e-6, "n", 3),
			"16 trials 76cc23e5"},
		"norm of float16": {numbers(half, 0, 5),
			"20 trials d161f6f4"},
		"linear attention": {linearly(true),
			"30 trials 6b380253[1 63 64] [65 130] 520"},
		"of one length": {linearly(false),
			"22 trials 73cf8af8[] [] 220"},
		"kernel of GLU": {hard("GLU", fused.Site{Types: types{f, f}, Dims: [][]int64{{3, 4}, {3, 4}}}),
			"16 inputs 4aa191b5"},
		"kernel of attention": {hard(fused.AttentionName, attends(fused.Attention{Scale: 0.25})),
			"90 inputs 82a35008"},
		"of causal attention": {hard(fused.AttentionName, attends(fused.Attention{Causal: true})),
			"90 inputs 2ef66f0b"},
		"kernel of paged attention": {hard(fused.PagedAttentionName, fused.Site{
			Types: types{f, f, f, f, f, onnx.Int32, onnx.Int32, onnx.Int32}, Dims: [][]int64{{6, 2, 8}, {6, 2, 8},
				{6, 2, 8}, {9, 4, 2, 8}, {9, 4, 2, 8}, {4}, {3}, {3, 3}}}),
			"64 inputs 057e31fc"},
		"kernel of a router": {hard("TopKRouter", fused.Site{Types: types{f, f}, Dims: [][]int64{{3, 8}, {8}}}),
			"6 inputs b663887d"},
		"kernel of a mixture": {hard("MoE", fused.Site{Types: types{half, f, onnx.Int64, half},
			Dims: [][]int64{{3, 8}, {3, 2}, {3, 2}, {4, 12, 8}}}),
			"20 inputs a9820b0f"},
	} {
		if c[0] != c[1] {
			t.Errorf("%s: %s", name, c[0])
		}
	}
}

// TestCoveredExperts: each expert gets tokens in some trial, and none in another one, unless the nodes fail for it.
func TestCoveredExperts(t *testing.T) {
	for hits, want := range map[int64]string{4: "[0 1 2 3 4] [0 1 2 3 4]", 5: "[0 1 2 3 4] []",
		3: "cannot be checked: the matched nodes fail whenever tokens go to the experts [0 1 2 3 4]: it fails"} {
		x := expertsOf(t, onnx.Float, 5, 2, nil)
		x.good = []trial{{size: x.sizes[len(x.sizes)-1], kind: prove.Normal, hits: hits}}
		got := summary(t, x.trials(x.cover), func(prove.Trial) { x.defined = hits > 3 })
		_, failed, _ := strings.Cut(got, "trials and ")
		if which := func(m map[int64]bool) (list []int64) {
			for e := range int64(5) {
				if m[e] {
					list = append(list, e)
				}
			}
			return list
		}; failed == "" {
			failed = fmt.Sprint(which(x.hit), which(x.idle))
		}
		if failed != want {
			t.Errorf("%d experts at once: %s, want %s", hits, failed, want)
		}
	}
}
