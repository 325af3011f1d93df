package dims

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
)

// search looks for the readings of one dimension, while the others keep their sizes.
type search struct {
	*analysis
	dim       int
	size      int64                                  // the size to try
	in        map[int64]map[string]*reference.Tensor // inputs by size
	seen      map[string]bool
	left      int                  // number of trials left
	relations map[string]*evidence // by the axes of outputs that grow
	failures  map[int64]*failure   // by size
	// stuck is the outcome of the trial that got furthest.
	stuck outcome
	// linked are the chains that were found. There are no others once the model runs.
	linked []option
	runs   bool
	// progress is the number of trials that were left when the model last ran further than before.
	progress int
	// dead counts the searches for chains that found none.
	dead map[*onnx.Node]int
	// unknown are constants that failed nodes need longer, if it is not known how they continue.
	unknown map[*onnx.Node]*constant
}

// A decision is a choice of an option that made the model run further.
type decision struct {
	before *reading
	failed outcome
	taken  option
}

// mostTrials and mostReadings bound the search for readings of a dimension, and mostStuck the trials in which the model
// runs no further than before.
const (
	mostTrials   = 100000
	mostReadings = 24
	mostStuck    = 8000
)

func (a *analysis) search(dim int) *search {
	s := &search{analysis: a, dim: dim, in: map[int64]map[string]*reference.Tensor{}, seen: map[string]bool{},
		left: mostTrials, progress: mostTrials, relations: map[string]*evidence{}, failures: map[int64]*failure{},
		dead: map[*onnx.Node]int{}, unknown: map[*onnx.Node]*constant{}}
	there := map[int64]bool{}
	for _, d := range a.dims {
		there[d.Size] = true
	}
	for _, c := range a.constants {
		for _, n := range c.tensor.Shape {
			there[int64(n)] = true
		}
		if c.hasSizes() {
			for _, n := range c.tensor.I {
				there[n] = true
			}
		}
	}
	for _, times := range []int64{3, 5, 7, 4, 6} { // a multiple that is not also a number in the model
		if s.size = times * a.dims[dim].Size; !there[s.size] {
			break
		}
	}
	return s
}

// try runs the model at a size of the dimension.
func (s *search) try(r *reading, n int64) outcome {
	in, ok := s.in[n]
	if !ok {
		var err error
		if in, err = s.prefix(n); err != nil {
			return outcome{err: err}
		}
		s.in[n] = in
	}
	s.left--
	changes := s.changes(r)
	if x := s.failures[n].find(changes); x != nil {
		return *x
	}
	x := s.run(r, s.sizes(s.dim, n), in)
	if x.node != nil && !errors.Is(x.err, errSteps) {
		s.failures[n] = s.failures[n].with(changes, &x)
	}
	return x
}

// A failure is a trial that failed, in a tree by the changed numbers of the nodes up to the failed one. A reading that
// changes the same numbers up to there fails in the same way, whatever it changes after that.
type failure struct {
	outcome *outcome
	next    map[change]*failure
}

// A change is a number that a reading changes.
type change struct {
	slot
	place, constant int
	by              rat
}

// changes lists the numbers that a reading changes, in the order of the nodes.
func (s *search) changes(r *reading) (list []change) {
	for at, f := range r.factors {
		if f[s.dim].num != 0 {
			list = append(list, change{at, s.place[at.node], s.index[at.node], f[s.dim]})
		}
	}
	slices.SortFunc(list, func(a, b change) int {
		return cmp.Or(a.place-b.place, a.constant-b.constant, a.input-b.input, a.part-b.part)
	})
	return list
}

// find returns the failure of a reading with these changes, or nil if it is not known.
func (f *failure) find(list []change) *outcome {
	for _, c := range list {
		if f == nil || f.outcome != nil && f.outcome.at < c.place {
			break
		}
		f = f.next[c]
	}
	if f == nil {
		return nil
	}
	return f.outcome
}

// with adds the outcome of a reading with these changes.
func (f *failure) with(list []change, x *outcome) *failure {
	if f == nil {
		f = &failure{next: map[change]*failure{}}
	}
	if len(list) > 0 && list[0].place <= x.at {
		f.next[list[0]] = f.next[list[0]].with(list[1:], x)
	} else {
		f.outcome = x
	}
	return f
}

