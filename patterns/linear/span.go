package linear

import (
	"maps"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/probe"
	"github.com/mojo-patch/mojo-patch/patterns/site"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// spanLimits bound the search for many tokens. A chunk of 64 tokens in 32 heads of 128 channels takes about 200 million
// steps each time that it runs.
var spanLimits = match.Limits{Each: 1 << 14, Reserve: 1 << 31, Shares: 2}

const (
	maxSpan  = 1 << 14 // nodes after a seed, and nodes of a span
	maxExits = 16      // values that a span may end in
	maxCuts  = 12      // choices of operands
	maxGiven = 6       // operands
)

// span is the nodes that compute linear attention over many tokens, in chunks or in a loop.
type span struct {
	g       *match.View
	budget  *match.Budget
	others  site.Others
	known   probe.Readings[roles]
	from    map[*onnx.Value]bool // computed from the seed
	rows    *onnx.Value          // the result of each token
	present *onnx.Value          // the state after the last token; nil if nothing reads it
	past    *onnx.Value          // the state before the first token; nil if it is zero
	given   []*onnx.Value        // operands with a row for each token
	read    []*operand           // the operands, once they are known
	nodes   []*onnx.Node         // in order
	// batch and tokens are the numbers of sequences and tokens in the first worlds.
	batch, tokens [infer.Worlds]int
	worlds        int
	bare          bool                  // no rows are added to the result
	divided       map[division]*operand // memo of operand
	blocks        bool                  // several blocks may read rows of each operand, which are not its operands
	roles
}

// Spans finds linear attention over many tokens. Chunks and loops have any form: a span is the nodes between rows of
// tokens and results of tokens that a sum over time, or a loop, takes part in, and its results tell what it computes.
// Then it begins at scores that are read without a softmax: a decay that is constant has no sum.
func Spans(g *match.View, others site.Others) (sites []*site.Site, _ []*match.Miss) {
	tried, known := map[*onnx.Node]bool{}, probe.Readings[roles]{}
	for _, scores := range []bool{false, true} {
		for _, n := range g.Graph.Nodes {
			if tried[n] || others.Have(n) || !scores && !isSeed(g, n) || scores && !isScores(g, n) {
				continue
			}
			s := &span{g: g, budget: g.Budget(fused.LinearAttentionName+" of many tokens", spanLimits), others: others,
				known: known}
			s.budget.Begin(n)
			if scores && s.findAll(n) || !scores && s.find(n) {
				s.budget.Found()
				sites = append(sites, s.site())
			}
			s.budget.End()
			for _, n := range s.nodes {
				tried[n] = true
			}
		}
	}
	return sites, nil
}

// exit is a value that all results of a seed pass through, perhaps beside a state.
type exit struct{ rows, state *onnx.Value }

// find searches for the operands of each exit.
func (s *span) find(seed *onnx.Node) bool {
	exits := s.exits(seed)
	for _, axes := range rowAxes {
		if slices.ContainsFunc(exits, func(e exit) bool { return s.ends(e, axes) }) {
			if s.present == nil {
				s.withState()
			}
			return true
		}
	}
	return false
}

// rowAxes are axes of sequences and tokens, as mayBe takes them.
var rowAxes = [][2]int{{0, 1}, {0, 2}, {-1, 0}, {-1, 1}, {-1, 2}, {1, 0}, {0, 3}, {1, 2}}

// ends searches for the operands of an exit with these axes of sequences and tokens.
func (s *span) ends(e exit, axes [2]int) bool {
	if !s.mayBe(e.rows, axes[0], axes[1]) {
		return false
	}
	// A graph for one chunk has wrong sizes in worlds of more tokens.
	for _, worlds := range []int{infer.Worlds, 1} {
		s.rows, s.present, s.worlds = e.rows, e.state, worlds
		if s.sized(axes[0], axes[1]) && s.operated() {
			return true
		}
	}
	return false
}

// operated tries operands ever further before the results.
func (s *span) operated() bool {
	var inside []*onnx.Value // operands that were tried and refused
	for tried := 0; tried < maxCuts; {
		if !s.cut(inside) || s.budget.Spent() {
			return false
		}
		few := len(s.given) <= maxGiven
		switch {
		case few:
			tried++
		case !s.blocks:
			return false
		}
		if few && s.closed() && s.assigned() && (!s.isJoined() || s.keepsRows()) {
			s.widen()
			s.read = []*operand{s.q, s.k, s.v, s.decay, s.beta, s.skip}
			return s.cut(nil) && s.closed()
		}
		last := s.lastGiven()
		if last == nil {
			return false
		}
		inside = append(inside, last)
	}
	return false
}

// isJoined reports whether the rows become rows of a longer result: they may be those of one block of several.
func (s *span) isJoined() bool {
	v := s.rows
	for range maxScores {
		readers := slices.DeleteFunc(slices.Clone(s.g.Readers(v)), isSize)
		if slices.ContainsFunc(readers, func(n *onnx.Node) bool {
			return n.Is("Concat") || n.Is("Pad") || n.Is("ScatterND") || n.Is("ScatterElements")
		}) {
			return true
		}
		if len(readers) != 1 || !readers[0].Is("Cast") && !slices.Contains(views, readers[0].OpType) {
			return false
		}
		v = readers[0].OutputValue(0)
	}
	return false
}

// keepsRows reports whether the result has as many rows as each operand, for all numbers of tokens.
func (s *span) keepsRows() bool {
	of, ok := s.tokensAxis(s.out)
	for _, o := range []*operand{s.q, s.k, s.v, s.decay, s.beta, s.skip} {
		if o == nil {
			continue
		}
		axis, has := s.tokensAxis(o)
		ok = ok && has && s.g.Facts.SameDim(o.Value, axis, s.rows, of)
	}
	return ok
}

// tokensAxis returns the axis of an operand that has a row for each token.
func (s *span) tokensAxis(o *operand) (int, bool) {
	shape, ok := s.shapeIn(o.Value, 0)
	if !ok {
		return 0, false
	}
	order := o.layout.order(shape, s.sizesOf(o))
	if len(order) < 2 {
		return 0, false
	}
	return int(order[1]), true
}

// exits follows the results of a seed to the values that they all pass through, in order.
func (s *span) exits(seed *onnx.Node) (list []exit) {
	s.from = map[*onnx.Value]bool{}
	open := map[*onnx.Value]int{} // readers to come
	add := func(n *onnx.Node) {
		for _, v := range n.Outputs {
			if v == nil {
				continue
			}
			s.from[v] = true
			if left := len(s.g.Readers(v)); v.IsOutput() {
				open[v] = left + 1
			} else if left > 0 {
				open[v] = left
			}
		}
	}
	add(seed)
	steps := 0
	for _, n := range s.g.Graph.Nodes[s.g.Position(seed)+1:] {
		if e, ok := s.exit(open); ok && !slices.Contains(list, e) {
			list = append(list, e)
		}
		if steps++; len(list) == maxExits || steps > maxSpan || len(open) == 0 || !s.budget.Spend(2) {
			break
		}
		read := false
		for _, v := range s.operands(n) {
			if !s.from[v] {
				continue
			}
			read = true
			if open[v]--; open[v] <= 0 {
				delete(open, v)
			}
		}
		if read && !isSize(n) {
			add(n)
		}
	}
	if e, ok := s.exit(open); ok && !slices.Contains(list, e) && len(list) < maxExits {
		list = append(list, e)
	}
	return list
}

// operands lists the values that a node reads, each once.
func (s *span) operands(n *onnx.Node) (list []*onnx.Value) {
	for _, v := range s.g.Operands(n) {
		if v != nil && !slices.Contains(list, v) {
			list = append(list, v)
		}
	}
	return list
}

// exit returns the only open value or, of two, the one that may hold rows and the one that may be a state.
func (s *span) exit(open map[*onnx.Value]int) (e exit, ok bool) {
	if len(open) > 2 {
		return e, false
	}
	for v := range open {
		switch {
		case s.varies(v) && e.rows != nil:
			return e, false
		case s.varies(v):
			e.rows = v
		case e.state == nil:
			e.state = v
		case s.position(v) > s.position(e.state): // rows of a fixed number of tokens are computed last
			e.rows = v
		default:
			e.rows, e.state = e.state, v
		}
	}
	if e.rows == nil {
		e.rows, e.state = e.state, nil
	}
	if e.rows == nil {
		return e, false
	}
	e.rows = s.uncopied(e.rows)
	return e, true
}

// uncopied follows rows back through nodes that return them as they are: the match of a norm behind them does so too.
func (s *span) uncopied(v *onnx.Value) *onnx.Value {
	for n := v.Producer; n != nil && (n.Is("Cast") || n.Is("Identity")); n = v.Producer {
		in := n.Input(0)
		if in == nil || !s.from[in] || in.IsOutput() || v.IsOutput() ||
			s.g.Facts.DataType(in) != s.g.Facts.DataType(v) {
			break
		}
		v = in
	}
	return v
}

// varies reports whether a value may have a row for each token. A state has four axes, or three if heads have one
// value, and only the axis of the sequences may be open.
func (s *span) varies(v *onnx.Value) bool {
	rank, ok := s.g.Facts.Rank(v)
	return !ok || rank != 3 && rank != 4 || !v.IsOutput() || !s.fixed(v)
}

// mayBe reports whether a value may have these axes of sequences and tokens. -1 is no axis, for one sequence. All other
// axes must have known sizes, and an input of the graph must have an axis of as many tokens.
func (s *span) mayBe(v *onnx.Value, batch, tokens int) bool {
	shape, ok := s.g.Facts.Shape(v, 0)
	for axis := range shape {
		_, known := s.g.Facts.Dim(v, axis)
		ok = ok && (known || axis == batch || axis == tokens)
	}
	if !ok || max(batch, tokens) >= len(shape) {
		return false
	}
	given := func(size int64) bool {
		for g := s.g.Graph; g != nil; g = g.Parent {
			if slices.ContainsFunc(g.Inputs, func(in *onnx.Value) bool {
				dims, _ := s.g.Facts.Shape(in, 0)
				return in.Constant() == nil && slices.Contains(dims, size)
			}) {
				return true
			}
		}
		return false
	}
	return given(shape[tokens]) && (batch < 0 || shape[batch] == 1 || given(shape[batch]))
}

// sized reads the numbers of sequences and tokens from the rows. One token does not show what is carried.
func (s *span) sized(batch, tokens int) bool {
	s.divided = map[division]*operand{}
	for w := range s.worlds {
		shape, ok := s.shapeIn(s.rows, w)
		if !ok {
			return false
		}
		if s.batch[w] = 1; batch >= 0 {
			s.batch[w] = shape[batch]
		}
		if s.tokens[w] = shape[tokens]; s.tokens[w] < 2 || s.batch[w] < 1 {
			return false
		}
	}
	return true
}

// width returns the number of elements of a value for each token, if it has a row for each token, or 0.
func (s *span) width(v *onnx.Value) (width int) {
	for w := range s.worlds {
		shape, ok := s.shapeIn(v, w)
		n, all := match.Elements(shape), s.batch[w]*s.tokens[w]
		if !ok || n == 0 || n%all != 0 || w > 0 && n/all != width ||
			!slices.Contains(shape, s.tokens[w]) && !slices.Contains(shape, all) {
			return 0
		}
		width = n / all
	}
	return width
}

// cut follows the results back to operands with a row for each token. Values computed from the seed, and those in
// inside, are not operands. All other data that the nodes read is the past state.
func (s *span) cut(inside []*onnx.Value) bool {
	s.given, s.past, s.nodes = nil, nil, nil
	made, seen := map[*onnx.Node]bool{}, map[*onnx.Value]bool{}
	waiting := []*onnx.Value{s.rows}
	if s.present != nil {
		waiting = append(waiting, s.present)
	}
	for len(waiting) > 0 {
		v := waiting[len(waiting)-1]
		waiting = waiting[:len(waiting)-1]
		n, result := v.Producer, v == s.rows || v == s.present
		switch {
		case seen[v] || v.Constant() != nil:
			continue
		case !s.g.IsData(v) && !s.from[v] && !result:
			if seen[v] = true; n != nil && n.Graph == s.g.Graph && len(n.Subgraphs()) == 0 && s.side(v) {
				made[n] = true
				for _, in := range s.operands(n) {
					if s.from[in] || !isSize(n) || !s.g.IsData(in) {
						waiting = append(waiting, in)
					}
				}
			}
			continue
		case !result && !s.from[v] && (s.read == nil && !slices.Contains(inside, v) && s.width(v) > 0 ||
			s.isTaken(v, s.read...)):
			seen[v] = true
			s.given = append(s.given, v)
			continue
		case n == nil || n.Graph != s.g.Graph:
			if seen[v] = true; s.past != nil {
				return false
			}
			s.past = v
			continue
		case s.others.Have(n) || n.IsRandom() || len(made) > maxSpan || !s.budget.Spend(4):
			return false
		}
		seen[v], made[n] = true, true
		for _, in := range carried(n) {
			if in != nil && s.g.IsData(in) && !s.from[in] && !seen[in] && s.width(in) == 0 {
				if seen[in] = true; s.past != nil {
					return false
				}
				s.past = in
			}
		}
		waiting = append(waiting, s.operands(n)...)
	}
	s.nodes = slices.SortedFunc(maps.Keys(made), func(a, b *onnx.Node) int {
		return s.g.Position(a) - s.g.Position(b)
	})
	slices.SortFunc(s.given, func(a, b *onnx.Value) int { return s.position(a) - s.position(b) })
	return len(s.given) > 2
}

// carried lists the values that a loop begins with.
func carried(n *onnx.Node) []*onnx.Value {
	switch {
	case n.Is("Loop") && len(n.Inputs) > 2:
		return n.Inputs[2:]
	case n.Is("Scan"):
		return n.Inputs[:max(0, len(n.Inputs)-int(n.AttrInt("num_scan_inputs", 0)))]
	}
	return nil
}

// side reports whether a value without data may be computed only for the span: it is no longer than a mask.
func (s *span) side(v *onnx.Value) bool {
	n := v.Producer
	return !n.IsRandom() && !s.others.Have(n)
}

func (s *span) position(v *onnx.Value) int {
	if v.Producer == nil || v.Graph != s.g.Graph {
		return -1
	}
	return s.g.Position(v.Producer)
}

// lastGiven returns the operand that is computed last in the graph, or nil.
func (s *span) lastGiven() *onnx.Value {
	if v := s.given[len(s.given)-1]; s.position(v) >= 0 {
		return v
	}
	return nil
}

// closed drops the nodes that others read as well, and reports whether those that compute data are closed.
func (s *span) closed() bool {
	within := map[*onnx.Node]bool{}
	for _, n := range s.nodes {
		within[n] = true
	}
	for _, n := range slices.Backward(s.nodes) {
		for _, v := range n.Outputs {
			if v == nil || v == s.rows || v == s.present {
				continue
			}
			if v.IsOutput() || slices.ContainsFunc(s.g.Readers(v), func(r *onnx.Node) bool { return !within[r] }) {
				if within[n] = false; s.from[v] {
					return false
				}
			}
		}
	}
	s.nodes = slices.DeleteFunc(s.nodes, func(n *onnx.Node) bool { return !within[n] })
	return true
}
