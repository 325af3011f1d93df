package chat

import (
	"slices"
	"strings"
)

// A template is parsed to functions. An expression's function returns its value; a tag's executes the tag.
type node func(r *renderer) any

// parser parses a template by jinja2's grammar (jinja2/parser.py).
type parser struct {
	tokens []token
	pos    int   // of the next token
	depth  int   // nesting of tags and expressions
	loops  int   // number of enclosing loops
	tag    token // the name of the innermost tag
}

const maxNesting = 100 // of tags and expressions

func (p *parser) peek() token { return p.tokens[p.pos] }

func (p *parser) next() token {
	t := p.peek()
	p.pos = min(p.pos+1, len(p.tokens)-1)
	return t
}

// is reports whether one of texts follows, as a name or symbol. skip consumes it, and expect requires it.
func (p *parser) is(texts ...string) bool {
	t := p.peek()
	return (t.kind == tokenName || t.kind == tokenSymbol) && slices.Contains(texts, t.text)
}

func (p *parser) skip(text string) bool {
	found := p.is(text)
	if found {
		p.pos++
	}
	return found
}

func (p *parser) expect(text string) {
	require(p.skip(text), "found %q, expected %q", p.peek().text, text)
}

func (p *parser) name() string {
	require(p.peek().kind == tokenName, "found %q, expected a name", p.peek().text)
	return p.next().text
}

// nest increases the nesting depth until the returned function is called.
func (p *parser) nest() func() {
	p.depth++
	require(p.depth <= maxNesting, "expressions and tags are nested more than %d deep", maxNesting)
	return func() { p.depth-- }
}

// operation is the node that applies f to the values of operands. It counts as work, and errors of f name the line.
func (p *parser) operation(f func(r *renderer, v []any) any, operands ...node) node {
	line := p.tokens[p.pos-1].line
	return func(r *renderer) any {
		r.charge(itemBytes * len(operands)) // kept by a list
		v := make([]any, len(operands))
		for i, operand := range operands {
			v[i] = operand(r)
		}
		r.line = line
		r.spend(v...)
		result := f(r, v)
		r.spend(result)
		return result
	}
}

func constant(v any) node { return func(*renderer) any { return v } }

func choice(test, then, otherwise node) node {
	return func(r *renderer) any {
		if truth(test(r)) {
			return then(r)
		}
		return otherwise(r)
	}
}

func (p *parser) expression() node {
	defer p.nest()()
	v := p.binary(0)
	if !p.skip("if") {
		return v
	}
	test, otherwise := p.binary(0), constant(undefined{"the value of an if without else"})
	if p.skip("else") {
		otherwise = p.expression()
	}
	return choice(test, v, otherwise)
}

// levels are the operators by increasing precedence; not comes before comparisons.
var levels = [][]string{{"or"}, {"and"}, {"==", "!=", "<", "<=", ">", ">=", "in", "not in"}, {"+", "-"}, {"~"},
	{"*", "/", "//", "%"}}

const comparisons = 2

func (p *parser) binary(level int) node {
	if level == len(levels) {
		return p.unary(true)
	}
	if level == comparisons && p.skip("not") {
		defer p.nest()()
		v := p.binary(level)
		return func(r *renderer) any { return !truth(v(r)) }
	}
	v := p.binary(level + 1)
	for n := 0; p.is(levels[level]...); n++ {
		require(n == 0 || level != comparisons, "a chained comparison is not supported")
		op, a, b := p.next().text, v, p.binary(level+1)
		if level < comparisons {
			v = func(r *renderer) any {
				if x := a(r); truth(x) == (op == "or") {
					return x
				}
				return b(r)
			}
		} else {
			v = p.operation(func(r *renderer, v []any) any { return r.operate(v[0], op, v[1]) }, a, b)
		}
	}
	return v
}