// prefix returns inputs at a size. Smaller ones are prefixes of larger ones.
func (s *search) prefix(n int64) (map[string]*reference.Tensor, error) {
	longest := max(s.size, 3*s.dims[s.dim].Size)
	in, err := s.inputs(1, s.sizes(s.dim, max(longest, n)))
	if err != nil {
		return nil, err
	}
	d, out := s.dims[s.dim], maps.Clone(in)
	for _, p := range d.places {
		t, rows := out[p.input.Name], d.rows(in)
		out[p.input.Name] = p.within(t, rows, p.part(t, rows, 0, int(n)))
	}
	return out, nil
}

// readings yields the readings with which the model runs at another size, the most likely first.
func (s *search) readings(yield func(*reading, error) bool) {
	first, decisions, err := s.complete(&reading{})
	s.runs = err == nil
	if !yield(first, err) || err != nil {
		return
	}
	keys := map[string]bool{s.key(first): true}
	for i := 0; i < len(decisions) && len(keys) < mostReadings; i++ {
		d := decisions[i]
		others, err := s.further(d.before, d.failed, false)
		if err != nil {
			yield(nil, err)
			return
		}
		for _, o := range others {
			if maps.Equal(o.set, d.taken.set) || o.whole() < d.taken.whole() {
				continue
			}
			r, more, err := s.complete(s.taking(d.before, o))
			if errors.Is(err, errSteps) || s.left <= 0 {
				yield(nil, errors.Join(err, errTrials))
				return
			}
			if err != nil || keys[s.key(r)] {
				continue
			}
			keys[s.key(r)] = true
			if !yield(r, nil) {
				return
			}
			decisions = append(decisions, more...)
		}
	}
}

// errTrials ends a search with too many trials.
var errTrials = errors.New("too many constants may be its size")

// whole returns 1 if all factors are integers, and 0 otherwise.
func (o option) whole() int {
	for _, f := range o.set {
		if f.den != 1 {
			return 0
		}
	}
	return 1
}

func (s *search) key(r *reading) string {
	var parts []string
	for x, f := range r.factors {
		parts = append(parts, fmt.Sprintf("%p %d %d %v", x.node, x.input, x.part, f))
	}
	slices.Sort(parts)
	return fmt.Sprint(parts)
}

// complete extends a reading until the model runs.
func (s *search) complete(r *reading) (*reading, []decision, error) {
	x := s.try(r, s.size)
	if x.err == nil {
		return r, nil, nil
	}
	if errors.Is(x.err, errSteps) || x.node == nil {
		return nil, nil, x.err
	}
	if s.stuck.err == nil || x.at > s.stuck.at {
		s.progress = s.left
	}
	if s.stuck.err == nil || x.at >= s.stuck.at {
		s.stuck = x
	}
	if s.left <= 0 || !s.runs && s.progress-s.left > mostStuck {
		return nil, nil, errTrials
	}
	key := s.key(r)
	if s.seen[key] {
		return nil, nil, x.err
	}
	s.seen[key] = true
	var tried []option
	for _, quick := range []bool{true, false} {
		options, err := s.further(r, x, quick)
		if err != nil {
			return nil, nil, err
		}
		for _, o := range options {
			if slices.ContainsFunc(tried, func(t option) bool { return maps.Equal(t.set, o.set) }) {
				continue
			}
			tried = append(tried, o)
			made, decisions, err := s.complete(s.taking(r, o))
			if errors.Is(err, errSteps) || errors.Is(err, errTrials) {
				return nil, nil, err
			}
			if err == nil {
				return made, append([]decision{{r, x, o}}, decisions...), nil
			}
		}
	}
	return nil, nil, x.err
}

// taking returns a reading that also takes an option.
func (s *search) taking(r *reading, o option) *reading {
	made := r.with(s.dim, len(s.dims), o.set)
	made.chained = made.chained || o.chained
	return made
}

