package attention

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/formula"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// A run shows the masks only at its lengths. For all lengths they are proven: package formula reads their elements as
// formulas of the batch, the query, the key and the sizes. In each case of such a formula, the masks of a score are
// certain numbers. If these are the numbers of visible keys in the runs, the key must be visible, otherwise hidden.

// prover reads the masks of a block as formulas.
type prover struct {
	*formula.Reader
	b                    *block
	batch, queries, past *formula.Sum
	at                   map[rune]*formula.Expr // the index of a score along each letter of its axes
	query, key, row      *formula.Sum           // the same for the query, the key, and the batch
	head                 int
	valid                map[string]*formula.Var
	others               map[[infer.Worlds]int64]*formula.Var // sizes that do not follow from the block's lengths
	limits               []formula.Limit                      // set by tables
}

func (b *block) prover() *prover {
	if b.proof != nil {
		return b.proof
	}
	p := &prover{Reader: formula.NewReader(b.g), b: b, valid: map[string]*formula.Var{},
		others: map[[infer.Worlds]int64]*formula.Var{}}
	b.proof = p
	p.Budget = b.world.Budget
	p.Size, p.Leaf, p.Limits = p.size, p.leaf, &p.limits
	batch, queries, past := b.world.open()
	one := formula.Number(1)
	size := func(open bool, name string, fixed int64) *formula.Sum {
		if open {
			return formula.Of(p.Natural(name))
		}
		return formula.Number(fixed)
	}
	world := b.world.worlds[0]
	p.batch, p.queries = size(batch, "batch", world.batch), size(queries, "queries", world.queries)
	p.past = size(past, "past", world.past)
	if past && !b.isLength(func(n lengths) int64 { return n.past }) {
		p.past = formula.Of(p.Integer("past")) // the lengths of queries and keys are independent
	}
	keys := p.queries.Plus(p.past)
	for _, s := range []*formula.Sum{p.batch, p.queries, keys} {
		p.AtLeast(s, one)
	}
	place := func(name string, size *formula.Sum) *formula.Sum {
		if size.Equal(one) {
			return formula.Number(0)
		}
		v := formula.Of(p.Natural(name))
		p.AtLeast(size, v.Plus(one))
		return v
	}
	p.row, p.query, p.key = place("b", p.batch), place("i", p.queries), place("j", keys)
	p.at = map[rune]*formula.Expr{'b': p.Sum(p.row), 's': p.Sum(p.query), 'l': p.Sum(p.key),
		'n': p.Sum(formula.Number(0))}
	return p
}

// isLength reports whether some dimension of an input of the graph has this length.
func (b *block) isLength(of func(lengths) int64) bool {
	for _, v := range b.g.Graph.Inputs {
		rank, _ := b.g.Facts.Rank(v)
		for axis := range rank {
			same := true
			for w, n := range b.world.worlds {
				same = same && b.g.Facts.Size(v, w, axis) == of(n)
			}
			if same {
				return true
			}
		}
	}
	return false
}

// size returns a dimension of a value as a sum.
func (p *prover) size(v *onnx.Value, axis int) *formula.Sum {
	var dim [infer.Worlds]int64
	for w := range dim {
		if dim[w] = p.b.g.Facts.Size(v, w, axis); dim[w] < 0 {
			return nil
		}
	}
	d, ok := p.b.world.read(dim)
	if !ok || d.divisor != 1 {
		if p.others[dim] == nil {
			p.others[dim] = p.Natural(fmt.Sprintf("size %d", dim[0]))
		}
		return formula.Of(p.others[dim])
	}
	return terms[d.term].sum(p.batch, p.queries, p.past).Times(d.factor).Plus(formula.Number(d.more))
}

// leaf reads the padding mask, which masks are computed from.
func (p *prover) leaf(v *onnx.Value) formula.LeafReader {
	if v != p.b.keyValid {
		return nil
	}
	return func(at []*formula.Sum) *formula.Var { return p.exists(at[0], at[1]) }
}

