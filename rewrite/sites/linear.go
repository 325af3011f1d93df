package sites

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/internal/english"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/reference/infer"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
)

// spanLengths are numbers of tokens on both sides of the usual chunks.
var spanLengths = []int64{1, 63, 64, 65, 130}

// linear checks a site of linear attention over many tokens. Chunks take the exponentials of sums of decays, and solve
// for the updates. Both are exact for states that decay, for shares from 0 to 1 and for keys of length 1, but lose all
// digits or overflow for other numbers. So decays, shares and keys are in these ranges.
//
// A length for which the matched nodes cannot be evaluated, or return too few rows or rows of several sequences,
// proves nothing: an export may fix the number of chunks. All other lengths must agree.
type linear struct {
	*proof
	key, width   int64 // channels of a head's key, and of all queries of a token
	perRow       int   // elements of a result for each token
	rows         int   // tokens of the last trial
	returned     int   // rows that the nodes returned for them
	shape        []int // of the result in the first trial
	alone        bool  // the next trial has one sequence of a number of tokens
	outside      bool  // some numbers of the next trial are outside of their ranges
	fixed        bool  // it must not fail
	failure      error // of the nodes in the last trial
	works, fails []int64
	leaves       []int64 // for which rows are left out
	why          error
	most         int64 // rows that the nodes compute at most, in an unrolled loop
}

// tryLinear tries linear attention on several lengths if the site has gates that its operands show.
func (k *Checker) tryLinear(c *Site, worlds []int, r *prove.CheckReport) error {
	c.coarse = computed(c, k.run.Facts)
	gates := []fused.Role{fused.RoleDecay, fused.RoleDecayLog, fused.RoleShare, fused.RoleLinearKeys}
	if len(c.Calls) == 0 || !slices.ContainsFunc(c.Match.Inputs, func(v *onnx.Value) bool {
		return slices.Contains(gates, c.Match.Roles[v])
	}) {
		return k.tryNumbers(c, worlds, r)
	}
	site := c.Calls[0].Site
	x := &linear{proof: &proof{Checker: k, c: c}, width: dimOf(site, fused.LinearAttentionQ, 2)}
	x.key = x.width / fused.Read[fused.LinearAttention](site.Attributes).QHeads
	claim := x.claim(c.Calls, func() error { return x.lengths(worlds) })
	before := claim.Before
	claim.Before = func(o reference.Options, in []*reference.Tensor) ([]*reference.Tensor, error) {
		out, err := before(o, in)
		x.returned = x.rows
		switch {
		case err != nil:
		case x.perRow == 0:
			x.perRow, x.shape = out[0].Len()/x.rows, out[0].Shape
		case out[0].Len() != x.rows*x.perRow:
			x.returned = out[0].Len() / x.perRow
			err = fmt.Errorf("they return %d of %d rows", x.returned, x.rows)
		case x.alone && !x.isSequence(out[0].Shape):
			err = fmt.Errorf("they return %v for one sequence of %d", out[0].Shape, x.rows)
		default:
			if n := x.computed(in, out); n > 0 {
				x.returned, x.most = n, int64(n)
				err = fmt.Errorf("they return rows of 0 after the first %d", n)
			}
		}
		return out, err
	}
	claim.Policy.Undefined = func(err error) bool {
		x.failure = err
		return !x.fixed && !errors.Is(err, reference.ErrUnsupported)
	}
	if err := claim.Try(r); err != nil {
		return x.blamed(err)
	}
	// Nodes that work for all fewer tokens may return zeros for more on purpose.
	if len(x.leaves) > 0 && (!slices.Contains(x.works, x.most) ||
		slices.Min(append(x.fails, x.most)) >= slices.Min(x.works)) {
		return reason.New(reason.Differs, nil, "differs from the matched nodes on %d tokens: they return rows of 0 "+
			"after the first %d", x.leaves[0], x.most).With("tokens", x.leaves[0])
	}
	r.Repairs = x.repairs()
	return nil
}

// computed returns the type with the fewest digits that the nodes of a site compute numbers in. A model in float16 may
// hold its states in float32, but round each update of them. Nodes that move elements have no rounding of their own: a
// cast to a half type is one of a result, or is followed by ops that compute in this type.
func computed(c *Site, facts *infer.Facts) onnx.DataType {
	var types []onnx.DataType
	for _, n := range c.slice.nodes {
		if !n.MovesElements() && !n.Is("Pad") && !n.Is("Where") {
			types = append(types, facts.DataType(n.OutputValue(0)))
		}
	}
	return coarsestOf(types)
}

