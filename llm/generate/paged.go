package generate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/llm/paged"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/roles"
)

// pagedLayout describes how to feed a model whose caches are pools of blocks (apply --cache paged).
type pagedLayout struct {
	pools            []pool
	scales           []pool // of the codes in pools, [blocks, heads] (apply --cache-type)
	cumulative, past port
	tables           []port
	groups           []poolGroup
}

// poolGroup is the pools, and scales, whose blocks one table names.
type poolGroup struct {
	table  port
	window int // no token sees a key that is so many positions before it; 0 for layers that see all
	pools  []pool
}

// all returns the pools and their scales.
func (l *pagedLayout) all() []pool { return slices.Concat(l.pools, l.scales) }

// pool is an input with blocks, and the output that is the same tensor after a run.
type pool struct {
	past    port
	present string
}

func (l *layout) addPaged(in *roles.Input) {
	if l.paged == nil {
		l.paged = &pagedLayout{}
	}
	switch p := toPort(in); p.role {
	case roles.Cumulative:
		l.paged.cumulative = p
	case roles.BlockTable:
		l.paged.tables = append(l.paged.tables, p)
	default:
		out := pool{past: p}
		if v := in.Present(); v != nil {
			out.present = v.Name
		}
		if len(p.dims) == 2 {
			l.paged.scales = append(l.paged.scales, out)
			return
		}
		l.paged.pools = append(l.paged.pools, out)
	}
}

// checkPaged returns an error if a model with pools has unknown inputs, and finds its limit of positions.
func (l *layout) checkPaged(m *onnx.Model, pasts []*roles.Input) error {
	if l.paged == nil {
		return nil
	}
	for _, in := range pasts {
		return fmt.Errorf("input %q is a cache, but others are pools of blocks", in.Value.Name)
	}
	for _, p := range l.paged.pools {
		if d := p.past.dims; len(d) != 4 || d[1].Value < 1 || d[2].Value < 1 || d[3].Value < 1 || p.present == "" {
			return fmt.Errorf("input %s is a pool: expected [blocks, block, heads, width] with numbers, and an output "+
				"for the written pool", p.past)
		}
		if block := l.paged.pools[0].past.dims[1]; p.past.dims[1] != block {
			return fmt.Errorf("input %s has blocks of another size than %s", p.past, l.paged.pools[0].past)
		}
	}
	for _, p := range l.paged.scales {
		if p.past.dims[1].Value < 1 || p.present == "" {
			return fmt.Errorf("input %s has the scales of a pool: expected [blocks, heads] with a number of "+
				"heads, and an output for the written scales", p.past)
		}
	}
	var rest []port
	for _, p := range l.others {
		switch {
		case p.role == roles.PastLength:
			l.paged.past = p
		case typeInput(p):
			rest = append(rest, p)
		default:
			return fmt.Errorf("cannot tell the purpose of input %q in a model with pools of blocks", p.name)
		}
	}
	l.others = rest
	for _, p := range []port{l.paged.cumulative, l.paged.past} {
		if p.name == "" || len(l.paged.pools) == 0 || len(l.paged.tables) == 0 {
			return errors.New("a model with pools of blocks needs inputs for pools, lengths and the block table")
		}
	}
	l.paged.group(m)
	l.limitPaged(m.Graph.Value(l.paged.past.name), map[*onnx.Value]bool{})
	return nil
}

// group finds the pools of each table, by their names, and the longest window of the nodes that read it.
func (l *pagedLayout) group(m *onnx.Model) {
	windowed := func(s string) bool { return len(l.tables) > 1 && strings.Contains(s, "windowed") }
	for _, t := range l.tables {
		g, whole := poolGroup{table: t}, false
		for _, p := range l.all() {
			if windowed(p.past.dims[0].Param) != windowed(t.name) {
				continue
			}
			g.pools = append(g.pools, p)
		}
		for _, u := range m.Graph.Value(t.name).Uses() {
			w := u.Node.AttrInt(fused.AttrWindow, u.Node.AttrInt("local_window_size", 0))
			g.window, whole = max(g.window, int(w)), whole || w <= 0 && !u.Node.Is("Shape")
		}
		if whole {
			g.window = 0
		}
		l.groups = append(l.groups, g)
	}
}

