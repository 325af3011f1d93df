// Package heads rotates queries and keys as their projections write them, without transpositions.
package heads

import (
	"fmt"
	"iter"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
	"github.com/mojo-patch/mojo-patch/rewrite/pass"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
)

// ruleHeads is the pattern in the metadata of nodes that reshape tables for moved rotations (MetaRule).
const ruleHeads = "HeadsInPlace"

// rotations are the fused ops that rotate each row separately, in any layout, by the index of their first table.
var rotations = map[string]int{fused.RotaryEmbeddingName: 1, fused.NormRotaryName: 2}

// headLayout names the attribute of mojo.Attention for the order of an input's dimensions.
var headLayout = map[int]string{fused.AttentionQ: fused.AttrQLayout, fused.AttentionK: fused.AttrKLayout}

// Apply rotates queries and keys in the layout of the projections, tokens before heads, makes attention read that
// layout, and removes the transpositions before the rotations. The axis of heads in the tables, which are the same for
// all heads, moves too. A rotation that is not proven to return the same rows stays, and is listed with the reason.
func Apply(run *pass.Run) (unproven []string, err error) {
	changed, prover := false, run.NewWeightProver()
	for _, s := range run.Scopes() {
		h := newMover(run, prover, s.Graph)
		for _, n := range slices.Clone(s.Graph.Nodes) {
			if _, ok := rotations[n.OpType]; ok && n.Domain == fused.Domain {
				if err := h.move(n); err != nil {
					return nil, err
				}
			}
		}
		unproven = append(unproven, h.unproven...)
		if err := h.proven.Finish(); err != nil {
			return nil, err
		}
		changed = changed || len(h.moved) > 0
	}
	if changed {
		new(edit.Change).DropDefinitions(run.Model, fused.AttentionName)
	}
	return unproven, nil
}

func newMover(run *pass.Run, prover *prove.Prover, g *onnx.Graph) *headMover {
	return &headMover{Run: run, prover: prover, graph: g, tables: map[*onnx.Value]*onnx.Value{},
		moved: map[*onnx.Value]bool{}}
}

type headMover struct {
	*pass.Run
	prover   *prove.Prover
	graph    *onnx.Graph
	tables   map[*onnx.Value]*onnx.Value // tables for rows in the other order
	moved    map[*onnx.Value]bool        // rows whose heads now follow the tokens
	proven   edit.Change
	edit     edit.Change // of the rotation that is being moved
	unproven []string
}

// move moves one rotation, if only attention reads it and the rows are proven to stay the same.
func (h *headMover) move(n *onnx.Node) error {
	t := n.Input(0).Producer
	out := n.OutputValue(0)
	if t == nil || !t.Is("Transpose") || t.Graph != h.graph || !slices.Equal(t.AttrInts("perm"), []int64{0, 2, 1, 3}) ||
		out.IsOutput() || len(out.Uses()) == 0 {
		return nil
	}
	for _, use := range out.Uses() {
		name, reads := headLayout[use.Index]
		if u := use.Node; !reads || u.Domain != fused.Domain || u.OpType != fused.AttentionName ||
			u.AttrString(name, "") != "bnsh" {
			return nil
		}
	}
	h.edit = edit.Change{Undoable: true}
	first := rotations[n.OpType]
	rows := h.prover.Before(h.sameRows(n, t))
	before := [2]*onnx.Value(n.Inputs[first : first+2])
	var tables [2]*onnx.Value
	for k, v := range before {
		if tables[k] = h.table(v, t); tables[k] == nil {
			return h.undo(before)
		}
	}
	h.edit.SetInput(n, 0, t.Input(0))
	for k, v := range tables {
		h.edit.SetInput(n, first+k, v)
	}
	err := rows.Holds()
	for _, use := range out.Uses() {
		if err == nil {
			err = h.prover.Prove(h.sameAttention(use))
		}
	}
	if err != nil {
		h.unproven = append(h.unproven, fmt.Sprintf("%s: node %q: %v", ruleHeads, n.Label(), err))
		return h.undo(before)
	}
	for _, v := range before {
		if v.Producer != nil { // not a constant
			h.edit.Drop(v.Producer)
		}
	}
	h.edit.Drop(t)
	h.moved[out] = true
	if typ, ok := out.Type(); ok && len(typ.Dims) == 4 {
		typ.Dims = []onnx.Dim{typ.Dims[0], typ.Dims[2], typ.Dims[1], typ.Dims[3]}
		h.edit.SetType(out, typ)
	}
	for _, use := range out.Uses() {
		h.edit.SetAttr(use.Node, onnx.StringAttr(headLayout[use.Index], "bsnh"))
		if err := h.define(use.Node); err != nil {
			return fmt.Errorf("node %q: %w", use.Node.Label(), err)
		}
	}
	h.proven.Join(&h.edit)
	return nil
}