// isSequence reports whether a result has the sizes of the first trial except those of one sequence. Chunks that are
// taken for sequences have as many rows.
func (x *linear) isSequence(shape []int) bool {
	for axis, n := range shape {
		if n != 1 && n != x.rows && (axis >= len(x.shape) || n != x.shape[axis]) {
			return false
		}
	}
	return true
}

// lengths tries all kinds of numbers on the sizes of the worlds, and normal ones on other lengths. Nodes that return
// too few rows are tried on as many tokens as well: the worlds may only fill the first chunk.
func (x *linear) lengths(worlds []int) error {
	for _, n := range worlds {
		if err := x.kinds(world{x.run.Facts, n}, prove.Normal, prove.Small, prove.Zeros, prove.OneHot,
			prove.Repeated); err != nil {
			return err
		}
		x.outside = true
		if err := x.kinds(world{x.run.Facts, n}, prove.Normal); err != nil {
			return err
		}
		x.outside = false
	}
	if !x.c.slice.varying {
		return nil
	}
	list := slices.Clone(spanLengths)
	most, err := x.horizon()
	if err != nil {
		return err
	}
	if most > 0 {
		list = append(list, most, 2*most+1)
	}
	for i := 0; i < len(list); i++ {
		tokens := list[i]
		if err := x.kinds(world{x.tokens(tokens), 0}, prove.Normal); err != nil {
			return err
		}
		if to := &x.works; int64(x.rows) == tokens {
			most := int64(x.returned)
			switch {
			case x.failure == nil:
			case most == x.most && most > 0:
				to = &x.leaves
			default:
				to = &x.fails
				x.why = cmp.Or(x.why, x.failure)
			}
			*to = append(*to, tokens)
			if x.failure != nil && 0 < most && most < tokens && !slices.Contains(list, most) {
				list = append(list, most)
			}
		}
		if i == len(list)-1 && len(x.works) > 0 {
			list = append(list, x.borders(list)...)
		}
	}
	return nil
}

// blamed adds to an error a rest of the tokens below 0, which an unrolled loop takes for the tokens of a block.
func (x *linear) blamed(err error) error {
	if r := (*reason.Reason)(nil); !errors.As(err, &r) || r.Code != reason.Differs {
		return err
	}
	for v := range onnx.Upstream(func(*onnx.Value) bool { return false }, x.c.slice.known...) {
		t, known := x.w.facts.Known(v, x.w.n)
		more, also := x.run.Facts.Known(v, 2)
		n := v.Producer
		if known && also && n != nil && n.Is("Sub") && len(t.I) == 1 && t.I[0] < 0 && more.I[0] >= 0 {
			return reason.New(reason.Differs, n, "%w; there %q, a rest of the tokens, is %d", err, v.Name, t.I[0])
		}
	}
	return err
}

// tokens returns the facts for one sequence of a number of tokens.
func (x *linear) tokens(n int64) *infer.Facts {
	return infer.AnalyzeTokens(x.run.Model, [infer.Worlds]int64{n, n, n})
}

// borders returns the next numbers of tokens to try for nodes that work only for a range of them, near its ends.
func (x *linear) borders(tried []int64) (next []int64) {
	low, high, last := int64(0), slices.Min(x.works), slices.Max(x.works)
	for _, n := range x.fails {
		if n < high {
			low = max(low, n)
		}
	}
	switch {
	case low > 0 && high-low > 1:
		next = []int64{(low + high) / 2}
	case low > 0 && slices.Max(tried) == last && last < mostAtOnce/8: // nothing shows yet how many they compute
		next = []int64{2*last + 1}
	case low > 0 || x.most > 0:
		next = []int64{high + 1, last - 1, last + 1}
	}
	return slices.DeleteFunc(next, func(n int64) bool { return n < 1 || slices.Contains(tried, n) })
}