// exists returns the element of the padding mask that tells whether a key exists.
func (p *prover) exists(batch, key *formula.Sum) *formula.Var {
	place := batch.Key() + "," + key.Key()
	if p.valid[place] == nil {
		name := fmt.Sprintf("%s[%s,%s]", p.b.keyValid.Name, batch, key)
		p.valid[place] = p.Integer(name)
		if isGiven(p.b.keyValid) {
			p.valid[place] = p.Truth(name)
		}
	}
	return p.valid[place]
}

// onScore reads the element of a tensor that is broadcast to a score.
func (p *prover) onScore(v *onnx.Value) (*formula.Expr, error) {
	rank, ok := p.b.g.Facts.Rank(v)
	if !ok {
		return nil, &formula.UnknownError{Node: v.Producer, What: "the rank of the mask is not known"}
	}
	sizes := map[rune]*formula.Sum{'b': p.batch, 's': p.queries, 'l': p.queries.Plus(p.past),
		'n': formula.Number(int64(p.b.heads))}
	var to, at []*formula.Expr
	for _, field := range p.b.fields(rank) {
		d, place := formula.Number(1), formula.Number(0)
		if k, ok := headPart(field); ok {
			rest := int64(1)
			for _, size := range p.b.headParts[k+1:] {
				rest *= size
			}
			d = formula.Number(p.b.headParts[k])
			place = formula.Number(int64(p.head) / rest % p.b.headParts[k])
			field = ""
		}
		for _, letter := range field {
			s, ok := p.at[letter].Sum()
			if !ok {
				return nil, &formula.UnknownError{Node: v.Producer, What: "its position is not known"}
			}
			place = formula.Product(place, sizes[letter]).Plus(s)
			d = formula.Product(d, sizes[letter])
		}
		to, at = append(to, p.Sum(d)), append(at, p.Sum(place))
	}
	place, err := p.Place(v, to, at)
	if err != nil {
		return nil, err
	}
	return p.Element(v, place...), nil
}

// sees reports whether, under the hypothesis, a query sees a key in a case.
func (p *prover) sees(c *formula.Case, h hypothesis) (bool, error) {
	ahead := p.key.Minus(p.query).Minus(p.past) // how far the key is after the query
	if h.causal {
		if is, err := c.AtMostZero(ahead); err != nil || !is {
			return false, err
		}
	}
	if h.window > 0 {
		if is, err := c.AtMostZero(formula.Number(1 - h.window).Minus(ahead)); err != nil || !is {
			return false, err
		}
	}
	if h.keyValid {
		zero, err := c.IsZero(formula.Of(p.exists(p.row, p.key)))
		return zero == p.b.site.KeyHides, err
	}
	return true, nil
}

// masksOf lists the values between the products that may differ between scores or lengths, except those given to the
// op. Integers are skipped: they are used as shapes.
func (b *block) masksOf() (list []*onnx.Value) {
	for _, v := range b.Sides {
		if t := b.g.Facts.DataType(v); t.IsInteger() {
			continue
		}
		if !slices.Contains(b.biases, v) && v != b.site.Sink && v != b.site.QueryScale && !b.isFixed(v) {
			list = append(list, v)
		}
	}
	return list
}

// isFixed reports whether a value holds one number for each head, whatever the lengths are, or is a share of the mean.
func (b *block) isFixed(v *onnx.Value) bool {
	if fixed, ok := b.fixed[v]; ok {
		return fixed
	}
	if b.fixed == nil {
		b.fixed = map[*onnx.Value]bool{}
	}
	b.fixed[v] = isUniform(b.g, v) || isConstant(b.g, v) && (b.isOfHeads(v) || b.perHead(v) != nil) ||
		b.perHead(v) != nil || b.isShare(v)
	return b.fixed[v]
}

// isShare reports whether a value is one over the number of keys, for all lengths, and only replaces weights: each key
// has it in the mean of all values.
func (b *block) isShare(v *onnx.Value) bool {
	n := v.Producer
	if !n.Is("Reciprocal") || slices.ContainsFunc(b.Nodes, func(r *onnx.Node) bool {
		return slices.Contains(r.Inputs, v) && !(r.Is("Where") && r.Inputs[0] != v && b.isWeighed(r))
	}) {
		return false
	}
	keys := n.Input(0)
	for keys != nil && keys.Producer.Is("Cast") {
		keys = keys.Producer.Input(0)
	}
	defer func(p *prover) { b.proof = p }(b.proof) // it may not know the padding mask yet
	b.proof = nil
	p := b.prover()
	rank, ok := b.g.Facts.Rank(keys)
	at := slices.Repeat([]*formula.Expr{p.Sum(formula.Number(0))}, max(rank, 0))
	for axis := range at {
		d, known := b.g.Facts.Dim(keys, axis)
		ok = ok && known && d == 1
	}
	if !ok {
		return false
	}
	count, ok := p.Element(keys, at...).Sum()
	return ok && count.Equal(p.queries.Plus(p.past))
}