// unary parses a unary expression. filtered allows filters and tests after it.
func (p *parser) unary(filtered bool) (v node) {
	defer p.nest()()
	if p.skip("-") {
		v = p.operation(func(r *renderer, v []any) any { return r.operate(v[0], "*", int64(-1)) }, p.unary(false))
	} else {
		v = p.primary()
	}
	for p.is(".", "[", "(") {
		switch p.next().text {
		case ".":
			name := p.name()
			require(!strings.HasPrefix(name, "__"), "attribute %q is not supported", name)
			v = p.operation(func(r *renderer, v []any) any { return r.item(v[0], name, true) }, v)
		case "[":
			v = p.subscript(v)
		case "(":
			v = p.operation(func(r *renderer, v []any) any { return want[function](v[0])(r, v[1:]) },
				append([]node{v}, p.arguments()...)...)
		}
	}
	for filtered && p.is("|", "is") {
		if p.next().text == "|" {
			v = p.filter(v, "filter", filters)
			continue
		}
		negated := p.skip("not")
		test := p.filter(v, "test", tests)
		v = func(r *renderer) any { return truth(test(r)) != negated }
	}
	return v
}

// filter reads a filter or test of v from table.
func (p *parser) filter(v node, what string, table map[string]builtin) node {
	name, operands := p.name(), []node{v}
	f := find(what, table, name)
	if p.skip("(") {
		operands = append(operands, p.arguments()...)
	}
	return p.operation(func(r *renderer, v []any) any { return f.call(r, name, v[0], v[1:]) }, operands...)
}

var constants = map[string]any{"true": true, "True": true, "false": false, "False": false, "none": nil, "None": nil}

func (p *parser) primary() node {
	switch t := p.next(); {
	case t.kind == tokenName:
		if v, ok := constants[t.text]; ok {
			return constant(v)
		}
		return p.operation(func(r *renderer, _ []any) any { return r.lookup(t.text) })
	case t.kind == tokenString:
		return constant(t.text)
	case t.kind == tokenNumber:
		return constant(parseNumber(t.text))
	case t.text == "(":
		items, comma := p.list(")", p.expression)
		require(len(items) > 0, "an empty tuple is not supported")
		if !comma {
			return items[0]
		}
		return p.operation(func(_ *renderer, v []any) any { return &sequence{"tuple", v} }, items...)
	case t.text == "[":
		items, _ := p.list("]", p.expression)
		return p.operation(func(_ *renderer, v []any) any { return newList(v...) }, items...)
	case t.text == "{":
		var values []node
		keys, _ := p.list("}", func() node {
			key := p.expression()
			p.expect(":")
			values = append(values, p.expression())
			return key
		})
		return p.operation(func(r *renderer, v []any) any {
			r.charge(dictBytes * len(keys))
			return newDict(v[:len(keys)], v[len(keys):])
		},
			append(keys, values...)...)
	default:
		panic(failure("found %q, expected an expression", t.text))
	}
}

func (p *parser) list(close string, item func() node) (items []node, comma bool) {
	for !p.skip(close) {
		items = append(items, item())
		if !p.skip(",") {
			p.expect(close)
			break
		}
		comma = true
	}
	return items, comma
}

func (p *parser) subscript(v node) node {
	operands := []node{v}
	for colon := true; colon && len(operands) < 4; colon = p.skip(":") {
		bound := constant(nil)
		if !p.is(":") && (len(operands) == 1 || !p.is("]")) {
			bound = p.expression()
		}
		operands = append(operands, bound)
	}
	p.expect("]")
	if len(operands) == 2 {
		return p.operation(func(r *renderer, v []any) any { return r.item(v[0], v[1], false) }, operands...)
	}
	return p.operation(func(r *renderer, v []any) any { return r.slice(v[0], append(v[1:], nil)[:3]) }, operands...)
}

type named struct {
	name  string
	value any
}

func (p *parser) arguments() []node {
	args, _ := p.list(")", func() node {
		t := p.peek()
		if t.kind != tokenName || p.tokens[p.pos+1].text != "=" {
			return p.expression()
		}
		p.pos += 2
		value := p.expression()
		return func(r *renderer) any { return named{t.text, value(r)} }
	})
	return args
}
