package sites

import (
	"cmp"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
	"github.com/mojo-patch/mojo-patch/rewrite/registry"
)

const (
	// fewAtOnce tokens for one expert are always tried, if they take at most fewProducts.
	fewAtOnce   = 33
	fewProducts = 1 << 26
	// manyProducts bounds the trials that send this many tokens to each expert in turn.
	manyProducts = 1 << 28
	// mostAtOnce and mostProducts bound trials suggested by a number in the graph.
	mostAtOnce   = 1 << 12
	mostProducts = 1 << 33
	// mostSingles bounds the trials of experts with one token.
	mostSingles = 32
	// unlimited is a bound beyond any number of tokens.
	unlimited = 1 << 30
)

// crowd sends more tokens to one expert than the matched nodes may have room for. Some mixtures drop tokens beyond a
// capacity, and only that many tokens show it. The capacity is a number that something is compared with or counted to.
// Each other expert then gets as many tokens, if that does not take too long, because a single expert may have a
// capacity.
func (x *routed) crowd() error {
	named, other := x.limits()
	at := slices.MinFunc(x.good, func(a, b trial) int { return int(a.hits - b.hits) })
	each := x.matrices / x.r.experts * x.r.chosen // products for one token
	tokens := func(limit int64) int64 { return limit*at.hits/x.r.chosen + 2 }
	n := tokens(max(named, fewAtOnce))
	if named > 0 && (n*each > mostProducts || named > mostAtOnce) {
		return &prove.EvalError{Err: reason.New(reason.Unchecked, nil,
			"a node compares with %d, which may be the most tokens of an expert, and trying that many takes "+
				"too long", named).With("tokens", named)}
	}
	if m := tokens(other); m > n && m*each <= fewProducts {
		n = m
	}
	if named == 0 && n*each > fewProducts {
		return nil
	}
	if err := x.crowded(at, x.next, n); err != nil {
		return err
	}
	rounds := (x.r.experts + at.hits - 1) / at.hits
	if n*each*rounds > manyProducts {
		n = tokens(fewAtOnce)
	}
	if n*each*rounds > manyProducts {
		return nil
	}
	for start := at.hits; start < x.r.experts; start += at.hits { // any of them may be the one that drops tokens
		if err := x.crowded(at, x.next+start, n); err != nil {
			return err
		}
	}
	return nil
}

// crowded tries n tokens on as many experts as a good trial has, starting at number start.
func (x *routed) crowded(at trial, start, n int64) error {
	s, err := x.sizeOf(x.c, x.r, n)
	if err != nil {
		return nil // the site requires another number
	}
	_, err = x.attempt(trial{size: s, kind: prove.Normal, hits: at.hits, start: start})
	return err
}

// single sends one token to each of some experts and the rest to the same few experts, until every expert had a single
// token: some mixtures run an expert only for several tokens.
func (x *routed) single() error {
	at := slices.MaxFunc(x.good, func(a, b trial) int {
		return cmp.Or(cmp.Compare(a.hits, b.hits), cmp.Compare(a.tokens, b.tokens))
	})
	n := min(at.hits-x.r.chosen, at.tokens)
	if x.r.chosen == 1 {
		n = min(n, at.tokens-1) // the others need a token
	}
	most := mostSingles
	if x.big {
		most = 2
	}
	for range most {
		var left, rest []int64
		for e := range x.r.experts {
			if x.alone[e] {
				rest = append(rest, e)
			} else {
				left = append(left, e)
			}
		}
		if len(left) == 0 || n < 1 {
			break
		}
		t := at
		t.ids = x.r.apart(at.tokens, n, append(left, rest...))
		if defined, err := x.try(t, true); err != nil || !defined {
			return err
		}
	}
	return nil
}

// limits finds the largest number in the graph that may be a capacity: named among numbers that counts are compared
// with or computed from, other among the rest.
func (x *routed) limits() (named, other int64) {
	var look func(n *onnx.Node)
	look = func(n *onnx.Node) {
		for i, v := range n.Inputs {
			limit := x.limit(v)
			if limit == 0 || x.r.logits && n.Is("TopK") && limit == x.r.chosen { // the router's
				continue
			}
			if limit > mostAtOnce && !strings.HasPrefix(n.OpType, "Less") && !strings.HasPrefix(n.OpType, "Greater") {
				continue
			}
			if isLimit(n, i) && limit != x.r.experts && limit != x.r.experts-1 {
				named = max(named, limit)
			} else {
				other = max(other, limit)
			}
		}
		for _, g := range n.Subgraphs() {
			for _, m := range g.Nodes {
				look(m)
			}
		}
	}
	for _, n := range x.c.slice.nodes {
		look(n)
	}
	return named, other
}

