package chat

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// maxNesting is how deep expressions and tags may be nested.
const maxNesting = 60

// parser reads the tokens of one tag by jinja2's grammar (jinja2/parser.py) and gives, for each expression, MiniJinja
// source in which every operation whose meaning differs from Python's is a call of a function of functions.go. Each
// such call has the number of a site first, which says in errors where the operation stands.
type parser struct {
	tokens []token
	pos    int
	depth  int
	t      *translator
}

// A syntaxError ends the parsing of a template; it never leaves the package as a panic.
type syntaxError struct{ error }

func (p *parser) fail(format string, args ...any) {
	panic(syntaxError{fmt.Errorf("line %d: %s", p.peek().line, fmt.Sprintf(format, args...))})
}

func (p *parser) peek() token { return p.tokens[p.pos] }

func (p *parser) next() token {
	t := p.tokens[p.pos]
	if t.kind != tokenEnd {
		p.pos++
	}
	return t
}

func (p *parser) is(kind tokenKind, text string) bool {
	t := p.peek()
	return t.kind == kind && t.text == text
}

func (p *parser) isOp(op string) bool { return p.is(tokenOperator, op) }

func (p *parser) isName(name string) bool { return p.is(tokenName, name) }

func (p *parser) skipOp(op string) bool {
	ok := p.isOp(op)
	if ok {
		p.pos++
	}
	return ok
}

func (p *parser) skipName(name string) bool {
	ok := p.isName(name)
	if ok {
		p.pos++
	}
	return ok
}

func (p *parser) expectOp(op string) {
	if !p.skipOp(op) {
		p.fail("found %q, expected %q", p.peek().text, op)
	}
}

func (p *parser) name() string {
	if t := p.peek(); t.kind != tokenName {
		p.fail("found %q, expected a name", t.text)
	}
	return p.next().text
}

func (p *parser) end() {
	if p.peek().kind != tokenEnd {
		p.fail("found %q, expected the end of the tag", p.peek().text)
	}
}

// call is a call of one of our functions; start is the first token of what it stands for.
func (p *parser) call(start int, function string, args ...string) string {
	return functionPrefix + function + "(" + strings.Join(append([]string{p.t.site(p.tokens[start:max(p.pos, start+1)])}, args...), ", ") + ")"
}

// expression is jinja2's parse_expression; conditional says whether x if y else z may stand here unbracketed.
func (p *parser) expression(conditional bool) string {
	if p.depth++; p.depth > maxNesting {
		p.fail("the expression is nested more than %d deep", maxNesting)
	}
	defer func() { p.depth-- }()
	e := p.or()
	for conditional && p.skipName("if") {
		condition := p.or()
		if p.skipName("else") {
			e = "(" + e + " if " + condition + " else " + p.expression(true) + ")"
		} else {
			e = "(" + e + " if " + condition + ")"
		}
	}
	return e
}

func (p *parser) or() string { return p.logical("or", p.and) }

func (p *parser) and() string { return p.logical("and", p.not) }

func (p *parser) logical(word string, operand func() string) string {
	e := operand()
	if !p.isName(word) {
		return e
	}
	for p.skipName(word) {
		e += " " + word + " " + operand()
	}
	return "(" + e + ")"
}

func (p *parser) not() string {
	n := 0
	for p.skipName("not") {
		n++
	}
	e := p.compare()
	switch {
	case n == 0:
		return e
	case n%2 == 1:
		return "(not " + e + ")"
	}
	return "(not (not " + e + "))"
}

func (p *parser) compare() string {
	start := p.pos
	args := []string{p.sum()}
	for {
		op := p.peek()
		switch {
		case op.kind == tokenOperator && slices.Contains([]string{"==", "!=", "<", "<=", ">", ">="}, op.text),
			op.kind == tokenName && op.text == "in":
			p.pos++
		case op.kind == tokenName && op.text == "not" && p.tokens[p.pos+1].kind == tokenName && p.tokens[p.pos+1].text == "in":
			p.pos += 2
			op.text = "not in"
		default:
			if len(args) == 1 {
				return args[0]
			}
			return p.call(start, "compare", args...)
		}
		args = append(args, strconv.Quote(op.text), p.sum())
	}
}

