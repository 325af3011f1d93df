package infer

import (
	"strconv"
	"strings"

	"github.com/mojo-patch/mojo-patch/reference/infer/term"
)

// symbol is a dimension with a chosen number: a named dimension, an unnamed one of an input, or a length that depends
// on data.
type symbol struct {
	name  string
	order int           // of two symbols, the earlier one is kept
	start [Worlds]int64 // the number of a free symbol
	def   *expr         // the expression that the symbol must equal; nil while it is free

	declared bool // its name is an expression

	size      term.Number // in the proof world, while it is not known to equal anything
	guessed   bool        // def comes from broadcasting ops, for which one of both may be 1
	equal     *expr       // its proven value besides def
	resolving bool
	settled   term.Number // its value in the proof world after a pass
}

func (s *symbol) at(w int) int64 {
	if s.def != nil {
		return s.def.at(w)
	}
	return s.start[w]
}

func (s *symbol) free() bool { return s.def == nil }

// expr is a dimension computed from symbols.
type expr struct {
	op   byte // 's' symbol, 'k' number, or an operator: + - * /
	sym  *symbol
	k    [Worlds]int64
	a, b *expr
}

func ofSymbol(s *symbol) *expr { return &expr{op: 's', sym: s} }

func ofNumber(n int64) *expr { return &expr{op: 'k', k: [Worlds]int64{n, n, n}} }

func (e *expr) at(w int) int64 {
	switch e.op {
	case 's':
		return e.sym.at(w)
	case 'k':
		return e.k[w]
	}
	a, b := e.a.at(w), e.b.at(w)
	switch e.op {
	case '+':
		return a + b
	case '-':
		return a - b
	case '*':
		return a * b
	}
	if b == 0 {
		return 0
	}
	return a / b
}

// uses reports whether the number of e depends on s.
func (e *expr) uses(s *symbol) bool {
	switch e.op {
	case 's':
		return e.sym == s || e.sym.def != nil && e.sym.def.uses(s)
	case 'k':
		return false
	}
	return e.a.uses(s) || e.b.uses(s)
}

// constant reports whether e is the same number in all worlds.
func (e *expr) constant() bool {
	for w := range Worlds {
		if e.at(w) != e.at(0) {
			return false
		}
	}
	return true
}

func (e *expr) positive() bool {
	for w := range Worlds {
		if n := e.at(w); n < 1 || n > 1<<40 {
			return false
		}
	}
	return true
}

// parseDim parses the name of a dimension as an expression ("past + seq", "2*s0", "s0//2"), as exporters write derived
// dimensions. It returns nil for a plain name. A minus sign is an operator only between blanks, because names contain
// it too.
func parseDim(text string, symbolOf func(name string) *symbol) *expr {
	p := &dimParser{tokens: strings.Fields(spaced(text)), symbolOf: symbolOf}
	if len(p.tokens) < 2 || !p.check() {
		return nil
	}
	e := p.sum()
	if p.bad || p.pos != len(p.tokens) {
		return nil
	}
	return e
}

func spaced(text string) string {
	return strings.NewReplacer("//", " / ", "/", " / ", "+", " + ", "*", " * ", "(", " ( ", ")", " ) ").Replace(text)
}

type dimParser struct {
	tokens   []string
	pos      int
	bad      bool
	symbolOf func(string) *symbol
}

// check checks the order of operands and operators before symbols are made for the names.
func (p *dimParser) check() bool {
	depth, operand := 0, false
	for _, t := range p.tokens {
		switch t {
		case "(":
			if operand {
				return false
			}
			depth++
		case ")":
			if !operand || depth == 0 {
				return false
			}
			depth--
		case "+", "-", "*", "/":
			if !operand {
				return false
			}
			operand = false
		default:
			if operand || strings.ContainsAny(t, ",<>=%?!") {
				return false
			}
			operand = true
		}
	}
	return operand && depth == 0
}

func (p *dimParser) peek() string {
	if p.pos < len(p.tokens) {
		return p.tokens[p.pos]
	}
	return ""
}

func (p *dimParser) sum() *expr {
	e := p.term()
	for t := p.peek(); t == "+" || t == "-"; t = p.peek() {
		p.pos++
		e = &expr{op: t[0], a: e, b: p.term()}
	}
	return e
}

func (p *dimParser) term() *expr {
	e := p.factor()
	for t := p.peek(); t == "*" || t == "/"; t = p.peek() {
		p.pos++
		e = &expr{op: t[0], a: e, b: p.factor()}
	}
	return e
}

func (p *dimParser) factor() *expr {
	t := p.peek()
	p.pos++
	if t == "(" {
		e := p.sum()
		p.bad = p.bad || p.peek() != ")"
		p.pos++
		return e
	}
	if n, err := strconv.ParseInt(t, 10, 64); err == nil {
		return ofNumber(n)
	}
	return ofSymbol(p.symbolOf(t))
}
