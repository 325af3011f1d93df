package chat

import (
	"slices"
	"strconv"
	"strings"
)

// captured begins a block whose text, as an expression, then gets at its end. then reads the rest of the tag.
func (t *translator) captured(p *parser, name string, then func(e string)) {
	t.temps++
	temp := functionPrefix + "text" + strconv.Itoa(t.temps)
	rest := p.pos
	t.push(p, name, false, func() {
		t.write("{% endwith %}{% endset %}")
		p.pos = rest
		then(temp)
	})
	// Sets inside do not reach what is outside, as in jinja2.
	t.write("{% set " + temp + " %}{% with %}")
	p.pos = len(p.tokens) - 1
}

func (t *translator) filterBlock(p *parser) {
	start := p.pos
	// The name stands behind the tag's, without |.
	p.tokens = slices.Insert(slices.Clone(p.tokens), start, token{tokenOperator, "|", p.peek().line})
	t.captured(p, "filter", func(e string) {
		for p.isOp("|") {
			e = p.filter(start, e)
		}
		p.end()
		t.print(p.tokens, p.call(start, "filtered", e))
	})
}

// macro defines a macro under a name of ours, and makes it the value of the variable: MiniJinja looks for variables
// first, so that one of the context would hide it.
func (t *translator) macro(p *parser) {
	name := p.variable(p.name())
	t.temps++
	temp := functionPrefix + "macro" + strconv.Itoa(t.temps)
	t.push(p, "macro", false, func() { t.write("{% endmacro %}{% set " + name + " = " + temp + " %}") })
	t.write("{% macro " + temp + t.parameters(p, t.usesCaller()) + " %}")
}

// usesCaller reports whether the body of the macro that begins here has the name caller.
func (t *translator) usesCaller() bool {
	depth := 1
	for _, piece := range t.rest {
		if piece.kind == pieceTag {
			switch piece.tokens[0].text {
			case "macro":
				depth++
			case "endmacro":
				if depth--; depth == 0 {
					return false
				}
			}
		}
		for _, tok := range piece.tokens {
			if tok.kind == tokenName && tok.text == "caller" {
				return true
			}
		}
	}
	return false
}

// parameters are those of a macro or call block; a macro that uses caller has it as one more.
func (t *translator) parameters(p *parser, caller bool) string {
	p.expectOp("(")
	var params []string
	for !p.skipOp(")") {
		if len(params) > 0 {
			p.expectOp(",")
			if p.skipOp(")") {
				break
			}
		}
		param := p.variable(p.name())
		if p.skipOp("=") {
			param += "=" + p.expression(true)
		}
		params = append(params, param)
	}
	if caller {
		params = append(params, "caller="+functionPrefix+"undefined")
	}
	return "(" + strings.Join(params, ", ") + ")"
}

// callBlock makes a macro of the block and gives it to the macro that is called: in MiniJinja's own call blocks the
// variables of the block are those of that macro.
func (t *translator) callBlock(p *parser) {
	t.temps++
	temp := functionPrefix + "caller" + strconv.Itoa(t.temps)
	params := "()"
	if p.isOp("(") {
		params = t.parameters(p, false)
	}
	start := p.pos
	macro := p.variable(p.name())
	p.expectOp("(")
	args := append([]string{macro}, append(p.arguments(), "caller="+temp)...)
	call := p.call(start, "call", args...)
	t.push(p, "call", false, func() {
		t.write("{% endmacro %}")
		p.pos = len(p.tokens) - 1
		t.print(p.tokens[start:], call)
	})
	t.write("{% macro " + temp + params + " %}")
}
