package linear

import (
	"maps"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/probe"
	"github.com/mojo-patch/mojo-patch/reference"
)

// operand is a value with a row for each token, and how the row is divided.
type operand struct {
	*onnx.Value
	layout layout
	heads  int
	width  int // channels of a head
}

// roles are the operands of a span and what it computes from them.
type roles struct {
	q, k, v, decay, beta *operand // decay and beta may be nil
	out                  *operand // the rows
	heads, key, val      int
	factor               bool      // decay is the factor of the state and not its logarithm
	rates                []float64 // of a constant decay, the logarithm for each head
	// intended holds what constants of half types are roundings of, if the rates are read from such.
	intended map[*onnx.Value]*reference.Tensor
	// typed means that numbers which no operand determines are rounded to their half types, as the graph computes them:
	// powers of slow rates all become 1.
	typed         bool
	scale         float64
	skip          *operand // rows that are added to the result; nil if there are none
	skips         []float64
	pastTurned    bool // the channels of values before those of keys
	presentTurned bool
	norm          bool
	epsilon       float64
}

// agree is the allowed difference of numbers computed in two orders, relative to the greatest.
const agree = 1e-7

// run holds the numbers of one run of a span, in the order of the values.
type run struct {
	of            map[*onnx.Value][]float64
	ordered       map[operand][]float64 // memo of in
	products      map[pair][]float64    // memo of product
	rows, present []float64
	batch, tokens int
}

func (s *span) newRun(world int) *run {
	return &run{of: map[*onnx.Value][]float64{}, ordered: map[operand][]float64{},
		products: map[pair][]float64{}, batch: s.batch[world], tokens: s.tokens[world]}
}

// trial runs a span in a world. Decays and shares must be of one sign: all numbers are negative, or those of narrow
// operands are between 0 and 1.
func (s *span) trial(seed uint64, world int, past, factors bool) *run {
	return s.trialOf(seed, world, past, factors, nil)
}

// trialOf is trial with a function that may change the numbers of a value.
func (s *span) trialOf(seed uint64, world int, past, factors bool, change func(v *onnx.Value, list []float64)) *run {
	lab := probe.NewLab(s.g, maxSpan, s.budget)
	lab.World = world
	r := rand.New(rand.NewPCG(seed, 3))
	out := s.newRun(world)
	given := probe.Values{}
	widest := s.width(s.rows)
	for _, v := range s.given {
		shape, ok := lab.Shape(v)
		if !ok {
			return nil
		}
		list := make([]float64, match.Elements(shape))
		for i := range list {
			switch x := r.Float64(); {
			case factors && s.width(v) < widest:
				list[i] = 0.1 + 0.8*x
			default:
				list[i] = -0.1 - 0.8*x
			}
		}
		if change != nil {
			change(v, list)
		}
		out.of[v] = list
		given[v] = reference.NewFloats(s.g.Facts.DataType(v), shape, list)
	}
	if s.past != nil {
		shape, ok := lab.Shape(s.past)
		if !ok {
			return nil
		}
		list := make([]float64, match.Elements(shape))
		if past {
			list = normal(r, len(list))
		}
		out.of[s.past] = list
		given[s.past] = reference.NewFloats(s.g.Facts.DataType(s.past), shape, list)
	}
	maps.Copy(given, s.intended)
	want := []*onnx.Value{s.rows}
	if s.present != nil {
		want = append(want, s.present)
	}
	known := knownSizes(lab)
	if s.typed {
		known = typedNumbers(lab)
	}
	got, err := lab.Run(given, known, want...)
	if err != nil {
		return nil
	}
	if out.rows = got[0].F; s.present != nil {
		out.present = got[1].F
	}
	if len(out.rows) != s.width(s.rows)*out.batch*out.tokens {
		return nil
	}
	return out
}

// assign searches for the roles of the operands.
func (s *span) assign() bool {
	for _, factors := range []bool{false, true} {
		first := s.trial(1, 0, false, factors)
		if first == nil {
			return false
		}
		second := first
		if s.past != nil {
			if second = s.trial(2, 0, true, factors); second == nil {
				return false
			}
		}
		s.factor = factors
		if s.among(first, second) && s.holds(factors) {
			return true
		}
	}
	return false
}