// isOfHeads reports whether a value that is broadcast to the scores has at most one element for each head.
func (b *block) isOfHeads(v *onnx.Value) bool {
	rank, ok := b.g.Facts.Rank(v)
	fields := b.fields(rank)
	for axis := range rank {
		i := axis + len(fields) - rank
		if d, known := b.g.Facts.Dim(v, axis); !(known && d == 1) && (i < 0 || !strings.HasPrefix(fields[i],
			"n") || strings.ContainsAny(fields[i], "bsl")) {
			return false
		}
	}
	return ok
}

// isConstant reports whether a value is computed only from constants.
func isConstant(g *match.View, v *onnx.Value) bool {
	count := 0
	for w := range onnx.Upstream(func(*onnx.Value) bool { return false }, v) {
		n := w.Producer
		if count++; count > maxRunNodes {
			return false
		}
		if w.Constant() == nil && (n == nil || n.IsRandom() || n.Graph != g.Graph || len(n.Subgraphs()) > 0) {
			return false
		}
	}
	return true
}

// witnesses holds the numbers that the masks have at visible and hidden keys in runs.
type witnesses struct {
	masks   []*onnx.Value
	numbers [][]float64     // the distinct numbers of all masks
	sees    map[string]bool // whether a key with these numbers is visible
	bits    []byte          // of the last numbers that were looked up: their key in sees
}

func newWitnesses(masks []*onnx.Value) *witnesses {
	return &witnesses{masks: masks, sees: map[string]bool{}}
}

// find reports whether a key with these numbers is visible; ok is false if no run showed them.
func (w *witnesses) find(numbers []float64) (sees, ok bool) {
	w.bits = w.bits[:0]
	for _, x := range numbers {
		if math.IsNaN(x) {
			x = math.NaN() // one of several bit patterns
		}
		w.bits = binary.LittleEndian.AppendUint64(w.bits, math.Float64bits(x+0)) // -0 becomes 0
	}
	sees, ok = w.sees[string(w.bits)]
	return sees, ok
}

// maxNumbers bounds the distinct numbers of masks. A tensor with more is not a mask.
const maxNumbers = 64

// maskError tells why nothing is proven about a mask.
type maskError struct {
	mask *onnx.Value
	error
}

func (e *maskError) Unwrap() error { return e.error }

// gather records the masks of the examples.
func (w *witnesses) gather(b *block, h hypothesis, examples []example) error {
	for _, p := range examples {
		if p.weights == nil || len(w.masks) == 0 {
			continue
		}
		env, err := p.masks, error(nil)
		if env == nil {
			env, err = b.masks(p.lengths, p.padding)
		}
		if err != nil {
			return err
		}
		list, err := b.world.run(p.lengths, env, w.masks...)
		if err != nil {
			return err
		}
		for i, t := range list {
			if !b.isOnScores(t.Shape, p.lengths) {
				return &maskError{w.masks[i], errors.New("it is not broadcast to the scores")}
			}
		}
		numbersAt := b.numbersOf(list, p.lengths)
		keys, queries := int(p.keys()), int(p.queries)
		for at := range b.rowsOf(p.lengths) * keys {
			numbers := numbersAt(at)
			sees := h.sees(p, int64(at/keys/queries/b.heads), int64(at/keys%queries), int64(at%keys))
			switch is, ok := w.find(numbers); {
			case !ok:
				w.sees[string(w.bits)] = sees
				if w.numbers = append(w.numbers, slices.Clone(numbers)); len(w.numbers) > maxNumbers {
					return w.tooMany()
				}
			case is != sees:
				return fmt.Errorf("masks are %v both for keys that are seen and for hidden keys", numbers)
			}
		}
	}
	return nil
}