// further lists the options with which the model runs beyond the failed node, the most likely first. If some of them
// work at any size, it leaves out options that divide only at some sizes. In a quick search, it stops at the first
// option that works at any size.
func (s *search) further(r *reading, failed outcome, quick bool) ([]option, error) {
	var kept, anywhere []option
	for _, o := range s.candidates(r, failed) {
		if len(anywhere) > 0 && o.whole() == 0 || s.cannotMend(o, failed) {
			continue
		}
		with := s.taking(r, o)
		x := s.try(with, s.size)
		if errors.Is(x.err, errSteps) {
			return nil, x.err
		}
		if s.left <= 0 {
			return nil, errTrials
		}
		if x.err != nil && x.at <= failed.at {
			continue
		}
		kept = append(kept, o)
		if y := s.try(with, s.dims[s.dim].Size+1); y.err == nil || y.at > failed.at {
			if anywhere = append(anywhere, o); quick {
				break
			}
		}
	}
	if len(anywhere) > 0 {
		return anywhere, nil
	}
	if len(kept) > 0 {
		return kept, nil
	}
	for _, o := range append(s.traced(r, failed), s.linked...) {
		if x := s.try(s.taking(r, o), s.size); errors.Is(x.err, errSteps) {
			return nil, x.err
		} else if x.err == nil || x.at > failed.at || x.node == failed.node && x.apart < failed.apart {
			kept = append(kept, o)
		}
	}
	if len(kept) > 0 || s.runs {
		return kept, nil
	}
	found, err := s.chains(r, failed)
	s.linked = append(s.linked, found...)
	return found, err
}

// cannotMend reports whether an option changes one element of the shape of a Reshape that ran before a node failed: its
// input stays, so it would fail there.
func (s *search) cannotMend(o option, failed outcome) bool {
	for at := range o.set {
		if len(o.set) > 1 || at.part < 0 || at.input != 1 || !at.node.Is("Reshape") || at.node.Graph != s.model.Graph ||
			s.place[at.node] >= failed.at {
			return false
		}
	}
	return true
}

// candidates lists options of constants that a node depends on and that are not in a reading: first those that the
// reading takes for another constant of the kind, as in other layers, then the most likely and the nearest.
func (s *search) candidates(r *reading, failed outcome) []option {
	n := failed.node
	type found struct {
		option
		distance int
		another  int // 0 if another constant of the form has it, 1 of the kind, 3 if it is of a dimension of rows, or 2
		known    int // 1 for a multiple, unless the model infers the number, or 0
	}
	type part struct {
		kind string
		part int
		by   rat
	}
	others := map[part]bool{}
	for at, f := range r.factors {
		c := s.constantOf(at)
		others[part{c.kind, at.part, f[s.dim]}], others[part{c.form, at.part, f[s.dim]}] = true, true
	}
	add := func(list []found, c *constant, o option, distance int) []found {
		another, known := 0, 0
		for at, f := range o.set {
			if o.how > 0 && !c.infers(at, f) {
				known = 1
			}
			switch {
			case others[part{c.form, at.part, f}]:
			case others[part{c.kind, at.part, f}]:
				another = max(another, 1)
			case s.rows[at] && !c.infers(at, f):
				another = 3
			default:
				another = max(another, 2)
			}
		}
		return append(list, found{o, distance, another, known})
	}
	var list []found
	size := s.dims[s.dim].Size
	for distance, near := range s.behind(n) {
		for _, x := range near {
			for _, c := range s.byInput[x] {
				for _, o := range c.options(size) {
					taken := false
					for at := range o.set {
						f := r.factors[at]
						taken = taken || f != nil && f[s.dim].num != 0
					}
					if !taken {
						list = add(list, c, o, distance)
					}
				}
				if x == n {
					for _, o := range s.demanded(c, r, failed) {
						list = add(list, c, o, distance)
					}
				}
			}
		}
	}
	slices.SortStableFunc(list, func(a, b found) int {
		return cmp.Or(cmp.Compare(a.another, b.another), cmp.Compare(a.how, b.how), cmp.Compare(a.known, b.known),
			cmp.Compare(a.distance, b.distance))
	})
	options := make([]option, len(list))
	for i, x := range list {
		options[i] = x.option
	}
	return options
}