// limitPaged bounds the positions by the tables that they index. Positions are computed from the lengths.
func (l *layout) limitPaged(v *onnx.Value, seen map[*onnx.Value]bool) {
	if seen[v] {
		return
	}
	seen[v] = true
	for _, u := range v.Uses() {
		n := u.Node
		if n.Is("Gather") && u.Index == 1 {
			t := n.Input(0).Constant()
			if t != nil && t.DataType.IsFloat() && len(t.Dims) > 0 && n.AttrInt("axis", 0) == 0 {
				l.limit([]onnx.Dim{{Value: t.Dims[0]}})
			}
			continue
		}
		if n.Is("Cast") || n.Is("Sub") || n.Is("Add") || n.Is("Unsqueeze") || n.Is("Gather") || n.Is("Identity") {
			l.limitPaged(n.Outputs[0], seen)
		}
	}
}

// defaultPrefill is the most prompt tokens of a run with a paged model, if the caller sets no number. leastShared is
// the least number of tokens at the start of two prompts that are computed once: fewer are cheaper than to wait.
// leastPaged is the number of tokens after each prompt that the pools first have room for.
const defaultPrefill, leastShared, leastPaged = 512, 16, 256

// pagedBatch is the state of a batch whose sequences are in blocks of pools. Sequences of any lengths run together,
// without padding, and those that begin alike share the blocks of their common prefix.
type pagedBatch struct {
	pools []*paged.Pool // by group
	ends  []pagedEnd
	keeps bool // frees no blocks before a window: a draft takes tokens back
}

// pagedEnd is the end of a sequence in the pools.
type pagedEnd struct {
	tables []paged.Table // by group
	past   int           // tokens in the pools
	ended  bool
	logits [][]float32 // after the last token, and before it after those that are proposed
	chosen []int64     // instead of logits, if the model chooses
}

func (p *pagedBatch) end(i int) {
	for k := range p.ends[i].tables {
		p.pools[k].Release(&p.ends[i].tables[k])
	}
	p.ends[i].ended = true
}

// advancePaged runs the model on all tokens that it has not seen, at most chunk tokens of prompts at a time.
func (b *batch) advancePaged(ctx context.Context, chunk int) error {
	if chunk <= 0 {
		chunk = defaultPrefill
	}
	if b.paged.pools == nil {
		if err := b.makePools(chunk); err != nil {
			return err
		}
	}
	for {
		step := b.planPaged(chunk)
		if len(step) == 0 {
			return nil
		}
		if err := b.runPaged(ctx, step); err != nil {
			return err
		}
	}
}

// pagedPart is the new tokens of a sequence in one run.
type pagedPart struct{ sequence, added int }

// planPaged chooses the next run: each sequence's token, and tokens of prompts up to chunk. A sequence waits while the
// prefix that it shares with an earlier one is computed.
func (b *batch) planPaged(chunk int) []pagedPart {
	var step []pagedPart
	for i, ids := range b.sequences {
		e := &b.paged.ends[i]
		if e.ended || e.past == len(ids) || e.past == 0 && b.waits(i) {
			continue
		}
		added := len(ids) - e.past
		if len(ids) <= b.prompts[i] {
			if added = min(added, chunk); added == 0 {
				continue
			}
			chunk -= added
		}
		step = append(step, pagedPart{i, added})
	}
	return step
}

// waits reports whether a sequence must wait for the prefix that it shares with an earlier one, or forks from it. The
// earlier one has not freed blocks then.
func (b *batch) waits(i int) bool {
	ids, from, most := b.sequences[i], -1, leastShared-1
	for j, other := range b.sequences[:i] {
		n := 0
		for n < min(len(ids), b.prompts[j])-1 && ids[n] == other[n] {
			n++
		}
		if n > most && !b.paged.ends[j].ended {
			from, most = j, n
		}
	}
	if from < 0 {
		return false
	}
	source, e := &b.paged.ends[from], &b.paged.ends[i]
	if source.past < most {
		return true
	}
	e.past = most
	for k, p := range b.paged.pools {
		e.tables[k] = p.Fork(source.tables[k], most)
	}
	return false
}