// among tries all numbers of heads. first is a run without a past state.
func (s *span) among(first, second *run) bool {
	width := s.width(s.rows)
	var counts []int
	for _, v := range s.given {
		counts = append(counts, s.width(v))
	}
	shape, _ := s.shapeIn(s.rows, 0)
	slices.Sort(counts)
	for _, heads := range slices.Compact(append(counts, shape...)) {
		if heads < 1 || 2*heads > width && (heads != width || counts[len(counts)-1] <= width) || width%heads != 0 ||
			s.budget.Spent() {
			continue
		}
		s.heads, s.val = heads, width/heads
		for _, l := range layouts {
			s.out = s.operand(s.rows, l, heads)
			if s.out != nil && s.values(first, second) {
				return true
			}
		}
	}
	return false
}

// division is how rows may be divided.
type division struct {
	*onnx.Value
	layout layout
	heads  int
}

// operand returns a value with its rows divided into heads, or nil if it has no such layout.
func (s *span) operand(v *onnx.Value, l layout, heads int) *operand {
	d := division{v, l, heads}
	o, ok := s.divided[d]
	if !ok {
		o = s.divide(v, l, heads)
		s.divided[d] = o
	}
	return o
}

func (s *span) divide(v *onnx.Value, l layout, heads int) *operand {
	width := s.width(v)
	if width == 0 || width%heads != 0 {
		return nil
	}
	for w := range s.worlds {
		shape, ok := s.shapeIn(v, w)
		if n := (sizes{s.batch[w], s.tokens[w], heads, width / heads}); !ok || !l.fits(shape, n) ||
			w == 0 && l.order(shape, n) == nil {
			return nil
		}
	}
	return &operand{v, l, heads, width / heads}
}

// in returns the elements of an operand in the op's order.
func (o *operand) in(r *run) []float64 {
	key := operand{o.Value, o.layout, o.heads, o.width}
	list, ok := r.ordered[key]
	if !ok {
		list = o.layout.rows(r.of[o.Value], sizes{r.batch, r.tokens, o.heads, o.width})
		r.ordered[key] = list
	}
	return list
}

// each calls f for all layouts of the operands of a width that are not taken.
func (s *span) each(width, heads int, taken []*operand, f func(o *operand) bool) bool {
	for _, v := range s.given {
		if s.width(v) != width || slices.ContainsFunc(taken, func(o *operand) bool {
			return o != nil && o.Value == v
		}) {
			continue
		}
		for i, l := range layouts {
			o := s.operand(v, l, heads)
			if o == nil || i > 0 && o.width == 1 && (l == "bhct" || l == "btch") { // as another layout
				continue
			}
			if f(o) {
				return true
			}
		}
	}
	return false
}

// values looks for the values, by the first token: its row is a multiple of them, and perhaps of rows that are added.
func (s *span) values(first, second *run) bool {
	out := s.out.layout.rows(first.rows, sizes{first.batch, first.tokens, s.heads, s.val})
	return s.each(s.heads*s.val, s.heads, nil, func(v *operand) bool {
		s.v, s.skip = v, nil
		if times, _, ok := s.multiples(first, out, v.in(first), nil); ok && s.keys(first, second, times) {
			return true
		}
		return s.val > 2 && !s.bare && s.each(s.heads*s.val, s.heads, []*operand{v}, func(skip *operand) bool {
			times, added, ok := s.multiples(first, out, v.in(first), skip.in(first))
			if s.skip, s.skips = skip, added; !ok || !s.steady(first) {
				return false
			}
			return s.keys(first, second, times)
		})
	})
}

// multiples returns the factors of the values, and of the added rows, in the first row of each head.
func (s *span) multiples(r *run, out, v, skip []float64) (times, added []float64, ok bool) {
	if !s.budget.Spend(4 * r.batch * s.heads * s.val) {
		return nil, nil, false
	}
	for b := range r.batch {
		for h := range s.heads {
			at := (b*r.tokens*s.heads + h) * s.val
			y, x := out[at:at+s.val], v[at:at+s.val]
			var a, c float64
			if skip == nil {
				a = dot(x, y) / dot(x, x)
			} else {
				z := skip[at : at+s.val]
				det := dot(x, x)*dot(z, z) - dot(x, z)*dot(x, z)
				a = (dot(x, y)*dot(z, z) - dot(z, y)*dot(x, z)) / det
				c = (dot(x, x)*dot(z, y) - dot(x, z)*dot(x, y)) / det
				added = append(added, c)
			}
			if times = append(times, a); a == 0 {
				return nil, nil, false
			}
			for i := range y {
				want := a * x[i]
				if skip != nil {
					want += c * skip[at+i]
				}
				if !(math.Abs(y[i]-want) <= agree*(1e-3+math.Abs(y[i]))) {
					return nil, nil, false
				}
			}
		}
	}
	return times, added, true
}