// tooMany returns the error for the mask with the most distinct numbers.
func (w *witnesses) tooMany() error {
	best, most := 0, 0
	for i := range w.masks {
		set := map[float64]bool{}
		for _, list := range w.numbers {
			set[list[i]] = true
		}
		if len(set) > most {
			best, most = i, len(set)
		}
	}
	v := w.masks[best]
	return &maskError{v, &formula.UnknownError{Node: v.Producer, What: "it differs at each position"}}
}

// numbersOf returns a function that returns the elements of tensors at a score, and overwrites its previous result.
func (b *block) numbersOf(list []*reference.Tensor, n lengths) func(score int) []float64 {
	numbers, at := make([]float64, len(list)), make([][]int, len(list))
	for k, t := range list {
		at[k] = b.indices(t.Shape, n)
	}
	return func(score int) []float64 {
		for k, t := range list {
			if i := at[k][score]; t.IsFloat() {
				numbers[k] = t.F[i] + 0 // -0 becomes 0
			} else {
				numbers[k] = float64(t.I[i])
			}
		}
		return numbers
	}
}

// masksAt reads the masks at a score of a head.
func (p *prover) masksAt(head int, masks []*onnx.Value) (list []*formula.Expr, err error) {
	p.head, p.at['n'] = head, p.Sum(formula.Number(int64(head)))
	list = make([]*formula.Expr, len(masks))
	for i, v := range masks {
		if list[i], err = p.onScore(v); err != nil {
			return nil, &maskError{v, err}
		}
	}
	return list, nil
}

// seen evaluates masks in a case and reports whether the witnesses with these numbers are visible keys.
func (p *prover) seen(c *formula.Case, list []*formula.Expr, w *witnesses) (bool, error) {
	numbers := make([]float64, len(list))
	for i, e := range list {
		v, err := c.Value(e)
		if err == nil && v.Sum != nil {
			err = &formula.UnknownError{Node: w.masks[i].Producer, What: fmt.Sprintf("it is %s", v.Sum)}
		}
		if err != nil {
			return false, &maskError{w.masks[i], err}
		}
		numbers[i] = v.Number + 0
	}
	sees, ok := w.find(numbers)
	if !ok {
		return false, &formula.UnknownError{Node: w.masks[0].Producer,
			What: fmt.Sprintf("it is %v at lengths that were not tried", numbers)}
	}
	return sees, nil
}

