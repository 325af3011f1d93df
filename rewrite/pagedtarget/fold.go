package pagedtarget

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/reference/infer"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
	"github.com/mojo-patch/mojo-patch/rewrite/pass"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
)

// ruleFolded is the pattern name in the metadata of nodes that compute tables (MetaRule).
const ruleFolded = "PagedRotation"

// Inputs of com.microsoft's PagedAttention. The first ones are those of mojo.PagedAttention.
const (
	inputCos = 8
	inputSin = 9
)

// errNothing is the error of a node without the nodes that could move into it.
var errNothing = errors.New("nothing to move")

// folder moves nodes into com.microsoft's PagedAttention.
type folder struct {
	*pass.Run
	prover   *prove.Prover
	facts    *infer.Facts
	tables   map[string]*[2]*onnx.Value // cosines and sines of all positions
	done     edit.Change
	unproven []string
}

func newFolder(run *pass.Run) *folder {
	return &folder{Run: run, prover: run.NewWeightProver(), facts: infer.Analyze(run.Model),
		tables: map[string]*[2]*onnx.Value{}}
}

// fold moves the rotation into a node, then packs its queries, keys and values. It returns the moved parts.
func (f *folder) fold(n *onnx.Node) (string, error) {
	var moved []string
	for _, step := range []struct {
		name string
		plan func(*onnx.Node) (*move, error)
	}{{"rotation", f.rotation}, {"packed QKV", f.product}} {
		p, err := step.plan(n)
		if err == nil {
			err = f.prove(n, p)
		}
		switch {
		case err == nil:
			if p.done != nil {
				p.done()
			}
			moved = append(moved, step.name)
		case errors.As(err, new(*undoError)):
			return "", err
		case !errors.Is(err, errNothing):
			f.unproven = append(f.unproven, fmt.Sprintf("%s of node %q: %v", step.name, n.Label(), err))
		}
	}
	return strings.Join(moved, ", "), nil
}

// A move is a change of a node and its surroundings that keeps what the node computes from some values.
type move struct {
	what, key string
	from      []*onnx.Value
	change    func(c *edit.Change) error
	done      func() // after the proof, nil for nothing
	table     *[2]*onnx.Value
}

// undoError is an error that leaves the graph in an unknown state.
type undoError struct{ error }

// prove makes a change, and undoes it if the node's outputs are not proven to stay the same.
func (f *folder) prove(n *onnx.Node, p *move) error {
	inputs, trial, err := f.trial(n, p.from)
	if err != nil {
		return err
	}
	region := prove.Region(f.Model, inputs, []*onnx.Value{n.Outputs[0], n.Outputs[1], n.Outputs[2]})
	pending := f.prover.Before(&prove.Claim{What: p.what, Key: p.key, Exact: prove.Structural, Before: region,
		After: region, Trials: func(yield func(prove.Trial, error) bool) { yield(trial, nil) }})
	c := edit.Change{Undoable: true}
	if err = p.change(&c); err == nil {
		err = pending.Holds()
	}
	if err != nil {
		if undo := c.Undo(); undo != nil {
			return &undoError{undo}
		}
		return err
	}
	f.done.Join(&c)
	return nil
}

// trial returns the values that a node's outputs are computed from, and tensors for them, of three sequences: some
// values, the node's pools and lengths, and the model's inputs, such as the ids whose number is read.
func (f *folder) trial(n *onnx.Node, from []*onnx.Value) (inputs []*onnx.Value, trial prove.Trial, err error) {
	const sequences, tokens, blocks = 3, 10, 7
	trial.Name = fmt.Sprintf("%d sequences", sequences)
	pool := pass.Dims(f.facts, n.Input(fused.PagedAttentionKeyCache))
	if len(pool) != 4 || pool[1] < 1 {
		return nil, trial, errors.New("the size of a block is unknown")
	}
	known := map[*onnx.Value]bool{}
	give := func(v *onnx.Value, x *reference.Tensor) {
		known[v], inputs, trial.Inputs = true, append(inputs, v), append(trial.Inputs, x)
	}
	numbers := func(at int, shape []int, list ...int64) {
		v := n.Input(at)
		give(v, reference.NewInts(f.facts.DataType(v), shape, list))
	}
	numbers(fused.PagedAttentionCumulativeSequenceLength, []int{sequences + 1}, 0, 5, 6, tokens)
	numbers(fused.PagedAttentionPastSeqlens, []int{sequences}, 0, pool[1]+2, 3)
	numbers(fused.PagedAttentionBlockTable, []int{sequences, 2}, 6, 0, 4, 2, 5, 1)
	fill := func(v *onnx.Value, unknown int64) error {
		if v.Constant() != nil || known[v] {
			return nil
		}
		shape := pass.Dims(f.facts, v)
		for i, d := range shape {
			if d < 0 {
				shape[i] = unknown
			}
		}
		x, err := prove.MakeInput(prove.Normal, len(inputs), f.facts.DataType(v), shape)
		if err == nil {
			give(v, x)
		}
		return err
	}
	for i := fused.PagedAttentionKeyCache; i <= fused.PagedAttentionValueCache && err == nil; i++ {
		err = fill(n.Input(i), blocks)
	}
	for _, v := range from {
		if err == nil {
			err = fill(v, tokens)
		}
	}
	for v := range onnx.Upstream(func(v *onnx.Value) bool { return known[v] }, n.Inputs...) {
		if err == nil && v != nil && v.Producer == nil {
			err = fill(v, tokens)
		}
	}
	return inputs, trial, err
}

// views are ops that keep the order of all elements.
var views = onnx.Words("Reshape Squeeze Unsqueeze Flatten Identity")

