package shard

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/reference/infer"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
)

// proofs compares the ranks of blocks with the whole. Blocks of one form are compared once.
type proofs struct {
	model  *onnx.Model
	facts  *infer.Facts
	prover prove.Prover
	large  int64
	// large and mostPacked are the constants, except in tests.
	mostPacked int64
}

func newProofs(m *onnx.Model, facts *infer.Facts) *proofs {
	return &proofs{model: m, facts: facts, large: large, mostPacked: mostPacked}
}

// large is the number of elements of a block's constants from which it is evaluated once, and without rounding: real
// blocks would take minutes.
const large = 1 << 22

// mostPacked is the number of elements of a constant of integers up to which a block is evaluated. Unlike floats, which
// are read piece by piece, integers are decoded at once: so many take 1 GB, and what is computed from them several.
const mostPacked = 1 << 27

// Assumed begins the Proof of a block that was not evaluated.
const Assumed = "assumed"

// prove evaluates all ranks of a block together, and the whole, on the same inputs. It describes the comparison.
func (p *proofs) prove(b *block) (string, error) {
	nodes := b.inOrder()
	inputs, outputs := border(b, nodes)
	ports := make([]onnx.Port, len(inputs))
	for i, v := range inputs {
		t, ok := p.facts.Type(v)
		if !ok {
			return "", fmt.Errorf("the shape of %q is not known", v.Name)
		}
		ports[i] = onnx.Port{Value: v, Type: t}
	}
	part, err := p.model.Part(nodes, ports, outputs)
	if err != nil {
		return "", err
	}
	what := fmt.Sprintf("%d nodes from %q to %q on %d ranks", len(nodes), nodes[0].Label(),
		nodes[len(nodes)-1].Label(), b.ranks)
	for _, n := range nodes {
		for _, v := range n.Inputs {
			if v == nil {
				continue
			}
			if t := v.Constant(); t != nil && !t.DataType.IsFloat() && t.Len() > p.mostPacked {
				p.prover.Assume(what)
				return fmt.Sprintf("%s: %q has %d packed elements, more than the %d that are evaluated", Assumed,
					v.Name, t.Len(), p.mostPacked), nil
			}
		}
	}
	proof, isLarge := "all ranks evaluated together, equal to the whole", b.elements() > p.large
	if isLarge {
		proof += " without rounding"
	}
	key := formOf(part, b)
	if settled, err := p.prover.Settled(what, key); settled {
		return proof, differs(err)
	}
	models := make([]*onnx.Model, b.ranks)
	for rank := range models {
		if models[rank], err = p.model.Part(nodes, ports, outputs); err != nil {
			return "", err
		}
		w := &builder{model: models[rank], facts: p.facts.DataType, rank: int64(rank), ranks: b.ranks}
		if err := w.build([]*block{b}); err != nil {
			return "", err
		}
	}
	claim := &prove.Claim{What: what, Key: key, By: "the ranks",
		Before: prove.Model(part),
		After: func(o reference.Options, in []*reference.Tensor) ([]*reference.Tensor, error) {
			return b.evaluate(models, o, inputs, outputs, in)
		},
		Exact: prove.Structural, Typed: prove.SumOf(terms(nodes)),
		Trials: func(yield func(prove.Trial, error) bool) {
			for world := range prove.CheckedWorlds {
				for _, k := range []prove.Kind{prove.Normal, prove.OneHot} {
					for t, err := range p.trials(inputs, k, world, b.ranks) {
						if !yield(t, err) || err != nil {
							return
						}
					}
				}
			}
		}}
	if isLarge {
		claim.Typed = nil
		claim.Trials = p.trials(inputs, prove.Normal, 0, b.ranks)
	}
	return proof, differs(p.prover.Prove(claim))
}

// differs describes the error of a comparison, if there is one.
func differs(err error) error {
	var unchecked *prove.EvalError
	if errors.As(err, &unchecked) {
		return fmt.Errorf("the ranks and the whole cannot be compared: %w", err)
	}
	if err != nil {
		return fmt.Errorf("the ranks compute something else: %w", err)
	}
	return nil
}

// elements counts the elements of the divided constants.
func (b *block) elements() (n int64) {
	for u := range b.weights {
		n += u.Node.Inputs[u.Index].Constant().Len()
	}
	return n
}

// border lists the values that a block reads from elsewhere, and those that it makes for others.
func border(b *block, nodes []*onnx.Node) (inputs, outputs []*onnx.Value) {
	made, seen := map[*onnx.Value]bool{}, map[*onnx.Value]bool{}
	for _, n := range nodes {
		for _, v := range n.Reads() {
			if v.Constant() == nil && !made[v] && !seen[v] {
				seen[v] = true
				inputs = append(inputs, v)
			}
		}
		for _, v := range n.Outputs {
			made[v] = true
			if v == nil {
				continue
			}
			outside := func(u onnx.Use) bool { return !b.nodes[u.Node] }
			if v.IsOutput() || slices.ContainsFunc(v.Uses(), outside) {
				outputs = append(outputs, v)
			}
		}
	}
	return inputs, outputs
}