// undo undoes the change of one rotation with these tables.
func (h *headMover) undo(tables [2]*onnx.Value) error {
	for _, v := range tables {
		delete(h.tables, v)
	}
	return h.edit.Undo()
}

// sameRows claims that the rotation n returns the same rows before the transposition t as after it.
func (h *headMover) sameRows(n, t *onnx.Node) *prove.Claim {
	first := rotations[n.OpType]
	out, x := n.OutputValue(0), t.Input(0)
	inputs := append([]*onnx.Value{x}, n.Inputs[1:]...)
	for i, v := range inputs[first:] {
		inputs[first+i] = h.withoutHeads(v)
	}
	key := fmt.Sprint(ruleHeads, n.OpType, onnx.AttributesKey(n.Attributes), n.Overload)
	for _, v := range inputs {
		key += fmt.Sprint(" ", h.Facts.DataType(v), pass.Dims(h.Facts, v))
	}
	run := prove.Region(h.Model, inputs, []*onnx.Value{out})
	return &prove.Claim{
		What: "the rows of " + n.Label(), Key: key, Exact: prove.BitForBit, Typed: prove.BitForBit,
		Before: run,
		After: func(o reference.Options, in []*reference.Tensor) ([]*reference.Tensor, error) {
			got, err := run(o, in)
			if err == nil {
				got[0] = prove.SwapHeads(got[0])
			}
			return got, err
		},
		Trials: func(yield func(prove.Trial, error) bool) {
			for w := range prove.CheckedWorlds {
				trial := prove.Trial{Name: fmt.Sprintf("sizes %d", w)}
				for i, v := range inputs {
					shape, ok := h.Facts.Shape(v, w)
					if !ok {
						yield(trial, fmt.Errorf("the shape of %q is not known", v.Name))
						return
					}
					shape = slices.Clone(shape)
					switch tokens := len(shape) - 2; {
					case i == 0:
						shape[1] = min(shape[1], prove.ManyTokens)
					case i >= first && tokens >= 0:
						shape[tokens] = min(shape[tokens], prove.ManyTokens)
					}
					x, err := prove.MakeInput(prove.Normal, w*len(inputs)+i, h.Facts.DataType(v), shape)
					if err != nil {
						yield(trial, err)
						return
					}
					trial.Inputs = append(trial.Inputs, x)
				}
				if !yield(trial, nil) {
					return
				}
			}
		},
	}
}

// sameAttention claims that the node of a use computes the same from rows in the other order.
func (h *headMover) sameAttention(use onnx.Use) *prove.Claim {
	n := use.Node
	site := h.site(n)
	call := func(layout string) prove.Computation {
		return func(o reference.Options, in []*reference.Tensor) ([]*reference.Tensor, error) {
			s := site
			s.Attributes, s.Dims = slices.Clone(site.Attributes), make([][]int64, len(site.Types))
			name := headLayout[use.Index]
			at := slices.IndexFunc(s.Attributes, func(a *onnx.Attribute) bool { return a.Name == name })
			s.Attributes[at] = onnx.StringAttr(name, layout)
			f, err := fused.Lookup(fused.AttentionName).Function(s)
			if err != nil {
				return nil, err
			}
			if layout == "bsnh" {
				in = slices.Clone(in)
				in[use.Index] = prove.SwapHeads(in[use.Index])
			}
			node := &onnx.Node{Domain: fused.Domain, OpType: fused.AttentionName, Overload: f.Overload,
				Attributes: s.Attributes, Outputs: n.Outputs}
			return prove.Op(site.Opset, node, f)(o, in)
		}
	}
	return &prove.Claim{
		What: "attention of " + n.Label(), Key: fmt.Sprint(ruleHeads, use.Index, site.Types, site.Dims,
			onnx.AttributesKey(site.Attributes), len(n.Outputs)),
		Exact: prove.BitForBit, Typed: prove.BitForBit,
		Before: call("bnsh"), After: call("bsnh"),
		Trials: fewTokensOf(n, site),
	}
}