// computed returns the number of rows before the zeros if all results are the nodes' own for as many tokens, or 0. An
// unrolled loop computes the chunks of its sample: the other rows are the zeros that the result began with.
func (x *linear) computed(in, out []*reference.Tensor) (n int) {
	axis := slices.Index(out[0].Shape, x.rows)
	if !x.alone || axis < 0 {
		return 0
	}
	inner := match.Elements(out[0].Shape[axis+1:])
	for i, y := range out[0].F {
		if y != 0 {
			n = max(n, i/inner%x.rows+1)
		}
	}
	if n == 0 || n == x.rows || x.most > 0 && int64(n) != x.most {
		return 0
	}
	w := world{x.tokens(int64(n)), 0}
	shapes, err := x.shapes(x.c, w)
	if err != nil {
		return 0
	}
	var fewer []*reference.Tensor
	for i, t := range in {
		fewer = append(fewer, leading(t, shapes[i]))
	}
	want, err := x.original(x.c, w, fewer, true)
	if err != nil {
		return 0
	}
	for i, t := range want {
		const same = 1e-12 // of two runs of the same nodes in float64
		if difference, scale := prove.Distance(t.F, leading(out[i], t.Dims()).F); !(difference <= same*scale) {
			return 0
		}
	}
	return n
}

// leading returns the first places along each axis.
func leading(t *reference.Tensor, shape []int64) *reference.Tensor {
	list, inner := t.F, 1
	for axis, d := range slices.Backward(shape) {
		var kept []float64
		for i, y := range list {
			if i/inner%t.Shape[axis] < int(d) {
				kept = append(kept, y)
			}
		}
		list, inner = kept, inner*int(d)
	}
	return reference.NewFloats(t.DataType, ints(shape), list)
}

