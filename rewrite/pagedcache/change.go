package pagedcache

import (
	"fmt"
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/roles"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite/pass"
)

// rulePaged is the pattern name in the metadata of nodes that unpack tokens and compute positions (MetaRule).
const rulePaged = "PagedCache"

// The packed model is the model with a batch of 1 whose only sequence has the tokens of all sequences. Everything that
// treats each token by itself stays as it is. Attention, positions, and the choice of the last token change.
func (c *Change) change() error {
	g := c.Model.Graph
	for _, v := range c.packed {
		wide := g.NewValue(v.Name + "_batch")
		c.edit.Reread(v, wide)
		c.compute("Unsqueeze", wide, v, c.integers("front", 0))
	}
	tokens := func(name string) onnx.Dim { return onnx.Dim{Value: -1, Param: name} }
	lengths := func(name, size string) *onnx.Value {
		return c.edit.AddInput(g, name, onnx.Type{DataType: onnx.Int32, HasShape: true, Dims: []onnx.Dim{tokens(size)}})
	}
	c.cumulative, c.past = lengths(CumulativeName, "sequences_and_one"), lengths(PastName, "sequences")
	table := func(name string) *onnx.Value {
		return c.edit.AddInput(g, name, onnx.Type{DataType: onnx.Int32, HasShape: true,
			Dims: []onnx.Dim{tokens("sequences"), tokens("blocks_of_sequence")}})
	}
	c.table = table(TableName)
	if c.rings = c.table; c.findWindowed() {
		c.rings = table(WindowedName)
	}
	cum := c.cast("cumulative_lengths", c.cumulative)
	c.starts = c.compute("Slice", g.NewValue("sequence_starts"), cum, c.integers("first", 0), c.integers("last", -1))
	c.ends = c.compute("Slice", g.NewValue("sequence_ends"), cum, c.integers("second", 1), c.integers("end",
		math.MaxInt64))
	if len(c.positions) > 0 {
		c.countTokens()
	}
	for _, s := range c.sites {
		if err := c.attend(s); err != nil {
			return err
		}
	}
	c.replaceShapes()
	for _, out := range g.Outputs {
		if err := c.packOutput(out); err != nil {
			return err
		}
	}
	c.edit.DropDefinitions(c.Model, fused.AttentionName)
	if err := c.edit.Finish(); err != nil {
		return err
	}
	if err := c.edit.RemoveUnread(g); err != nil {
		return err
	}
	for _, v := range slices.Concat(c.masks, c.positions, c.unread, []*onnx.Value{c.length}) {
		if !v.IsInput {
			continue
		}
		for _, u := range v.Uses() {
			return fmt.Errorf("node %q (%s) reads %q for something other than attention", u.Node.Label(), u.Node.OpType,
				v.Name)
		}
		c.edit.RemovePort(g, v)
		if v != c.length {
			c.report.Removed = append(c.report.Removed, v.Name)
		}
	}
	return nil
}

// compute adds a node of the standard domain and returns its output.
func (c *Change) compute(op string, out *onnx.Value, inputs ...*onnx.Value) *onnx.Value {
	c.AddNode(&c.edit, c.Model.Graph, rulePaged, op, out, inputs...)
	return out
}

func (c *Change) integers(name string, list ...int64) *onnx.Value {
	return c.edit.AddInitializer(c.Model.Graph, onnx.NewInt64s(name, list))
}

func (c *Change) cast(name string, v *onnx.Value) *onnx.Value {
	x := c.compute("Cast", c.Model.Graph.NewValue(name), v)
	c.edit.SetAttr(x.Producer, onnx.IntAttr("to", int64(onnx.Int64)))
	return x
}

// countTokens computes the position of each token, [1, tokens], and makes all readers of positions read it.
func (c *Change) countTokens() {
	g := c.Model.Graph
	scalar := func(name string, x int64) *onnx.Value {
		t := onnx.NewInt64s(name, []int64{x})
		t.Dims = []int64{}
		return c.edit.AddInitializer(g, t)
	}
	shape := c.compute("Shape", g.NewValue("tokens_shape"), c.packed[0])
	count := c.compute("Gather", g.NewValue("token_count"), shape, scalar("axis", 0))
	token := c.compute("Range", g.NewValue("token"), scalar("zero", 0), count, scalar("one", 1))
	column := c.compute("Unsqueeze", g.NewValue("token_column"), token, c.integers("last", -1))
	ended := c.cast("sequences_ended", c.compute("LessOrEqual", g.NewValue("sequence_ended"), c.ends, column))
	sequence := c.compute("ReduceSum", g.NewValue("sequence"), ended, c.integers("last", -1))
	c.edit.SetAttr(sequence.Producer, onnx.IntAttr("keepdims", 0))
	shifts := c.compute("Sub", g.NewValue("position_shifts"), c.cast("past_lengths", c.past), c.starts)
	shift := c.compute("Gather", g.NewValue("position_shift"), shifts, sequence)
	row := c.compute("Unsqueeze", g.NewValue("packed_positions"), c.compute("Add", g.NewValue("positions"), token,
		shift), c.integers("front", 0))
	c.row = row
	for _, v := range c.positions {
		x := row
		if t := c.facts.DataType(v); t != onnx.Int64 && t != onnx.Undefined {
			x = c.compute("Cast", g.NewValue(v.Name+"_packed"), row)
			c.edit.SetAttr(x.Producer, onnx.IntAttr("to", int64(t)))
		}
		c.edit.Reread(v, x)
	}
}