// binary reads operands joined by operators of one level, as one call: nesting would grow with their number.
func (p *parser) binary(operand func() string, ops ...string) string {
	start := p.pos
	args := []string{operand()}
	for t := p.peek(); t.kind == tokenOperator && slices.Contains(ops, t.text); t = p.peek() {
		p.pos++
		args = append(args, strconv.Quote(t.text), operand())
	}
	if len(args) == 1 {
		return args[0]
	}
	return p.call(start, "arithmetic", args...)
}

func (p *parser) sum() string { return p.binary(p.concat, "+", "-") }

func (p *parser) concat() string { return p.binary(p.product, "~") }

func (p *parser) product() string { return p.binary(p.power, "*", "/", "//", "%") }

func (p *parser) power() string { return p.binary(func() string { return p.unary(true) }, "**") }

func (p *parser) unary(filters bool) string {
	if p.depth++; p.depth > maxNesting {
		p.fail("the expression is nested more than %d deep", maxNesting)
	}
	defer func() { p.depth-- }()
	start := p.pos
	var e string
	switch {
	case p.skipOp("-"):
		operand := p.unary(false)
		e = p.call(start, "negative", operand)
	case p.skipOp("+"):
		operand := p.unary(false)
		e = p.call(start, "positive", operand)
	default:
		e = p.primary()
	}
	e = p.postfix(start, e)
	if filters {
		e = p.filters(start, e)
	}
	return e
}

func (p *parser) primary() string {
	t := p.next()
	switch t.kind {
	case tokenName:
		switch t.text {
		case "true", "True":
			return "true"
		case "false", "False":
			return "false"
		case "none", "None":
			return "none"
		}
		return p.variable(t.text)
	case tokenString:
		s := t.text
		for p.peek().kind == tokenString { // 'a' 'b' is 'ab'
			s += p.next().text
		}
		return quote(s)
	case tokenInteger:
		return t.text
	case tokenFloat:
		return p.call(p.pos-1, "float", quote(t.text))
	case tokenOperator:
		switch t.text {
		case "(":
			e := p.tuple(true, true)
			p.expectOp(")")
			return "(" + e + ")"
		case "[":
			return "[" + strings.Join(p.list("]"), ", ") + "]"
		case "{":
			return p.dict()
		}
	}
	if t.kind != tokenEnd {
		p.pos--
	}
	p.fail("found %q, expected an expression", t.text)
	return ""
}

// variable is the use of a variable.
func (p *parser) variable(name string) string {
	switch name {
	case "self", "super", "varargs", "kwargs":
		p.fail("%q is not supported", name)
	}
	if strings.HasPrefix(name, functionPrefix) || jinjaWords[name] {
		p.fail("%q cannot be the name of a variable", name)
	}
	return name
}

// jinjaWords are no names of variables, in jinja2 (Python's words would fail there later) or in MiniJinja.
var jinjaWords = map[string]bool{"and": true, "or": true, "not": true, "in": true, "is": true, "if": true, "else": true,
	"elif": true}

// list reads expressions up to close.
func (p *parser) list(close string) []string {
	var items []string
	for !p.skipOp(close) {
		if len(items) > 0 {
			p.expectOp(",")
			if p.skipOp(close) {
				break
			}
		}
		items = append(items, p.expression(true))
	}
	return items
}

func (p *parser) dict() string {
	start := p.pos - 1
	var args []string
	for !p.skipOp("}") {
		if len(args) > 0 {
			p.expectOp(",")
			if p.skipOp("}") {
				break
			}
		}
		key := p.expression(true)
		p.expectOp(":")
		args = append(args, key, p.expression(true))
	}
	return p.call(start, "dict", args...)
}

// tuple is jinja2's parse_tuple: an expression, or several of them; bracketed allows none at all.
func (p *parser) tuple(conditional, bracketed bool) string {
	start := p.pos
	var items []string
	isTuple := false
	for {
		if len(items) > 0 {
			if !p.skipOp(",") {
				break
			}
			isTuple = true
		}
		if t := p.peek(); t.kind == tokenEnd || t.kind == tokenOperator && t.text == ")" {
			break
		}
		items = append(items, p.expression(conditional))
	}
	if len(items) == 0 && !bracketed {
		p.fail("found %q, expected an expression", p.peek().text)
	}
	if len(items) == 1 && !isTuple {
		return items[0]
	}
	return p.call(start, "tuple", items...)
}
