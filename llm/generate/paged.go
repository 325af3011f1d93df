package generate

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/llm/paged"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/roles"
)

// pagedLayout describes how to feed a model whose caches are pools of blocks (apply --cache paged).
type pagedLayout struct {
	pools                   []pool
	scales                  []pool // of the codes in pools, [blocks, heads] (apply --cache-type)
	cumulative, past, table port
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
		l.paged.table = p
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
	for _, p := range []port{l.paged.cumulative, l.paged.table, l.paged.past} {
		if p.name == "" || len(l.paged.pools) == 0 {
			return errors.New("a model with pools of blocks needs inputs for pools, lengths and the block table")
		}
	}
	l.limitPaged(m.Graph.Value(l.paged.past.name), map[*onnx.Value]bool{})
	return nil
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
	pool *paged.Pool
	ends []pagedEnd
}

// pagedEnd is the end of a sequence in the pools.
type pagedEnd struct {
	table  paged.Table
	past   int // tokens in the pools
	ended  bool
	logits [][]float32 // after the last token, and before it after those that are proposed
	chosen []int64     // instead of logits, if the model chooses
}

func (p *pagedBatch) end(i int) {
	p.pool.Release(&p.ends[i].table)
	p.ends[i].ended = true
}

// advancePaged runs the model on all tokens that it has not seen, at most chunk tokens of prompts at a time.
func (b *batch) advancePaged(ctx context.Context, chunk int) error {
	if chunk <= 0 {
		chunk = defaultPrefill
	}
	if b.paged.pool == nil {
		if err := b.makePools(); err != nil {
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

// waits reports whether a sequence must wait for the prefix that it shares with an earlier one, or forks from it.
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
	e.table, e.past = b.paged.pool.Fork(source.table, most), most
	return false
}

// makePools makes pools for the prompts and the first tokens after them.
func (b *batch) makePools() error {
	size := int(b.g.layout.paged.pools[0].past.dims[1].Value)
	p, err := paged.New(size, 0)
	if err != nil {
		return err
	}
	after := leastPaged
	if b.most > 0 {
		after = min(after, b.most)
	}
	blocks := 0
	for _, n := range b.prompts {
		blocks += p.Needs(n + after)
	}
	b.paged.pool = p
	return b.extendPools(blocks)
}

// extendPools adds blocks to the pools and keeps their content.
func (b *batch) extendPools(added int) error {
	p, was := b.paged.pool, b.buffers
	p.Extend(added)
	b.buffers = Buffers{Grown: was.Grown, Rows: true, Block: int(b.g.layout.paged.pools[0].past.dims[1].Value)}
	if was.Count > 0 {
		b.buffers.Grown++
	}
	b.buffers.Slots = p.Blocks() * b.buffers.Block
	for _, c := range b.g.layout.paged.all() {
		dims := []int64{int64(p.Blocks())}
		for _, d := range c.past.dims[1:] {
			dims = append(dims, d.Value)
		}
		if err := b.replace(c.past.name, c.present, dims, 0, was.Count > 0); err != nil {
			return fmt.Errorf("cannot make pools of %d blocks: %w", dims[0], err)
		}
	}
	b.buffers.Count = len(b.g.layout.paged.pools)
	return nil
}

// runPaged runs the model on one part of each sequence.
func (b *batch) runPaged(ctx context.Context, step []pagedPart) error {
	l, p := b.g.layout, b.paged
	var ids, cumulative, past []int64
	columns := 1
	for _, part := range step {
		e, begin := &p.ends[part.sequence], len(ids)
		ids = append(ids, b.sequences[part.sequence][e.past:e.past+part.added]...)
		cumulative, past = append(cumulative, int64(begin)), append(past, int64(e.past))
		copies, err := p.pool.Write(&e.table, e.past, e.past+part.added)
		for errors.Is(err, paged.ErrFull) {
			if err = b.extendPools(max(1, p.pool.Blocks())); err == nil {
				copies, err = p.pool.Write(&e.table, e.past, e.past+part.added)
			}
		}
		if err != nil {
			return err
		}
		for _, c := range copies {
			for _, x := range l.paged.all() {
				if err := b.held[x.past.name].CopyRow(int(c.To), int(c.From)); err != nil {
					return err
				}
			}
		}
		columns = max(columns, len(e.table.Blocks))
	}
	cumulative = append(cumulative, int64(len(ids)))
	table := slices.Repeat([]int64{-1}, len(step)*columns)
	for k, part := range step {
		for c, block := range p.ends[part.sequence].table.Blocks {
			table[k*columns+c] = int64(block)
		}
	}
	feed := func(p port, list []int64, dims ...int64) error {
		t, err := values(p, dims, func(i int) int64 { return list[i] })
		if err != nil {
			return err
		}
		return b.binding.Input(t)
	}
	err := errors.Join(feed(l.ids, ids, int64(len(ids))), feed(l.paged.cumulative, cumulative, int64(len(cumulative))),
		feed(l.paged.past, past, int64(len(past))), feed(l.paged.table, table, int64(len(step)), int64(columns)))
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