// attend makes an attention node read and write pools.
func (c *Change) attend(s *site) error {
	n, g := s.node, c.Model.Graph
	if valid := n.Input(fused.AttentionKeyValid); valid != nil {
		mask := valid
		for mask.Producer != nil && mask.Producer.Is("Cast") {
			mask = mask.Producer.Inputs[0]
		}
		if !slices.Contains(c.masks, mask) {
			return fmt.Errorf("node %q reads %q, which is not known to mark only padding", n.Label(), valid.Name)
		}
	}
	attrs := fused.Read[fused.Attention](n.Attributes)
	old := pass.FusedSite(c.Model, c.facts, n)
	use := fused.Site{Opset: old.Opset, Attributes: fused.PagedAttention{Scale: attrs.Scale, Causal: attrs.Causal,
		Window: attrs.Window, Softcap: attrs.Softcap, HeadOrder: attrs.HeadOrder}.Attributes(),
		Types: make([]onnx.DataType, fused.PagedAttentionSink+1)}
	in := make([]*onnx.Value, fused.PagedAttentionSink+1)
	give := func(to int, v *onnx.Value, t onnx.DataType) { in[to], use.Types[to] = v, t }
	for i, layout := range []string{attrs.QLayout, attrs.KLayout, attrs.VLayout} {
		v := n.Input(i)
		if layout != "bsnh" {
			v = c.swapped(v.Name+"_tokens", v)
		}
		give(i, c.compute("Squeeze", g.NewValue(n.Input(i).Name+"_packed"), v, c.integers("front", 0)), old.Types[i])
	}
	for k, v := range s.past {
		give(fused.PagedAttentionKeyCache+k, v, old.Types[fused.AttentionPastKey+k])
	}
	give(fused.PagedAttentionCumulativeSequenceLength, c.cumulative, onnx.Int32)
	give(fused.PagedAttentionPastSeqlens, c.past, onnx.Int32)
	give(fused.PagedAttentionBlockTable, c.table, onnx.Int32)
	if c.windowed[s.past[0]] {
		in[fused.PagedAttentionBlockTable] = c.rings
	}
	if sink := n.Input(fused.AttentionSink); sink != nil {
		give(fused.PagedAttentionSink, sink, onnx.Float)
	} else {
		in, use.Types = in[:fused.PagedAttentionSlotMapping], use.Types[:fused.PagedAttentionSlotMapping]
	}
	s.use = use
	f, err := fused.Lookup(fused.PagedAttentionName).Function(use)
	if err != nil {
		return fmt.Errorf("node %q: %w", n.Label(), err)
	}
	c.edit.Become(n, fused.PagedAttentionName, use.Attributes...)
	c.edit.SetDomain(n, fused.Domain, f.Overload)
	c.edit.SetInputs(n, in...)
	c.edit.AddFunction(c.Model, f)

	y, packed := n.Outputs[0], g.NewValue(n.Outputs[0].Name+"_packed")
	c.edit.TakeOutput(n, 0, packed)
	if attrs.YLayout == "bsnh" {
		c.compute("Unsqueeze", y, packed, c.integers("front", 0))
		return nil
	}
	byToken := c.compute("Unsqueeze", g.NewValue(y.Name+"_tokens"), packed, c.integers("front", 0))
	c.compute("Transpose", y, byToken)
	c.edit.SetAttr(y.Producer, onnx.IntsAttr("perm", []int64{0, 2, 1, 3}))
	return nil
}

func (c *Change) swapped(name string, v *onnx.Value) *onnx.Value {
	x := c.compute("Transpose", c.Model.Graph.NewValue(name), v)
	c.edit.SetAttr(x.Producer, onnx.IntsAttr("perm", []int64{0, 2, 1, 3}))
	return x
}