// behind lists nodes by their distance before a node.
func (s *search) behind(n *onnx.Node) (layers [][]*onnx.Node) {
	seen := map[*onnx.Node]bool{n: true}
	count := 0
	for layer := []*onnx.Node{n}; len(layer) > 0 && count < 400; {
		layers = append(layers, layer)
		count += len(layer)
		var next []*onnx.Node
		add := func(x *onnx.Node) {
			if x != nil && !seen[x] {
				seen[x] = true
				next = append(next, x)
			}
		}
		for _, x := range layer {
			for _, v := range x.Reads() {
				add(v.Producer)
			}
			if x.Graph != s.model.Graph { // operands of the node that holds this graph
				for _, y := range s.model.Graph.Nodes {
					if s.place[y] == s.place[x] {
						add(y)
					}
				}
			}
		}
		layer = next
	}
	return layers
}

// demanded lists the factors of one element, and of two, with which the shape of a failed Reshape has the right number
// of elements.
func (s *search) demanded(c *constant, r *reading, failed outcome) (list []option) {
	if failed.elements == 0 || c.input != 1 || !c.hasSizes() {
		return nil
	}
	size, grown := s.dims[s.dim].Size, s.size-s.dims[s.dim].Size
	sizes, now, all := s.sizes(s.dim, s.size), make([]int64, c.tensor.Len()), int64(1)
	at := func(k int) slot { return slot{c.node, c.input, k} }
	for k := range now {
		n, err := s.number(r, c, at(k), sizes)
		if err != nil || n <= 0 {
			return nil
		}
		now[k], all = n, all*n
	}
	for k, e := range c.tensor.I {
		if others := all / now[k]; failed.elements%others == 0 {
			f := ratio(failed.elements/others-e, grown)
			if _, usual := factors(e, size)[f]; !usual && f.num > 0 {
				list = append(list, option{set: map[slot]rat{at(k): f}, how: 4})
			}
		}
		for j := range k { // as queries and keys in the shape of scores
			for f, how := range factors(e, size) {
				for g, other := range factors(c.tensor.I[j], size) {
					if e == now[k] && c.tensor.I[j] == now[j] && f.den == 1 && g.den == 1 &&
						all/(now[k]*now[j])*(e+f.num*grown)*(now[j]+g.num*grown) == failed.elements {
						list = append(list, option{set: map[slot]rat{at(k): f, at(j): g}, how: max(how, other)})
					}
				}
			}
		}
	}
	return list
}

// slice cuts a tensor along an axis.
func slice(t *reference.Tensor, axis, from, to int) *reference.Tensor {
	shape := slices.Clone(t.Shape)
	shape[axis] = to - from
	inner := 1
	for _, d := range t.Shape[axis+1:] {
		inner *= d
	}
	block := t.Shape[axis] * inner
	out := &reference.Tensor{DataType: t.DataType, Shape: shape}
	for start := 0; start < t.Len(); start += block {
		a, b := start+from*inner, start+to*inner
		if t.I != nil {
			out.I = append(out.I, t.I[a:b]...)
		} else {
			out.F = append(out.F, t.F[a:b]...)
		}
	}
	return out
}

// join concatenates tensors along an axis.
func join(list []*reference.Tensor, axis int) *reference.Tensor {
	t := list[0]
	shape := slices.Clone(t.Shape)
	shape[axis] = 0
	inner, outer := 1, 1
	for i, d := range t.Shape {
		if i < axis {
			outer *= d
		} else if i > axis {
			inner *= d
		}
	}
	out := &reference.Tensor{DataType: t.DataType, Shape: shape}
	for _, x := range list {
		shape[axis] += x.Shape[axis]
	}
	for i := range outer {
		for _, x := range list {
			block := x.Shape[axis] * inner
			if t.I != nil {
				out.I = append(out.I, x.I[i*block:(i+1)*block]...)
			} else {
				out.F = append(out.F, x.F[i*block:(i+1)*block]...)
			}
		}
	}
	return out
}