// makePools makes pools for the prompts and the first tokens after them, or for a window and the new tokens of a run.
func (b *batch) makePools(chunk int) error {
	l := b.g.layout.paged
	size := int(l.pools[0].past.dims[1].Value)
	after := leastPaged
	if b.most > 0 {
		after = min(after, b.most)
	}
	for k, g := range l.groups {
		p, err := paged.New(size, 0)
		if err != nil {
			return err
		}
		b.paged.pools = append(b.paged.pools, p)
		blocks := 0
		for _, prompt := range b.prompts {
			n := prompt + after
			if g.window > 0 && !b.paged.keeps {
				n = min(n, g.window+min(chunk, prompt)+size)
			}
			blocks += p.Needs(n)
		}
		if err := b.extendPools(k, blocks); err != nil {
			return err
		}
	}
	for i := range b.paged.ends {
		b.paged.ends[i].tables = make([]paged.Table, len(l.groups))
	}
	return nil
}

// extendPools adds blocks to the pools of a group and keeps their content.
func (b *batch) extendPools(k, added int) error {
	l, p, was := b.g.layout.paged, b.paged.pools[k], b.buffers
	grown := p.Blocks() > 0
	p.Extend(added)
	for _, c := range l.groups[k].pools {
		dims := []int64{int64(p.Blocks())}
		for _, d := range c.past.dims[1:] {
			dims = append(dims, d.Value)
		}
		if err := b.replace(c.past.name, c.present, dims, 0, grown); err != nil {
			return fmt.Errorf("cannot make pools of %d blocks: %w", dims[0], err)
		}
	}
	b.buffers = Buffers{Grown: was.Grown, Rows: true, Block: int(l.pools[0].past.dims[1].Value), Count: len(l.pools)}
	if grown {
		b.buffers.Grown++
	}
	for _, p := range b.paged.pools {
		b.buffers.Slots = max(b.buffers.Slots, p.Blocks()*b.buffers.Block)
	}
	for _, c := range l.all() {
		if v := b.held[c.past.name]; v != nil {
			b.buffers.Bytes += (&onnx.Tensor{DataType: v.DataType, Dims: v.Dims}).Size()
		}
	}
	return nil
}

// runPaged runs the model on one part of each sequence.
func (b *batch) runPaged(ctx context.Context, step []pagedPart) error {
	l, p := b.g.layout, b.paged
	var ids, cumulative, past []int64
	for _, part := range step {
		e, begin := &p.ends[part.sequence], len(ids)
		ids = append(ids, b.sequences[part.sequence][e.past:e.past+part.added]...)
		cumulative, past = append(cumulative, int64(begin)), append(past, int64(e.past))
		for k := range l.paged.groups {
			if err := b.write(e, k, e.past+part.added); err != nil {
				return err
			}
		}
	}
	cumulative = append(cumulative, int64(len(ids)))
	feed := func(p port, list []int64, dims ...int64) error {
		t, err := values(p, dims, func(i int) int64 { return list[i] })
		if err != nil {
			return err
		}
		return b.binding.Input(t)
	}
	err := errors.Join(feed(l.ids, ids, int64(len(ids))), feed(l.paged.cumulative, cumulative, int64(len(cumulative))),
		feed(l.paged.past, past, int64(len(past))))
	for k, g := range l.paged.groups {
		table, columns := b.tableOf(step, k)
		err = errors.Join(err, feed(g.table, table, int64(len(step)), int64(columns)))
	}
	for _, p := range l.others {
		err = errors.Join(err, feed(p, make([]int64, len(ids)), int64(len(ids))))
	}
	if err == nil && b.sampled != nil {
		err = b.bindSample(b.pagedRows(step, cumulative))
	}
	if err == nil {
		err = b.bindOutputs()
	}
	if err == nil {
		err = b.binding.Run(ctx)
	}
	if err == nil {
		err = b.passOn()
	}
	if err != nil {
		return err
	}
	return b.keepRows(step, cumulative)
}