// replaceShapes replaces the shapes of caches, masks and lengths that nodes read: they had the size of the batch, now
// 1, in front. Nothing needs the lengths in them any more: they become 0.
func (c *Change) replaceShapes() {
	read := append(slices.Clone(c.masks), c.length)
	for _, s := range c.sites {
		read = append(append(read, s.past[:]...), s.present[:]...)
	}
	for _, v := range read {
		if v == nil {
			continue
		}
		for _, u := range slices.Clone(v.Uses()) {
			if !u.Node.Is("Shape") {
				continue
			}
			shape := []int64{1}
			for _, d := range pass.Dims(c.facts, v)[1:] {
				shape = append(shape, max(d, 0))
			}
			n := int64(len(shape))
			from, to := reference.ShapeRange(u.Node.AttrInt("start", 0), u.Node.AttrInt("end", n), n)
			c.edit.Reread(u.Node.Outputs[0], c.integers("shape_of_batch", shape[from:to]...))
			c.edit.Drop(u.Node)
		}
	}
}

// packOutput removes the batch dimension of an output that is not a cache.
func (c *Change) packOutput(out *onnx.Value) error {
	if slices.ContainsFunc(c.sites, func(s *site) bool { return slices.Contains(s.present[:], out) }) {
		return nil
	}
	g := c.Model.Graph
	rank, _ := c.facts.Rank(out)
	rows := "tokens"
	switch {
	case rank >= 2 && c.hasSize(out, 0, c.batch) && c.hasSize(out, 1, c.added):
	case rank >= 2 && c.hasSize(out, 0, c.batch):
		last, err := c.lastRows(out)
		if err != nil {
			return err
		}
		rows, c.lastOnly = "sequences", true
		index := c.compute("Sub", g.NewValue("last_tokens"), c.ends, c.integers("one", 1))
		taken := c.compute("Gather", g.NewValue(last.Outputs[0].Name+"_packed"), last.Inputs[0], index)
		c.edit.SetAttr(taken.Producer, onnx.IntAttr("axis", 1))
		c.edit.Reread(last.Outputs[0], taken)
		c.edit.Drop(last)
	default:
		return fmt.Errorf("output %q has no row for each sequence or token", out.Name)
	}
	t, _ := out.Type()
	if len(t.Dims) != rank { // the model declares no shape
		t = onnx.Type{DataType: c.facts.DataType(out), HasShape: true}
		for _, n := range pass.Dims(c.facts, out) {
			t.Dims = append(t.Dims, onnx.Dim{Value: n})
		}
	}
	packed := g.NewValue(out.Name + "_packed")
	c.edit.TakeOutput(out.Producer, out.Output, packed)
	c.edit.Reread(out, packed)
	c.compute("Squeeze", out, packed, c.integers("front", 0))
	width := t.Dims[1:]
	if rank > 2 { // a row for each token, or the last one
		width = t.Dims[2:]
	}
	t.Dims = append([]onnx.Dim{{Value: -1, Param: rows}}, width...)
	c.edit.SetType(out, t)
	return nil
}

// declare declares the shapes of packed inputs and pools.
func (c *Change) declare() error {
	for _, v := range c.packed {
		t, _ := v.Type()
		t.Dims = slices.Clone(t.Dims[1:])
		t.Dims[0] = onnx.Dim{Value: -1, Param: "tokens"}
		c.edit.SetType(v, t)
		c.report.Packed = append(c.report.Packed, v.Name)
	}
	seen := map[*onnx.Value]bool{}
	for _, s := range c.sites {
		for k, past := range s.past {
			if seen[past] {
				continue
			}
			seen[past] = true
			t, _ := past.Type()
			heads, width := roles.Number(t.Dims[1]), roles.Number(t.Dims[3])
			t.Dims = []onnx.Dim{{Value: -1, Param: c.blocksOf(past)}, {Value: c.block}, heads, width}
			if c.codes != onnx.Undefined {
				t.DataType = c.codes
				c.report.ScaleBytes += heads.Value * int64(onnx.Float.Bits()) / 8
			}
			c.edit.SetType(past, t)
			if s.present[k] != nil {
				c.edit.SetType(s.present[k], t)
			}
			c.report.Pools = append(c.report.Pools, past.Name)
			c.report.BytesPerToken += heads.Value * width.Value * int64(t.DataType.Bits()) / 8
		}
	}
	for _, p := range c.coded {
		c.report.Scales = append(c.report.Scales, p.scale.Name)
	}
	return c.edit.Finish()
}