// fewTokensOf tries a mojo.Attention node on few tokens, with a partly filled cache and an empty one.
func fewTokensOf(n *onnx.Node, site fused.Site) iter.Seq2[prove.Trial, error] {
	op := fused.CachedOps[slices.IndexFunc(fused.CachedOps,
		func(op *fused.CachedOp) bool { return op.Name == n.OpType })]
	return func(yield func(prove.Trial, error) bool) {
		for i, t := range []prove.Lengths{{Batch: 2, Past: 3, Added: 4, Padding: prove.LeftPadding},
			{Batch: 2, Added: 5, Padding: prove.NoPadding}} {
			if n.Input(op.Pasts[0]) == nil {
				t.Past = 0
			}
			if q := site.Dims[fused.AttentionQ]; len(q) == 4 {
				if q[0] == 1 {
					t.Batch = 1
				}
				tokens := 2
				if site.Attr(fused.AttrQLayout).String == "bsnh" {
					tokens = 1
				}
				if q[tokens] == 1 {
					t.Added = 1
				}
			}
			in, err := t.Inputs(op, n, site, i)
			name := fmt.Sprintf("%d tokens, %d in the cache", t.Added, t.Past)
			if !yield(prove.Trial{Name: name, Inputs: in}, err) {
				return
			}
		}
	}
}

// define makes an attention node call the definition for its layouts. It builds one only if the model lacks it: the
// layers of a model share one.
func (h *headMover) define(n *onnx.Node) error {
	op, site := fused.Lookup(fused.AttentionName), h.site(n)
	site.Dims = make([][]int64, len(site.Types))
	overload := op.Overload(site)
	if h.Model.Function(fused.Domain, op.Name, overload) == nil {
		f, err := op.Function(site)
		if err != nil {
			return err
		}
		h.edit.AddFunction(h.Model, f)
	}
	h.edit.SetDomain(n, n.Domain, overload)
	return nil
}

// site describes an attention node. The facts are of the original graph. New values have the type in the signature, or
// that of the other inputs, and moved rows have their heads on the other axis.
func (h *headMover) site(n *onnx.Node) fused.Site {
	op, site := fused.Lookup(fused.AttentionName), pass.FusedSite(h.Model, h.Facts, n)
	of := onnx.Undefined
	for _, t := range site.Types[:fused.AttentionKeyValid] {
		if of == onnx.Undefined {
			of = t
		}
	}
	for i, v := range n.Inputs {
		if v == nil {
			continue
		}
		site.Types[i] = of
		if known, err := onnx.ParseDataType(op.Inputs[i].Type); err == nil {
			site.Types[i] = known
		}
		if h.moved[v] && len(site.Dims[i]) == 4 {
			d := site.Dims[i]
			d[1], d[2] = d[2], d[1]
		}
	}
	return site
}

// table returns a table for rows [batch, tokens, heads, channels] instead of [batch, heads, tokens, channels], or nil
// if its rows may differ between heads.
func (h *headMover) table(v *onnx.Value, moved *onnx.Node) *onnx.Value {
	if w := h.tables[v]; w != nil {
		return w
	}
	rank, known := h.Facts.Rank(v)
	if !known || rank == 0 || rank > 4 {
		return nil
	}
	w := v
	if rank > 2 { // without the axis of the heads
		axis := rank - 3
		if size, fixed := h.Facts.Dim(v, axis); !fixed || size != 1 {
			return nil
		}
		if w = h.withoutHeads(v); w == v {
			w = h.compute("Squeeze", v, int64(axis), moved)
		}
	}
	if rank > 1 {
		w = h.compute("Unsqueeze", w, int64(max(rank-2, 1)), moved)
	}
	h.tables[v] = w
	return w
}

// withoutHeads returns the value to which an axis for the heads was added to get a table, or else the table.
func (h *headMover) withoutHeads(v *onnx.Value) *onnx.Value {
	rank, _ := h.Facts.Rank(v)
	if p := v.Producer; p != nil && p.Is("Unsqueeze") && p.Graph == h.graph && rank > 2 && h.inserts(p, rank-3, rank) {
		return p.Input(0)
	}
	return v
}

// inserts reports whether an Unsqueeze makes a tensor of this rank by inserting this one axis.
func (h *headMover) inserts(n *onnx.Node, axis, rank int) bool {
	axes := n.AttrInts("axes")
	if given := n.Input(1); given != nil {
		t, known := h.Facts.Constant(given)
		if !known {
			return false
		}
		axes = t.I
	}
	return len(axes) == 1 && (axes[0] == int64(axis) || axes[0] == int64(axis-rank))
}

// compute adds a node that drops or inserts an axis, because a transposition was moved. Finish moves it to its place.
func (h *headMover) compute(op string, v *onnx.Value, axis int64, moved *onnx.Node) *onnx.Value {
	axes := h.edit.AddInitializer(h.graph, onnx.NewInt64s("table_axis", []int64{axis}))
	out := h.graph.NewValue(v.Name + "_of_tokens")
	n := h.edit.AddNode(h.graph, op, []*onnx.Value{v, axes}, []*onnx.Value{out})
	n.Name, n.Metadata = out.Name+"_"+op, h.Origin(ruleHeads, moved)
	return out
}