// trials are as many as it takes to look up rows of a table, or experts, of every rank: at both ends of its part.
func (p *proofs) trials(inputs []*onnx.Value, k prove.Kind, world int, ranks int64) iter.Seq2[prove.Trial, error] {
	return func(yield func(prove.Trial, error) bool) {
		rounds := int64(1)
		for _, v := range inputs {
			if shape, ok := p.facts.Shape(v, world); ok && rowsOf(v) > 0 {
				ids := max(match.Elements(shape), 1)
				rounds = max(rounds, (2*ranks+ids-1)/ids)
			}
		}
		for round := range rounds {
			in, err := p.trial(inputs, k, world, round, rounds)
			name := fmt.Sprintf("%s, sizes %d, round %d", k.Name, world, round)
			if !yield(prove.Trial{Name: name, Inputs: in}, err) || err != nil {
				return
			}
		}
	}
}

// trial makes inputs of a block: hard numbers, and integers that the graph computes from its sizes.
func (p *proofs) trial(inputs []*onnx.Value, k prove.Kind, world int, round, rounds int64) (
	in []*reference.Tensor, err error) {
	for i, v := range inputs {
		if known, ok := p.facts.Known(v, world); ok {
			in = append(in, known)
			continue
		}
		shape, ok := p.facts.Shape(v, world)
		if !ok {
			return nil, fmt.Errorf("the shape of %q is not known", v.Name)
		}
		shape = p.maskShape(v, shape, world)
		x, err := prove.MakeInput(k, i, p.facts.DataType(v), shape)
		if numbers := p.meant(v, shape, world, round, rounds); err == nil && numbers != nil {
			x = reference.NewInts(x.DataType, x.Shape, numbers)
		}
		if err == nil && scalesPool(v) {
			for i := range x.F {
				x.F[i] = math.Ldexp(1, -i%5)
			}
		}
		if err != nil {
			return nil, fmt.Errorf("%q: %w", v.Name, err)
		}
		in = append(in, x)
	}
	return in, nil
}

// scalesPool reports whether an input has the scales of a pool of codes, which are powers of two.
func scalesPool(v *onnx.Value) bool {
	return slices.ContainsFunc(v.Uses(), func(u onnx.Use) bool {
		return u.Node.Domain == fused.Domain && u.Node.OpType == fused.QPagedAttentionName &&
			(u.Index == fused.QPagedAttentionKeyScale || u.Index == fused.QPagedAttentionValueScale)
	})
}

// rowsOf returns the number of rows of a table, or of experts, that an input has the ids of; 0 for another input.
func rowsOf(v *onnx.Value) int64 {
	for _, u := range v.Uses() {
		n := u.Node
		table := n.Inputs[0]
		switch {
		case isMixture(n) && u.Index == fused.MoEIDs:
			table = n.Inputs[fused.MoEGateUp]
		case !n.Is("Gather") || u.Index != 1 || n.AttrInt("axis", 0) != 0:
			continue
		}
		if t := table.Constant(); t != nil && len(t.Dims) > 0 {
			return t.Dims[0]
		}
	}
	return 0
}

// meant returns integers of an input that have a meaning: ids of rows of a table or of experts, and the lengths and
// blocks of packed sequences. The ids of all rounds are the ends of equal ranges. It returns nil for other inputs.
func (p *proofs) meant(v *onnx.Value, shape []int64, world int, round, rounds int64) []int64 {
	fill := func(f func(i int64) int64) []int64 {
		list := make([]int64, match.Elements(shape))
		for i := range list {
			list[i] = f(int64(i))
		}
		return list
	}
	if rows := rowsOf(v); rows > 0 {
		ranges := match.Elements(shape) * rounds
		return fill(func(i int64) int64 {
			i = i*rounds + round
			first, end := i*rows/ranges, (i+1)*rows/ranges
			return max(first, (end-1)*(i%2))
		})
	}
	for _, u := range v.Uses() {
		n := u.Node
		switch {
		case n.Domain != fused.Domain || n.OpType != fused.PagedAttentionName &&
			n.OpType != fused.QPagedAttentionName: // the first inputs of both are the same
		case u.Index == fused.PagedAttentionCumulativeSequenceLength:
			tokens, sequences := p.facts.Size(n.Inputs[0], world, 0), shape[0]-1
			return fill(func(i int64) int64 { return i * tokens / max(sequences, 1) })
		case u.Index == fused.PagedAttentionPastSeqlens: // one token each, where the tables have room for it
			tokens, sequences := p.facts.Size(n.Inputs[0], world, 0), max(shape[0], 1)
			room := p.facts.Size(n.Inputs[fused.PagedAttentionBlockTable], world, 1) *
				p.facts.Size(n.Inputs[fused.PagedAttentionKeyCache], world, 1)
			return fill(func(int64) int64 { return min(max(room-(tokens+sequences-1)/sequences, 0), 1) })
		case u.Index == fused.PagedAttentionBlockTable:
			pool := p.facts.Size(n.Inputs[fused.PagedAttentionKeyCache], world, 0)
			return fill(func(i int64) int64 { return i % max(pool, 1) })
		}
	}
	return nil
}