// prove returns an error unless a hypothesis holds for all sizes.
func (b *block) prove(h hypothesis, w *witnesses) error {
	if len(w.masks) == 0 {
		return nil
	}
	p := b.prover()
	for head := range b.headsToProve(w.masks) {
		list, err := p.masksAt(head, w.masks)
		if err != nil {
			return err
		}
		err = p.Cases(func(c *formula.Case) error {
			want, err := p.sees(c, h)
			if err != nil {
				return err
			}
			is, err := p.seen(c, list, w)
			if err == nil && is != want {
				err = &formula.UnknownError{Node: w.masks[0].Producer, What: "it differs at some lengths"}
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return b.checkLimits()
}

// checkLimits returns an error unless the graph fails at lengths that exceed a table, because the rows that a Slice
// takes of it are broadcast to the longer scores.
func (b *block) checkLimits() error {
	d := denseValues(b.g)
	for _, l := range b.prover().limits {
		for v := range onnx.Downstream(func(v *onnx.Value) bool { return d[v] }, l.Node.Outputs[0]) {
			n := v.Producer
			if n != l.Node && !n.Is("Slice") && !formula.Elementwise(n) &&
				!slices.Contains([]string{"Cast", "Unsqueeze", "Squeeze", "Transpose", "Expand", "Identity"},
					n.OpType) {
				return &formula.UnknownError{Node: n,
					What: "it may fill up a table that ends before " + l.Size.String()}
			}
		}
	}
	return nil
}

// headsToProve returns the number of heads whose masks may differ.
func (b *block) headsToProve(masks []*onnx.Value) int {
	for _, v := range masks {
		rank, _ := b.g.Facts.Rank(v)
		fields := b.fields(rank)
		for axis := range rank {
			i := axis + len(fields) - rank
			if d, ok := b.g.Facts.Dim(v, axis); i >= 0 && strings.Contains(fields[i], "n") && !(ok && d == 1) {
				return b.heads
			}
		}
	}
	return 1
}

// maxLength bounds windows.
const maxLength = 1 << 24

// supposeFar finds a window that is longer than the lengths that were tried.
func (b *block) supposeFar(h *hypothesis, w *witnesses) error {
	_, queries, past := b.world.open()
	if !h.causal || h.window > 0 || len(w.masks) == 0 || !queries && !past {
		return nil
	}
	p := b.prover()
	list, err := p.masksAt(0, w.masks)
	if err != nil {
		return err
	}
	behind := p.query.Plus(p.past).Minus(p.key)
	at := func(far int64, visit func(c *formula.Case) error) error {
		return p.Assuming([]*formula.Sum{behind.Minus(formula.Number(far)), formula.Number(far).Minus(behind)}, visit)
	}
	// sees reports whether a query sees an existing key at distance far.
	sees := func(far int64) (is bool, err error) {
		err = at(far,
			func(c *formula.Case) error {
				if h.keyValid {
					zero, err := c.IsZero(formula.Of(p.exists(p.row, p.key)))
					if err != nil || zero != b.site.KeyHides {
						return err
					}
				}
				seen, err := p.seen(c, list, w)
				is = is || seen
				return err
			})
		return is, err
	}
	far, err := firstOf(0, maxLength, func(far int64) (bool, error) { // a distance that no key can have
		none := true
		err := at(far, func(*formula.Case) error { none = false; return nil })
		return none, err
	})
	if err != nil {
		return err
	}
	if is, err := sees(far - 1); err != nil || is {
		return err
	}
	h.window, err = firstOf(0, far-1, func(far int64) (bool, error) {
		is, err := sees(far)
		return !is, err
	})
	return err
}

// firstOf returns the first number in (near, far] for which holds is true. It must be true from there on.
func firstOf(near, far int64, holds func(int64) (bool, error)) (int64, error) {
	for far-near > 1 {
		middle := (near + far) / 2
		is, err := holds(middle)
		if err != nil {
			return 0, err
		}
		if is {
			far = middle
		} else {
			near = middle
		}
	}
	return far, nil
}

// pointwise returns an error unless the masks at a score decide whether its key is visible, wherever the score is. It
// tries masks with their numbers at random places.
func (b *block) pointwise(w *witnesses) error {
	if len(w.masks) == 0 {
		return nil
	}
	n := b.few()
	given, list := values{}, make([]*reference.Tensor, len(w.masks))
	for i, v := range w.masks {
		shape, ok := b.world.shape(v, n)
		if !ok {
			return b.unknown("the shape of the mask")
		}
		t := &reference.Tensor{DataType: b.g.Facts.DataType(v), Shape: shape}
		for _, x := range random(match.Elements(shape), 71) { // masks of one shape share the random scores
			x = w.numbers[int(math.Abs(x)*1e6)%len(w.numbers)][i]
			if t.IsFloat() {
				t.F = append(t.F, x)
			} else {
				t.I = append(t.I, int64(x))
			}
		}
		given[v], list[i] = t, t
	}
	keys := int(n.keys())
	seen, unknown := make([]bool, b.rowsOf(n)*keys), make([]bool, b.rowsOf(n))
	numbersAt := b.numbersOf(list, n)
	for at := range seen {
		is, known := w.find(numbersAt(at))
		seen[at], unknown[at/keys] = is, unknown[at/keys] || !known
	}
	told := false // some fully known row has visible and hidden keys
	for row := range unknown {
		list := seen[row*keys : (row+1)*keys]
		told = told || !unknown[row] && slices.Contains(list, true) && slices.Contains(list, false)
	}
	hides := slices.ContainsFunc(slices.Collect(maps.Values(w.sees)), func(is bool) bool { return !is })
	if hides && !told {
		return errors.New("its numbers cannot be tried at other positions")
	}
	sees := func(batch, head, query, key int64) bool {
		row := (batch*int64(b.heads)+head)*n.queries + query
		return seen[row*n.keys()+key] && !unknown[row]
	}
	if why := b.addsWith(given, b.biases, sees); why != nil {
		return why
	}
	return b.hidesFar(given, sees)
}