// steady reports whether the added rows have the same factors in all sequences, and keeps one for each head.
func (s *span) steady(r *run) bool {
	for i, x := range s.skips {
		if math.Abs(x-s.skips[i%s.heads]) > agree*(1+math.Abs(x)) {
			return false
		}
	}
	s.skips = s.skips[:s.heads]
	return true
}

func dot(a, b []float64) (sum float64) {
	for i, x := range a {
		sum += x * b[i]
	}
	return sum
}

// keys looks for queries, keys and shares. In the first row, the factor of the values is the product of the scale, the
// query and key, and the share.
func (s *span) keys(first, second *run, times []float64) bool {
	shares := append([]*operand{nil}, s.all(s.heads, s.heads, s.v, s.skip)...)
	for _, beta := range shares {
		s.beta = beta
		for _, q := range s.given {
			for _, qHeads := range divisors(s.heads, s.width(q)) {
				s.key = s.width(q) / qHeads
				for _, l := range layouts {
					s.q = s.operand(q, l, qHeads)
					if s.q == nil || s.key < 2 || s.isTaken(q, s.v, s.skip, s.beta) {
						continue
					}
					for _, k := range s.given {
						if s.width(k)%s.key != 0 || s.heads%(s.width(k)/s.key) != 0 ||
							s.isTaken(k, s.v, s.skip, s.beta, s.q) {
							continue
						}
						for _, l := range layouts {
							if s.k = s.operand(k, l, s.width(k)/s.key); s.k != nil && s.scales(first, times) &&
								s.decays(second) {
								return true
							}
						}
					}
				}
			}
		}
	}
	return false
}

// all lists the layouts of the operands of a width, except those taken.
func (s *span) all(width, heads int, taken ...*operand) (list []*operand) {
	s.each(width, heads, taken, func(o *operand) bool {
		list = append(list, o)
		return false
	})
	return list
}

func (s *span) isTaken(v *onnx.Value, by ...*operand) bool {
	return slices.ContainsFunc(by, func(o *operand) bool { return o != nil && o.Value == v })
}

// divisors returns the divisors of heads that divide a width, the greatest first.
func divisors(heads, width int) (list []int) {
	for d := heads; d > 0; d-- {
		if heads%d == 0 && width > 0 && width%d == 0 {
			list = append(list, d)
		}
	}
	return list
}

// pair is queries and keys that may belong together, and the heads of the values.
type pair struct {
	q, k  operand
	heads int
}

// product returns the product of the query and key of the first token for the head at i, of all sequences' heads. It is
// asked for in order, and again for each choice of values, shares and layouts of the result.
func (s *span) product(r *run, i int) float64 {
	p := pair{*s.q, *s.k, s.heads}
	list := r.products[p]
	if i == len(list) {
		s.budget.Spend(s.key / 8)
		b, h := i/s.heads, i%s.heads
		row := func(o *operand) []float64 {
			at := (b*r.tokens*o.heads + h*o.heads/s.heads) * s.key
			return o.in(r)[at : at+s.key]
		}
		list = append(list, dot(row(s.q), row(s.k)))
		r.products[p] = list
	}
	return list[i]
}

// scales reports whether all first rows have the same scale.
func (s *span) scales(r *run, times []float64) bool {
	if !s.budget.Spend(16) {
		return false
	}
	var beta []float64
	if s.beta != nil {
		beta = s.beta.in(r)
	}
	for b := range r.batch {
		for h := range s.heads {
			x := s.product(r, b*s.heads+h)
			if beta != nil {
				x *= beta[b*r.tokens*s.heads+h]
			}
			scale := times[b*s.heads+h] / x
			if b+h == 0 {
				s.scale = scale
			}
			if !(math.Abs(scale-s.scale) <= agree*math.Abs(s.scale)) {
				return false
			}
		}
	}
	return s.scale != 0
}

