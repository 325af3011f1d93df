package chat

import (
	"slices"
	"strconv"
	"strings"
)

// tag translates one tag.
func (t *translator) tag(p *parser) {
	name := p.name()
	switch name {
	case "if":
		t.push(p, name, true, t.simpleEnd(name))
		t.write("{% if " + p.tuple(false, false) + " %}")
	case "elif":
		t.inside(p, "if")
		t.write("{% elif " + p.tuple(false, false) + " %}")
	case "else":
		t.inside(p, "if", "for")
		t.open[len(t.open)-1].elses = false
		t.write("{% else %}")
	case "for":
		t.loop(p)
	case "break", "continue":
		if !t.inLoop() {
			p.fail("%s outside of a loop", name)
		}
		t.write("{% " + name + " %}")
	case "set":
		t.set(p)
	case "with":
		t.with(p)
	case "generation":
		t.push(p, name, false, t.simpleEnd("with"))
		t.write("{% with %}")
	case "filter":
		t.filterBlock(p)
	case "macro":
		t.macro(p)
	case "call":
		t.callBlock(p)
	default:
		end, ok := strings.CutPrefix(name, "end")
		if !ok {
			p.fail("the tag %q is not supported", name)
		}
		n := len(t.open)
		if n == 0 || t.open[n-1].name != end {
			p.fail("{%% %s %%} ends nothing", name)
		}
		t.open[n-1].close()
		t.open = t.open[:n-1]
	}
	p.end()
}

// inside fails unless the innermost open tag is one of names and may have an else.
func (t *translator) inside(p *parser, names ...string) {
	n := len(t.open)
	if n == 0 || !slices.Contains(names, t.open[n-1].name) || !t.open[n-1].elses {
		p.fail("{%% %s %%} without {%% %s %%}", p.tokens[0].text, names[0])
	}
}

func (t *translator) inLoop() bool {
	for i := len(t.open) - 1; i >= 0; i-- {
		switch t.open[i].name {
		case "for":
			return true
		case "macro", "call":
			return false
		}
	}
	return false
}

func (t *translator) loop(p *parser) {
	t.push(p, "for", true, t.simpleEnd("for"))
	target := t.target(p)
	if !p.skipName("in") {
		p.fail("found %q, expected %q", p.peek().text, "in")
	}
	start := p.pos
	items := p.tuple(false, false)
	s := "{% for " + target + " in " + p.call(start, "iterate", items)
	if p.skipName("if") {
		s += " if " + p.expression(true)
	}
	if p.skipName("recursive") {
		s += " recursive"
	}
	t.write(s + " %}")
}

// target reads the names that a loop assigns to.
func (t *translator) target(p *parser) string {
	bracketed := p.skipOp("(")
	names := []string{p.variable(p.name())}
	for p.skipOp(",") {
		if p.peek().kind != tokenName || p.isName("in") {
			break
		}
		names = append(names, p.variable(p.name()))
	}
	if bracketed {
		p.expectOp(")")
	}
	if slices.Contains(names, "loop") {
		p.fail("loop cannot be assigned to")
	}
	return strings.Join(names, ", ")
}

func (t *translator) set(p *parser) {
	start := p.pos
	bracketed := p.isOp("(")
	first := ""
	if !bracketed {
		first = p.variable(p.name())
	}
	names := []string{first}
	attribute := ""
	switch {
	case bracketed:
		names = strings.Split(t.target(p), ", ")
		first = names[0]
	case p.skipOp("."):
		attribute = p.name()
	case p.isOp(","):
		p.pos = start
		names = strings.Split(t.target(p), ", ")
	}
	if first == "loop" {
		p.fail("loop cannot be assigned to")
	}
	assign := func(e string) {
		switch {
		case attribute != "":
			t.write("{% set " + first + "." + attribute + " = " + p.call(start, "attributeOf", first, quote(attribute), e) + " %}")
		case len(names) > 1:
			t.write("{% set " + strings.Join(names, ", ") + " = " + p.call(start, "unpack", e, strconv.Itoa(len(names))) + " %}")
		default:
			t.write("{% set " + first + " = " + e + " %}")
		}
	}
	if p.skipOp("=") {
		assign(p.tuple(true, false))
		return
	}
	if len(names) > 1 {
		p.fail("found %q, expected %q", p.peek().text, "=")
	}
	t.captured(p, "set", func(e string) {
		for p.isOp("|") {
			e = p.filter(start, e)
		}
		p.end()
		assign(e)
	})
}

func (t *translator) with(p *parser) {
	t.push(p, "with", false, t.simpleEnd("with"))
	var assignments []string
	for p.peek().kind != tokenEnd {
		if len(assignments) > 0 {
			p.expectOp(",")
		}
		name := p.variable(p.name())
		p.expectOp("=")
		assignments = append(assignments, name+" = "+p.expression(true))
	}
	if len(assignments) > 1 {
		p.fail("{%% with %%} with several variables is not supported")
	}
	t.write("{% with " + strings.Join(assignments, ", ") + " %}")
}