// origin returns the value that v is a view of.
func origin(v *onnx.Value) *onnx.Value {
	for v != nil && v.Producer != nil && onnx.IsStandardDomain(v.Producer.Domain) && views[v.Producer.OpType] {
		v = v.Producer.Input(0)
	}
	return v
}

// isSwap reports whether a node swaps heads and tokens.
func isSwap(n *onnx.Node) bool {
	return n != nil && n.Is("Transpose") && slices.Equal(n.AttrInts("perm"), []int64{0, 2, 1, 3})
}

// widthOf returns the last dimension of v.
func (f *folder) widthOf(v *onnx.Value) int64 {
	if dims := pass.Dims(f.facts, v); len(dims) > 0 {
		return dims[len(dims)-1]
	}
	return -1
}

// rowsOf returns v as [tokens, width].
func (f *folder) rowsOf(c *edit.Change, v *onnx.Value, width int64) *onnx.Value {
	g := f.Model.Graph
	out := g.NewValue(v.Name + "_rows")
	f.AddNode(c, g, ruleFolded, "Reshape", out, v, c.AddInitializer(g, onnx.NewInt64s("rows", []int64{-1, width})))
	return out
}

// rotation plans to move the rotations of queries and keys into a node.
func (f *folder) rotation(n *onnx.Node) (*move, error) {
	if n.AttrInt("do_rotary", 0) != 0 || n.Input(1) == nil {
		return nil, errNothing
	}
	var rotary [2]*onnx.Node
	var from [2]*onnx.Value
	for i := range rotary {
		rotary[i] = origin(n.Input(i)).Producer
		swaps := isSwap(rotary[i])
		if swaps { // heads are before tokens, such as after a norm of each head
			rotary[i] = origin(rotary[i].Input(0)).Producer
		}
		if r := rotary[i]; r == nil || r.Domain != fused.Domain || r.OpType != fused.RotaryEmbeddingName {
			return nil, errNothing
		}
		if from[i] = rotary[i].Input(0); !swaps {
			from[i] = origin(from[i])
		}
	}
	q, k := rotary[0], rotary[1]
	attrs := fused.Read[fused.RotaryEmbedding](q.Attributes)
	cos, sin := q.Input(fused.RotaryEmbeddingCos), q.Input(fused.RotaryEmbeddingSin)
	switch {
	case attrs != fused.Read[fused.RotaryEmbedding](k.Attributes), cos != k.Input(fused.RotaryEmbeddingCos),
		sin != k.Input(fused.RotaryEmbeddingSin):
		return nil, errors.New("queries and keys are rotated in two ways")
	case attrs.Interleaved != (attrs.OutputLayout == "interleaved") || attrs.RotatedSide != "first" ||
		attrs.RotaryDim%16 != 0:
		return nil, fmt.Errorf("the op rotates pairs of the first channels in place, in multiples of 16, not %+v",
			attrs)
	}
	p := &move{what: "the rotation inside " + n.Label(), from: []*onnx.Value{from[0], from[1], origin(n.Input(2))},
		key: fmt.Sprintf("rotation %p %p %s %s", cos, sin, onnx.AttributesKey(q.Attributes), f.kindOf(n))}
	pair := fmt.Sprintf("%p %p %t", cos, sin, attrs.Interleaved)
	p.change = func(c *edit.Change) (err error) {
		if p.table = f.tables[pair]; p.table == nil {
			if p.table, err = f.table(c, n, cos, sin, attrs); err != nil {
				return err
			}
		}
		for i, v := range from {
			if t := origin(n.Input(i)).Producer; isSwap(t) {
				swapped := f.Model.Graph.NewValue(v.Name + "_tokens")
				f.AddNode(c, f.Model.Graph, ruleFolded, "Transpose", swapped, v)
				c.SetAttr(swapped.Producer, t.Attributes...)
				v = swapped
			}
			c.SetInput(n, i, f.rowsOf(c, v, f.widthOf(n.Input(i))))
		}
		c.SetInput(n, inputCos, p.table[0])
		c.SetInput(n, inputSin, p.table[1])
		c.SetAttr(n, onnx.IntAttr("do_rotary", 1), onnx.BoolAttr("rotary_interleaved", attrs.Interleaved))
		return nil
	}
	p.done = func() { f.tables[pair] = p.table }
	return p, nil
}

// kindOf describes the attributes, types and shapes of a node.
func (f *folder) kindOf(n *onnx.Node) string {
	text := onnx.AttributesKey(n.Attributes)
	for _, v := range n.Inputs {
		if v != nil {
			text += fmt.Sprint(" ", f.facts.DataType(v), pass.Dims(f.facts, v))
		}
	}
	return text
}

// product plans to give a node the product that its queries, keys and values are parts of.
func (f *folder) product(n *onnx.Node) (*move, error) {
	split := origin(n.Input(0)).Producer
	if n.Input(1) == nil || split == nil || !split.Is("Split") || len(split.Outputs) != 3 {
		return nil, errNothing
	}
	key := "packed " + f.kindOf(n)
	for i, part := range split.Outputs {
		if origin(n.Input(i)) != part {
			return nil, errNothing
		}
		key += fmt.Sprint(" ", f.widthOf(part))
	}
	x := split.Input(0)
	return &move{what: "packed queries, keys and values of " + n.Label(), key: key, from: []*onnx.Value{x},
		change: func(c *edit.Change) error {
			c.SetInput(n, 0, f.rowsOf(c, x, f.widthOf(x)))
			c.SetInput(n, 1, nil)
			c.SetInput(n, 2, nil)
			return nil
		}}, nil
}