// decays looks for the decay among the operands that are left, and compares all rows.
func (s *span) decays(r *run) bool {
	left := len(s.given) - 3
	for _, o := range []*operand{s.beta, s.skip} {
		if o != nil {
			left--
		}
	}
	if s.decay, s.rates, s.intended, s.typed = nil, nil, nil, false; left == 0 {
		if s.computes(r) || s.rated() && s.computes(r) {
			return true
		}
		if s.rates != nil && s.unrounds() {
			if r := s.trial(3, 0, s.past != nil, s.factor); r != nil && s.computes(r) {
				return true
			}
		}
		if !s.g.Facts.DataType(s.rows).IsHalf() {
			return false
		}
		s.rates, s.intended, s.typed = nil, nil, true
		r = s.trial(3, 0, s.past != nil, s.factor)
		return r != nil && (s.computes(r) || s.rated() && s.computes(r))
	}
	taken := []*operand{s.q, s.k, s.v, s.beta, s.skip}
	try := func(o *operand) bool {
		s.decay = o
		return s.computes(r)
	}
	return left == 1 && (s.each(s.heads, s.heads, taken, try) || s.each(s.heads*s.key, s.heads, taken, try))
}

// op returns the op without what belongs to its operands.
func (s *span) op() fused.LinearAttention {
	return fused.LinearAttention{QHeads: int64(s.q.heads), KHeads: int64(s.k.heads), VHeads: int64(s.heads),
		Scale: 1, L2Norm: s.norm, Epsilon: float32(s.epsilon)}
}

// computes reports whether the op's rows and state are those of a run, for either order of the states' axes.
func (s *span) computes(r *run) bool {
	for _, turned := range []bool{false, true} {
		if s.pastTurned = turned; turned && s.past == nil {
			return false
		}
		if s.matches(r) {
			return true
		}
	}
	return false
}

func (s *span) matches(r *run) bool {
	inputs := make([]*reference.Tensor, fused.LinearAttentionBeta+1)
	for i, o := range map[int]*operand{fused.LinearAttentionQ: s.q, fused.LinearAttentionK: s.k,
		fused.LinearAttentionV: s.v, fused.LinearAttentionDecay: s.decay, fused.LinearAttentionBeta: s.beta} {
		if o == nil {
			continue
		}
		list := o.in(r)
		if i == fused.LinearAttentionDecay && s.factor {
			list = slices.Clone(list)
			for j, x := range list {
				list[j] = math.Log(x)
			}
		}
		inputs[i] = reference.NewFloats(onnx.Float, []int{r.batch, r.tokens, o.heads * o.width}, list)
	}
	if s.rates != nil {
		inputs[fused.LinearAttentionDecay] = reference.NewFloats(onnx.Float, []int{r.batch, r.tokens, s.heads},
			slices.Repeat(s.rates, r.batch*r.tokens))
	}
	if s.past != nil {
		list := r.of[s.past]
		if len(list) != r.batch*s.heads*s.key*s.val {
			return false
		}
		if s.pastTurned {
			list = turned(list, s.val, s.key)
		}
		inputs[fused.LinearAttentionPast] = reference.NewFloats(onnx.Float, []int{r.batch, s.heads, s.key, s.val}, list)
	}
	want, err := probe.Fused(s.op(), s.budget.SpendOrFail, inputs...)
	if err != nil {
		return false
	}
	rows := slices.Clone(want[0].F)
	var skip []float64
	if s.skip != nil {
		skip = s.skip.in(r)
	}
	for i := range rows {
		if rows[i] *= s.scale; skip != nil {
			rows[i] += s.skips[i/s.val%s.heads] * skip[i]
		}
	}
	out := s.out.layout.rows(r.rows, sizes{r.batch, r.tokens, s.heads, s.val})
	if !near(out, rows) {
		return false
	}
	if s.present == nil {
		return true
	}
	if s.presentTurned = !near(r.present, want[1].F); !s.presentTurned {
		return true
	}
	return len(r.present) == len(want[1].F) && near(turned(r.present, s.val, s.key), want[1].F)
}

// turned exchanges the last two axes, of m and n elements.
func turned(list []float64, m, n int) []float64 {
	out := make([]float64, len(list))
	for i, x := range list {
		first, a, b := i/(m*n)*m*n, i/n%m, i%n
		out[first+b*m+a] = x
	}
	return out
}

// holds reports whether the roles are right in other runs too: with other numbers, and with more tokens.
func (s *span) holds(factors bool) bool {
	for world := range min(2, s.worlds) {
		r := s.trial(11, world, true, factors)
		if r == nil && world > 0 { // the graph may fix the number of chunks
			continue
		}
		if r == nil || !s.matches(r) {
			return false
		}
	}
	return true
}