// horizon returns the greatest number in the nodes that may be a number of tokens, such as a chunk's, if the usual
// lengths do not show what is beyond it. It returns an error if trying as many takes too long.
func (x *linear) horizon() (most int64, err error) {
	const usual, atMost = 64, mostAtOnce / 4 // the usual lengths are more than twice as many
	var named, other int64
	var look func(n *onnx.Node)
	look = func(n *onnx.Node) {
		for i, v := range n.Inputs {
			switch m, in := x.lengthIn(n, i, v); {
			case m <= usual:
			case in && m > named:
				named = m
			case m > other && m <= atMost:
				other = m
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
	if named > atMost {
		return 0, reason.New(reason.Unchecked, nil, "cannot be checked: a node compares with %d, which may be a "+
			"number of tokens, and trying that many takes too long", named).With("tokens", named)
	}
	return max(named, other), nil
}

// lengthIn returns the greatest number in input i of a node that may count tokens, or 0. named reports whether the
// node compares other numbers with it.
func (x *linear) lengthIn(n *onnx.Node, i int, v *onnx.Value) (m int64, named bool) {
	f := x.run.Facts
	t, ok := f.Constant(v)
	if !ok || t.Len() > 16 {
		return square(v), false
	}
	data := slices.ContainsFunc(n.Inputs, func(v *onnx.Value) bool {
		_, known := f.Known(v, 0)
		return v != nil && !known && f.DataType(v).IsFloat()
	})
	switch n.OpType {
	case "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal", "Min", "Max", "Clip", "Mod":
		named, ok = !data, !data
	case "Add", "Sub", "Mul", "Div", "Range", "Where":
		ok = !data
	case "Pad", "Trilu":
		ok = i == 1
	case "Slice":
		axes, one := f.Constant(n.Input(3))
		if ok = (i == 1 || i == 2) && one && len(axes.I) == 1; ok {
			_, fixed := f.Dim(n.Input(0), int(axes.I[0]))
			ok = !fixed || n.Input(0).Constant() != nil
		}
	default:
		ok = false
	}
	if !ok {
		return 0, false
	}
	list := slices.Clone(t.F)
	for _, d := range t.I {
		list = append(list, float64(d))
	}
	for _, d := range list {
		if d = math.Abs(d); d < unlimited {
			m = max(m, int64(d))
		}
	}
	return m, named
}

// square returns the size of a constant table with a row and a column for each token of a chunk, or 0.
func square(v *onnx.Value) int64 {
	if v == nil || v.Constant() == nil {
		return 0
	}
	dims := v.Constant().Dims
	if n := len(dims); n > 1 && dims[n-1] == dims[n-2] {
		return dims[n-1]
	}
	return 0
}

// kinds tries kinds of numbers on the sizes of one world. Only world 0 of the model's facts must not fail.
func (x *linear) kinds(w world, list ...prove.Kind) error {
	shapes, err := x.shapes(x.c, w)
	if err != nil {
		return err
	}
	n := prove.Elements(shapes)
	if n > maxElements {
		return reason.New(reason.Unchecked, nil, "cannot be checked: its inputs have %d elements",
			n).With("elements", n)
	}
	if n > manyElements {
		list = list[:1]
	}
	x.alone = w.facts != x.run.Facts
	x.fixed, x.failure = w.n == 0 && !x.alone, nil
	x.rows = int(prove.Elements(shapes[:1]) / x.width)
	x.c.terms = int64(x.rows) * x.key
	passes := []prove.Pass{prove.Exactly, prove.Rounded}
	// States that grow lose more digits in float32 than the bound allows. Of many tokens, only the function is tried.
	if x.outside || x.alone && int64(x.rows) > slices.Max(spanLengths) {
		passes = passes[:1]
	}
	for _, pass := range passes {
		for _, kd := range list {
			inputs, err := x.inputs(x.c, kd, shapes, pass == prove.Exactly)
			if err != nil {
				return &prove.EvalError{Err: err}
			}
			for i, v := range x.c.Match.Inputs {
				x.gate(x.c.Match.Roles[v], inputs[i])
			}
			name := kd.Name
			if x.outside {
				name = "unbounded"
			}
			t := prove.Trial{Name: fmt.Sprintf("%s inputs of %s", name, english.Counted(x.rows, "token")),
				Kind: kd.Name, Inputs: inputs, Pass: pass}
			if err := x.proof.try(t, w); err != nil || x.failure != nil {
				return err
			}
		}
	}
	return nil
}

// unboundedEvery is the distance of numbers outside of their ranges.
const unboundedEvery = 7

// gate brings the elements of an input into the range of its role, except those that are to be outside.
func (x *linear) gate(what fused.Role, t *reference.Tensor) {
	last := min(1, 8/float64(max(x.rows, 1))) // the first tokens must count for the last ones
	for i, v := range t.F {
		outside := x.outside && i%unboundedEvery == 0
		sign := -1.0
		if outside {
			sign = 1
		}
		switch what {
		case fused.RoleLinearKeys:
			v /= math.Sqrt(float64(x.key))
			if outside {
				v *= 4
			}
		case fused.RoleDecay:
			v = math.Exp(sign * math.Abs(v) * last)
		case fused.RoleDecayLog:
			v = sign * math.Abs(v) * last
		case fused.RoleShare:
			if !outside {
				v = 1 / (1 + math.Exp(-v))
			} else if v *= 2; v > 0 {
				v++
			}
		default:
			if !x.outside {
				return
			}
			v *= 1000
		}
		t.F[i] = prove.RoundTo(t.DataType, v)
	}
}

// repairs describes the lengths that the op supports and the matched nodes do not; "" if there are none.
func (x *linear) repairs() string {
	if len(x.fails) == 0 {
		return ""
	}
	for _, list := range [][]int64{x.fails, x.leaves, x.works} {
		slices.Sort(list)
	}
	text, and := fmt.Sprintf("the nodes fail for %s tokens (%v)", enumerate(x.fails), short(x.why)), ", and not for "
	if len(x.leaves) > 0 {
		text += fmt.Sprintf(", and compute only the first %d of %s tokens", x.most, enumerate(x.leaves))
		and = ", and all of "
	}
	if len(x.works) > 0 {
		text += and + enumerate(x.works)
	}
	return text + "; the op supports every number"
}

// unrepaired returns an error if a value that stays, and whose size does not depend on the number of tokens, may be
// right only for those of the export: a state of the first blocks, for example. Nothing would fail there.
func (k *Checker) unrepaired(c *Site) error {
	x := &remains{k.run.Facts, k.run.Facts.Memo(tokensKey{}, func() any {
		return infer.AnalyzeTokens(k.run.Model, [infer.Worlds]int64{63, 65, 300})
	}).(*infer.Facts), k.Outputs, c}
	v, why := x.state()
	if v == nil {
		v, why = x.cut()
	}
	if v == nil {
		return nil
	}
	return reason.New(reason.Unchecked, v.Producer, "the op would support numbers of tokens for which the nodes fail, "+
		"but %q %s, and would be wrong for these without failing", v.Name, why)
}

type tokensKey struct{}

// remains searches for values that stay beside a repaired site.
type remains struct {
	facts, tokens *infer.Facts // tokens has other numbers of tokens in each world
	matched       map[*onnx.Value]bool
	c             *Site
}

// steady reports whether a value has the same size for the numbers of tokens that were tried, or, behind nodes that
// fail for these, a fixed size.
func (x *remains) steady(v *onnx.Value) bool {
	a, ok := x.tokens.Shape(v, 0)
	for w := 1; w < infer.Worlds && ok; w++ {
		b, known := x.tokens.Shape(v, w)
		if ok = known; known && !slices.Equal(a, b) {
			return false
		}
	}
	return ok || x.sized(v)
}

// sized reports whether the size of each axis is known, except for the axis of the sequences.
func (x *remains) sized(v *onnx.Value) bool {
	rank, ok := x.facts.Rank(v)
	for axis := range rank {
		_, known := x.facts.Dim(v, axis)
		ok = ok && (known || axis == 0 && slices.ContainsFunc(x.c.Scope.Graph.Inputs, func(in *onnx.Value) bool {
			n, _ := x.facts.Rank(in)
			return n > 0 && x.facts.SameDim(in, 0, v, 0)
		}))
	}
	return ok
}

// fixed reports whether a value has the same size for all numbers of tokens.
func (x *remains) fixed(v *onnx.Value) bool { return x.steady(v) && x.sized(v) }

// state returns a value of fixed size that is not computed from the op's results, but from values within the matched
// nodes or from several of the op's operands: a state of the same tokens.
func (x *remains) state() (*onnx.Value, string) {
	const within, result = 1 << 62, 1 << 63
	of := map[*onnx.Value]uint64{}
	for i, v := range x.c.Match.Inputs {
		if v.Constant() == nil {
			of[v] = 1 << min(i, 61)
		}
	}
	read := func(n *onnx.Node) (from uint64) {
		if !n.Is("Shape") && !n.Is("Size") {
			edit.EachRead(n, func(v *onnx.Value) { from |= of[v] })
		}
		return from
	}
	matched := map[*onnx.Node]bool{}
	for _, n := range x.c.slice.nodes {
		matched[n] = true
		if from := read(n); from != 0 {
			for _, v := range n.Outputs {
				of[v] = from | within
			}
		}
	}
	for _, v := range x.c.Match.Outputs {
		of[v] = result
	}
	live, byOp := map[*onnx.Value]bool{}, func(v *onnx.Value) bool { return of[v] == result }
	for v := range onnx.Upstream(byOp, slices.DeleteFunc(slices.Clone(x.c.Scope.Graph.Outputs), byOp)...) {
		live[v] = true
	}
	for _, n := range x.c.Scope.Graph.Nodes {
		from := read(n)
		if from == 0 {
			continue
		}
		for _, v := range n.Outputs {
			switch {
			case v == nil || byOp(v):
				continue
			case !matched[n]:
				of[v] |= from
			case v.IsOutput():
				from |= within
			default:
				continue
			}
			if operands := from &^ within; from&result == 0 && live[v] && x.fixed(v) &&
				(from&within != 0 || operands&(operands-1) != 0) {
				return v, "is computed from the same tokens by nodes that stay"
			}
		}
	}
	return nil, ""
}

// cut returns an output of the graph, or a value of one size before it, that has tokens from fixed places after the
// first one, or counts tokens by a constant.
func (x *remains) cut() (*onnx.Value, string) {
	g := x.c.Scope.Graph
	// Outputs of other matches are right if their ops compute them. Otherwise their nodes fail, as those of this site.
	stop := func(v *onnx.Value) bool { return !x.steady(v) || x.matched[v] }
	from := slices.DeleteFunc(slices.Clone(g.Outputs), stop)
	for v := range onnx.Upstream(stop, from...) {
		n := v.Producer
		if t, ok := x.facts.Constant(v); ok && v.IsOutput() && !t.IsFloat() {
			return v, "is an output that is constant"
		}
		if n == nil || !n.Is("Slice") && !n.Is("Gather") || !x.facts.DataType(v).IsFloat() || x.steady(n.Input(0)) {
			continue
		}
		last, fixed := int64(0), true
		for i, p := range n.Inputs[1:min(len(n.Inputs), 3)] {
			t, ok := x.facts.Constant(p)
			fixed = fixed && ok && len(t.I) > 0 && slices.Min(t.I) >= 0
			if fixed {
				last = slices.Max(t.I) - int64(i) // the end of a slice is not one of its places
			}
		}
		if fixed && last > 0 {
			return v, "is read from fixed places among the tokens"
		}
	}
	return nil, ""
}
