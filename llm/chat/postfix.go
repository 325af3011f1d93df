package chat

import (
	"strings"
)

// loopAttributes are those that loop has in MiniJinja as in jinja2.
var loopAttributes = map[string]bool{"index": true, "index0": true, "revindex": true, "revindex0": true, "first": true,
	"last": true, "length": true, "previtem": true, "nextitem": true, "cycle": true}

// postfix reads attributes, subscripts and calls behind e, which begins at start.
func (p *parser) postfix(start int, e string) string {
	for i := 0; ; i++ {
		if i > maxNesting {
			p.fail("the expression is longer than %d attributes, subscripts and calls", maxNesting)
		}
		before := p.pos
		switch {
		case p.skipOp("."):
			if t := p.peek(); t.kind == tokenInteger {
				p.pos++
				e = p.call(start, "item", e, t.text)
				continue
			}
			name := p.name()
			if strings.HasPrefix(name, "__") || before == start+1 && p.tokens[start].text == "loop" && !loopAttributes[name] {
				p.fail("attribute %q is not supported", name)
			}
			if p.isOp("(") {
				p.pos++
				args := p.arguments()
				e = p.call(start, "method", append([]string{e, quote(name)}, args...)...)
				continue
			}
			e = p.call(start, "attribute", e, quote(name))
		case p.skipOp("["):
			e = p.subscript(start, e)
		case p.isOp("("):
			e = p.called(start, before, e)
		default:
			return e
		}
	}
}

// called is the call of e.
func (p *parser) called(start, before int, e string) string {
	byName := before == start+1 && p.tokens[start].kind == tokenName
	p.pos++
	if byName && p.tokens[start].text == "loop" {
		return "loop(" + strings.Join(p.arguments(), ", ") + ")" // a recursive one
	}
	if byName && p.tokens[start].text == "dict" {
		var args []string
		for !p.skipOp(")") { // in order, which MiniJinja's named arguments have not
			if len(args) > 0 {
				p.expectOp(",")
			}
			key := p.name()
			p.expectOp("=")
			args = append(args, quote(key), p.expression(true))
		}
		return p.call(start, "dict", args...)
	}
	args := p.arguments()
	return p.call(start, "call", append([]string{e}, args...)...)
}

// subscript is what stands between [ and ].
func (p *parser) subscript(start int, e string) string {
	bounds := []string{"none", "none", "none"}
	n, isSlice := 0, false
	for !p.isOp("]") {
		if p.skipOp(":") {
			isSlice = true
			if n++; n > 2 {
				p.fail("a slice has at most two colons")
			}
			continue
		}
		if bounds[n] != "none" {
			p.fail("found %q, expected %q", p.peek().text, "]")
		}
		bounds[n] = "(" + p.expression(true) + ")"
		if p.isOp(",") {
			p.fail("a tuple as a subscript is not supported")
		}
	}
	p.expectOp("]")
	if isSlice {
		return p.call(start, "slice", append([]string{e}, bounds...)...)
	}
	if bounds[0] == "none" {
		p.fail("a subscript is empty")
	}
	return p.call(start, "item", e, bounds[0])
}

// arguments are those of a call, behind the opening bracket.
func (p *parser) arguments() []string {
	var args []string
	named := false
	for !p.skipOp(")") {
		if len(args) > 0 {
			p.expectOp(",")
			if p.skipOp(")") {
				break
			}
		}
		if star := p.peek().text; p.isOp("*") || p.isOp("**") {
			start := p.pos
			p.pos++
			function := map[string]string{"*": "iterate", "**": "mapping"}[star]
			e := p.expression(true)
			args, named = append(args, star+p.call(start, function, e)), named || star == "**"
			continue
		}
		if t := p.peek(); t.kind == tokenName && p.tokens[p.pos+1].kind == tokenOperator && p.tokens[p.pos+1].text == "=" {
			p.pos += 2
			named = true
			args = append(args, t.text+"="+p.expression(true))
			continue
		}
		if named {
			p.fail("an argument without a name behind one with a name")
		}
		args = append(args, p.expression(true))
	}
	return args
}

// filters reads filters, tests and calls behind e.
func (p *parser) filters(start int, e string) string {
	for i := 0; ; i++ {
		if i > maxNesting {
			p.fail("the expression has more than %d filters and tests", maxNesting)
		}
		switch {
		case p.isOp("|"):
			e = p.filter(start, e)
		case p.isName("is"):
			e = p.test(start, e)
		case p.isOp("("):
			p.pos++
			e = p.call(start, "call", append([]string{e}, p.arguments()...)...)
		default:
			return e
		}
	}
}

// filter reads one filter, from | on.
func (p *parser) filter(start int, e string) string {
	p.expectOp("|")
	name := p.dotted()
	if filters[name] == nil {
		p.fail("there is no filter %q", name)
	}
	var args []string
	if p.skipOp("(") {
		args = p.arguments()
	}
	return p.call(start, "filter", append([]string{e, quote(name)}, args...)...)
}

func (p *parser) dotted() string {
	name := p.name()
	for p.skipOp(".") {
		name += "." + p.name()
	}
	return name
}

// test reads one test, from "is" on.
func (p *parser) test(start int, e string) string {
	p.next()
	negated := p.skipName("not")
	name := p.dotted()
	if tests[name] == nil {
		p.fail("there is no test %q", name)
	}
	var args []string
	switch t := p.peek(); {
	case p.skipOp("("):
		args = p.arguments()
	case t.kind == tokenName && t.text != "else" && t.text != "or" && t.text != "and",
		t.kind == tokenString, t.kind == tokenInteger, t.kind == tokenFloat,
		t.kind == tokenOperator && (t.text == "[" || t.text == "{"):
		if t.kind == tokenName && t.text == "is" {
			p.fail("tests cannot be chained with is")
		}
		from := p.pos
		args = []string{p.postfix(from, p.primary())}
	}
	e = p.call(start, "test", append([]string{e, quote(name)}, args...)...)
	if negated {
		return "(not " + e + ")"
	}
	return e
}

// quote returns s as a string of MiniJinja.
func quote(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\r", `\r`).Replace(s) + `"`
}