// write frees blocks of a group before the window of a sequence, and gives it those of its tokens up to end.
func (b *batch) write(e *pagedEnd, k, end int) error {
	g, p := b.g.layout.paged.groups[k], b.paged.pools[k]
	if g.window > 0 && !b.paged.keeps {
		p.Drop(&e.tables[k], e.past-g.window+1)
	}
	copies, err := p.Write(&e.tables[k], e.past, end)
	for errors.Is(err, paged.ErrFull) {
		if err = b.extendPools(k, max(1, p.Blocks())); err == nil {
			copies, err = p.Write(&e.tables[k], e.past, end)
		}
	}
	for _, c := range copies {
		for _, x := range g.pools {
			err = errors.Join(err, b.held[x.past.name].CopyRow(int(c.To), int(c.From)))
		}
	}
	return err
}

// tableOf returns the block table of a group for a run. Freed blocks have the number of the first block that is kept.
func (b *batch) tableOf(step []pagedPart, k int) (table []int64, columns int) {
	columns = 1
	for _, part := range step {
		columns = max(columns, len(b.paged.ends[part.sequence].tables[k].Blocks))
	}
	table = slices.Repeat([]int64{-1}, len(step)*columns)
	for row, part := range step {
		t := b.paged.ends[part.sequence].tables[k]
		kept := t.Dropped()
		for c := range t.Blocks {
			table[row*columns+c] = int64(t.Blocks[max(c, kept)])
		}
	}
	return table, columns
}

// pagedRows describes the choice of tokens in a run: after the last token of each part that ends a sequence, and before
// it after those that are proposed. All other rows are greedy.
func (b *batch) pagedRows(step []pagedPart, cumulative []int64) []sampleRow {
	rows := len(step)
	if b.g.layout.everyToken() {
		rows = int(cumulative[rows])
	}
	list := make([]sampleRow, rows)
	for k, part := range step {
		i := part.sequence
		ids := b.sequences[i]
		if b.paged.ends[i].past+part.added < len(ids) {
			continue
		}
		at, n := rowsOfPart(k, cumulative, rows, b.proposed[i])
		for j := range n {
			list[at+j] = b.sampled.samplers[i].row(j, ids[:len(ids)-n+1+j], b.prompts[i])
		}
	}
	return list
}

// everyToken reports whether a paged model returns logits after each token.
func (l *layout) everyToken() bool {
	return len(l.logits.dims) == 0 || l.logits.dims[0] == l.ids.dims[0]
}

// rowsOfPart returns the first of the rows after the last token of part k and the proposed ones, and their number.
func rowsOfPart(k int, cumulative []int64, rows, proposed int) (at, n int) {
	if n = 1 + proposed; rows == int(cumulative[len(cumulative)-1]) {
		return int(cumulative[k+1]) - n, n
	}
	return k, n
}

// keepRows copies the logits, or the tokens, of the sequences that have no further tokens.
func (b *batch) keepRows(step []pagedPart, cumulative []int64) error {
	rows := len(b.chosen)
	if b.sampled == nil {
		rows = 1
		for _, d := range b.logits.dims[:max(0, len(b.logits.dims)-1)] {
			rows *= int(d)
		}
	}
	tokens := int(cumulative[len(step)])
	if b.sampled == nil && len(b.logits.dims) != 2 || rows != tokens && rows != len(step) {
		return fmt.Errorf("%q has %d rows of logits %v, but the inputs had %d tokens of %d sequences", b.chooses(),
			rows, b.logits.dims, tokens, len(step))
	}
	for k, part := range step {
		e := &b.paged.ends[part.sequence]
		if e.past += part.added; e.past < len(b.sequences[part.sequence]) {
			continue
		}
		at, n := rowsOfPart(k, cumulative, rows, b.proposed[part.sequence])
		if b.sampled != nil {
			e.chosen = append(e.chosen[:0], b.chosen[at:at+n]...)
			continue
		}
		e.logits = append(e.logits[:min(n, len(e.logits))], make([][]float32, max(0, n-len(e.logits)))...)
		for j := range e.logits {
			row, err := b.logits.row(at+j, &b.scratch)
			if err != nil {
				return err
			}
			e.logits[j] = append(e.logits[j][:0], row...)
		}
	}
	return nil
}