// maskShape makes a mask of keys, or a bias, as long as the keys that attention has: the names of sizes alone do not
// say that.
func (p *proofs) maskShape(mask *onnx.Value, shape []int64, world int) []int64 {
	for _, u := range mask.Uses() {
		n := u.Node
		if n.Domain != fused.Domain || n.OpType != fused.AttentionName {
			continue
		}
		last := len(shape) - 1
		isBias := u.Index == fused.AttentionBias && last >= 0 && shape[last] != 1
		if u.Index != fused.AttentionKeyValid && !isBias {
			continue
		}
		keys := p.facts.Size(n.Inputs[1], world, headAxis(n, fused.AttrKLayout)^3)
		if past := n.Input(4); past != nil {
			keys += p.facts.Size(past, world, prove.CacheAxis)
		}
		shape = slices.Clone(shape)
		if isBias {
			shape[last] = keys
		} else {
			shape[1] = max(shape[1], keys)
		}
	}
	return shape
}

// evaluate runs all ranks on the inputs of the whole, and puts their outputs together.
func (b *block) evaluate(models []*onnx.Model, o reference.Options, inputs, outputs []*onnx.Value,
	in []*reference.Tensor) ([]*reference.Tensor, error) {
	given := make(map[string]*reference.Tensor, len(in))
	divided, joint := map[string]Layout{}, map[string]Layout{}
	for i, v := range inputs {
		given[v.Name] = in[i]
		if l, held := b.held[v]; held {
			divided[v.Name] = l
		}
	}
	for _, v := range outputs {
		if l, held := b.held[v]; held && b.isPresent(v) {
			joint[v.Name] = l
		}
	}
	results, err := onParts(models, o, given, divided, joint)
	if err != nil {
		return nil, err
	}
	out := make([]*reference.Tensor, len(outputs))
	for i, v := range outputs {
		out[i] = results[v.Name]
	}
	return out, nil
}

// terms returns the number of terms of the longest sum in nodes.
func terms(nodes []*onnx.Node) int64 {
	most := int64(64)
	for _, n := range nodes {
		for _, v := range n.Inputs {
			if v == nil || v.Constant() == nil {
				continue
			}
			for _, d := range v.Constant().Dims {
				most = max(most, d)
			}
		}
	}
	return most
}

// formOf returns a text that is equal for blocks of the same nodes, with constants of the same shapes, divided alike.
func formOf(part *onnx.Model, b *block) string {
	numbers := map[string]int{}
	var s strings.Builder
	number := func(v *onnx.Value) string {
		if v == nil {
			return "-"
		}
		if _, ok := numbers[v.Name]; !ok {
			numbers[v.Name] = len(numbers)
			if v.Const != nil {
				fmt.Fprint(&s, v.Const.DataType, v.Const.Dims)
				if v.Const.Len() <= 16 && v.Const.DataType.IsInteger() { // a shape
					numbers, err := v.Const.Bytes()
					fmt.Fprint(&s, numbers, err)
				}
			}
			if t, ok := v.Type(); ok {
				fmt.Fprint(&s, t)
			}
		}
		return fmt.Sprint(numbers[v.Name])
	}
	for _, n := range part.Graph.Nodes {
		fmt.Fprintln(&s, n.Domain, n.OpType, n.Overload, onnx.AttributesKey(n.Attributes))
		for _, v := range n.Inputs {
			fmt.Fprint(&s, number(v), " ")
		}
		for _, v := range n.Outputs {
			fmt.Fprint(&s, number(v), " ")
		}
	}
	divided := map[string]any{}
	for v, l := range b.held {
		divided[fmt.Sprint("held ", numbers[v.Name])] = l
	}
	for v := range b.sums {
		divided[fmt.Sprint("sum ", numbers[v.Name])] = true
	}
	at := func(u onnx.Use) string {
		return fmt.Sprint(numbers[u.Node.Inputs[u.Index].Name], " at ", u.Index, " of ", numbers[firstOutput(u.Node)])
	}
	for u, l := range b.weights {
		divided["weight "+at(u)] = l
	}
	for u := range b.once {
		divided["once "+at(u)] = true
	}
	for u, l := range b.taken {
		divided["taken "+at(u)] = l
	}
	for u := range b.gathered {
		divided["gathered "+fmt.Sprint(numbers[u.Node.Inputs[u.Index].Name])] = true
	}
	for n := range b.rows {
		divided["rows of "+fmt.Sprint(numbers[firstOutput(n)])] = true
	}
	for n := range b.experts {
		divided["experts of "+fmt.Sprint(numbers[firstOutput(n)])] = true
	}
	fmt.Fprint(&s, divided, b.ranks) // sorted by key
	return s.String()
}

// firstOutput returns the name of a node's first output.
func firstOutput(n *onnx.Node) string {
	for _, v := range n.Outputs {
		if v != nil {
			return v.Name
		}
	}
	return ""
}