// isLimit reports whether input i of the node is a number that others are compared with.
func isLimit(n *onnx.Node, i int) bool {
	switch n.OpType {
	case "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Min", "Max", "Clip":
		return true
	case "OneHot", "TopK":
		return i == 1
	}
	return false
}

// limit returns the largest integer of a small constant that may count tokens, or 0 if it has none.
func (x *routed) limit(v *onnx.Value) int64 {
	if v == nil {
		return 0
	}
	t, ok := x.run.Facts.Constant(v)
	if !ok || t.Len() > 16 {
		return 0
	}
	most := int64(0)
	for _, n := range t.I {
		if n < unlimited {
			most = max(most, n)
		}
	}
	for _, f := range t.F {
		if f <= mostAtOnce && f >= 2 {
			most = max(most, int64(f))
		}
	}
	return most
}

// expertSizes are the sizes for the kernel trials of a large site.
type expertSizes struct{ hidden, inner int64 }

// These sizes are not multiples of a vector's width. Each of a few experts gets smallTokens tokens.
const (
	smallHidden = 52
	smallInner  = 36
	smallTokens = 5
)

// smallKernels compares the kernel with the op's definition, like kernel, if the site's weights are too large to pass
// on. It uses few experts with the same types and attributes, and matrices that are small, or as wide as the site's in
// one direction.
func (x *routed) smallKernels() error {
	if x.run.Kernel == nil || registry.IsDefinition(x.r.call.Kernel) {
		return nil
	}
	axis := -1
	if x.r.call.Site.Attr(fused.AttrDownLayout).String == "in_out" {
		axis = 1
	}
	inner := dimOf(x.r.call.Site, fused.MoEDown, axis)
	for _, s := range []expertSizes{{smallHidden, smallInner}, {x.r.hidden, smallInner}, {smallHidden, inner}} {
		if s.inner < 1 {
			continue
		}
		if err := x.smallKernel(s); err != nil {
			return err
		}
	}
	return nil
}

func (x *routed) smallKernel(sizes expertSizes) error {
	call := *x.r.call
	small := *x.r
	small.experts = x.r.chosen + 3
	t := &trial{size: size{tokens: smallTokens}, kind: prove.Normal, hits: small.chosen + 1}
	g := onnx.NewFunction("", "", "", x.run.Model.Opset("")).Body
	values := map[*onnx.Value]*reference.Tensor{}
	inputs := slices.Clone(call.Node.Inputs)
	for i, v := range inputs {
		if v == nil {
			continue
		}
		var err error
		shape, typ := small.shape(i, sizes), call.Site.Types[i]
		in := g.AddInput(call.Op.Inputs[i].Name, onnx.Type{})
		switch call.Op.Inputs[i].Role {
		case fused.RoleIDs:
			values[in] = reference.NewInts(typ, ints(shape), small.route(t.tokens, t.hits, 0))
		case fused.RoleWeights:
			values[in] = reference.NewFloats(typ, ints(shape),
				weightsOf(t, typ, int(t.tokens*small.chosen), small.chosen))
		case fused.RoleMatrix:
			var t *reference.Tensor
			if t, err = reference.NewLazy(typ, ints(shape), randomNumbers(i, matrixScale(shape), typ)); err == nil {
				values[in], err = t.Dense()
			}
		default:
			values[in], err = prove.MakeInput(prove.Normal, i, typ, shape)
		}
		if err != nil {
			return &prove.EvalError{Err: err}
		}
		inputs[i] = in
	}
	out := g.NewValue(call.Op.Outputs[0].Name)
	n := g.AddNode(call.Node.OpType, inputs, []*onnx.Value{out}, call.Node.Attributes...)
	n.Domain, n.Overload = call.Node.Domain, call.Node.Overload
	call.Node = n
	e := reference.NewForOpset(x.run.Model.Opset(""), x.c.Functions, reference.Options{})
	if err := e.Eval(g.Nodes, values); err != nil {
		return &prove.EvalError{Err: err}
	}
	return x.kernel(&call, t.kind.Name, values, x.out)
}

// shape returns the shape of an input of MoE at these sizes.
func (r *routing) shape(input int, s expertSizes) []int64 {
	wide := 2 * s.inner
	if r.call.Site.Attr(fused.AttrPacking).String == "none" {
		wide = s.inner
	}
	matrix := func(layout string, out, in int64) []int64 {
		if r.call.Site.Attr(layout).String == "in_out" {
			out, in = in, out
		}
		return []int64{r.experts, out, in}
	}
	return [][]int64{{smallTokens, s.hidden}, {smallTokens, r.chosen}, {smallTokens, r.chosen},
		matrix(fused.AttrGateUpLayout, wide, s.hidden), matrix(fused.AttrDownLayout, s.hidden, s.inner),
		{r.experts, wide}, {r.experts, s.hidden}}[input]
}
