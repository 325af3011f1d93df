package infer

import (
	"cmp"
	"strconv"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/infer/rules"
	"github.com/mojo-patch/mojo-patch/reference/infer/term"
)

// symbols contains the symbolic dimensions of a model and their numbers.
type symbols struct {
	list    []*symbol
	byName  map[string]*symbol
	fresh   map[freshKey]*symbol
	lead    [Worlds]int64 // for a batch size
	next    [Worlds]int64 // for the next other symbol
	gap     int64         // as in numbers
	hasLead bool
	// retired are the symbols that solve has defined in the current round: the current numbers predate them.
	retired []*symbol
	table   *term.Table // of the proof world
}

// freshKey identifies a length that depends on data: the k-th of a node.
type freshKey struct {
	node *onnx.Node
	k    int
}

// numbers are the first numbers of a symbol table: a batch size, and the others, which are primes from there on. Those
// of world 2 are separated by a gap that grows by gap each time, so few sums of two are equal.
type numbers struct {
	lead, next [Worlds]int64
	gap        int64
}

var (
	// usual has a world 2 in which the sum of two lengths is below 2048, so that tables of that many positions are
	// large enough.
	usual = numbers{[Worlds]int64{2, 5, 997}, [Worlds]int64{3, 11, 1009}, 2}
	// modest is for models with smaller tables: the sum of any two of three lengths is below 64.
	modest = numbers{[Worlds]int64{2, 5, 19}, [Worlds]int64{3, 11, 23}, 0}
)

// sized is for worlds of certain sizes: one sequence of these numbers of tokens, if the second symbol is the sequence
// length.
func sized(tokens [Worlds]int64) numbers {
	return numbers{[Worlds]int64{1, 1, 1}, tokens, 2}
}

func newSymbols() *symbols { return symbolsFrom(usual, term.NewTable()) }

func symbolsFrom(n numbers, t *term.Table) *symbols {
	return &symbols{byName: map[string]*symbol{}, fresh: map[freshKey]*symbol{}, lead: n.lead, next: n.next, gap: n.gap,
		table: t}
}

// add makes a free symbol. The first one at axis 0 is assumed to be a batch size and gets numbers below all others.
func (t *symbols) add(name string, axis int) *symbol {
	s := &symbol{name: name, order: len(t.list), size: t.table.Size()}
	if axis == 0 && !t.hasLead {
		t.hasLead = true
		s.start = t.lead
	} else {
		s.start = t.next
		for w := range t.next {
			t.next[w] = nextPrime(t.next[w])
		}
		if t.gap > 0 {
			t.next[2] = nextPrime(t.next[2] + t.gap*int64(s.order))
		}
	}
	t.list = append(t.list, s)
	return s
}

func nextPrime(n int64) int64 {
	for n++; ; n++ {
		prime := true
		for d := int64(2); d*d <= n && prime; d++ {
			prime = n%d != 0
		}
		if prime {
			return n
		}
	}
}

// named returns the symbol of a name, making it if needed.
func (t *symbols) named(name string, axis int) *symbol {
	if s := t.byName[name]; s != nil {
		return s
	}
	e := parseDim(name, func(n string) *symbol { return t.named(n, -1) })
	var s *symbol
	if e != nil && e.positive() {
		s = &symbol{name: name, order: len(t.list), size: t.table.Size(), def: e, declared: true}
		t.list = append(t.list, s)
	} else {
		s = t.add(name, axis)
	}
	t.byName[name] = s
	return s
}

// freshFor returns the symbol of a length that only the data determine.
func (t *symbols) freshFor(n *onnx.Node, k int) *symbol {
	key := freshKey{n, k}
	s := t.fresh[key]
	if s == nil {
		s = t.add("", -1)
		t.fresh[key] = s
	}
	return s
}

// at returns the number of a symbol in a world.
func (t *symbols) at(s *symbol, w int) int64 {
	if w == rules.Proof {
		return t.proven(s)
	}
	return s.at(w)
}

// proven returns the value of a symbol in the proof world: its definition, unless that is only a guess.
func (t *symbols) proven(s *symbol) int64 {
	if s.equal == nil && (s.def == nil || s.guessed) {
		return s.size
	}
	if s.resolving { // defined by itself
		return s.size
	}
	s.resolving = true
	defer func() { s.resolving = false }()
	if n, ok := t.term(cmp.Or(s.equal, s.def)); ok {
		return n
	}
	return s.size
}

// term returns the value of an expression in the proof world.
func (t *symbols) term(e *expr) (n int64, ok bool) {
	switch e.op {
	case 's':
		return t.proven(e.sym), true
	case 'k':
		return e.k[0], e.constant()
	}
	a, ok1 := t.term(e.a)
	b, ok2 := t.term(e.b)
	if !ok1 || !ok2 {
		return 0, false
	}
	switch e.op {
	case '+':
		return t.table.Add(a, b), true
	case '-':
		return t.table.Sub(a, b), true
	case '*':
		return t.table.Mul(a, b), true
	}
	return t.table.Floor(a, b), true
}

// shapeOf converts declared dimensions to one shape per world. unnamed makes the symbol of an unnamed dimension; if it
// is nil, the dimension stays unknown. same means that all shapes are one slice.
func (t *symbols) shapeOf(dims []onnx.Dim, unnamed func(axis int) *symbol) (shape [rules.AllWorlds][]int64, same bool) {
	fixed := make([]int64, len(dims))
	syms := make([]*symbol, len(dims))
	same = true
	for i, d := range dims {
		fixed[i] = -1
		switch {
		case d.Value >= 0:
			fixed[i] = d.Value
		case d.Param != "":
			if n, err := strconv.ParseInt(d.Param, 10, 64); err == nil && n >= 0 { // a number written as a name
				fixed[i] = n
			} else {
				syms[i], same = t.named(d.Param, i), false
			}
		case unnamed != nil:
			syms[i], same = unnamed(i), false
		}
	}
	for w := range shape {
		if same || w == 0 {
			shape[w] = fixed
		} else {
			shape[w] = append([]int64{}, fixed...)
		}
	}
	if !same {
		for w := range shape {
			for i, s := range syms {
				if s != nil {
					shape[w][i] = t.at(s, w)
				}
			}
		}
	}
	return shape, same
}
