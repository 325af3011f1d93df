package chat

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// functionPrefix begins the names of our functions in the translated source.
const functionPrefix = "_mj_"

// translator writes a template of jinja2 as one of MiniJinja.
//
// MiniJinja runs the tags: loops, conditions, macros, scopes. What it does otherwise than jinja2, or cannot do, is
// translated: white space around tags is cut here; expressions become calls of our functions (see parser), since
// MiniJinja for Go has no methods of strings, no order in dicts, another order of values and no error for many
// operands of wrong types; {% generation %} is a scope.
type translator struct {
	out   strings.Builder
	sites []string // where each operation stands, for errors
	open  []openTag
	temps int
	rest  []piece // those behind the one that is translated
}

// openTag is a tag that waits for its end.
type openTag struct {
	name  string
	line  int
	close func() // writes what stands for the end tag
	elses bool   // it may have an else or elif
}

// translate gives the source for MiniJinja, and the sites.
func translate(source string) (text string, sites []string, err error) {
	defer func() {
		if r := recover(); r != nil {
			e, ok := r.(syntaxError)
			if !ok {
				panic(r)
			}
			err = e.error
		}
	}()
	pieces, err := lex(source)
	if err != nil {
		return "", nil, err
	}
	t := &translator{}
	for i, piece := range pieces {
		t.rest = pieces[i+1:]
		switch piece.kind {
		case pieceText:
			t.write("{{ " + functionPrefix + "text(" + quote(piece.text) + ") }}")
		case pieceOutput:
			p := &parser{tokens: piece.tokens, t: t}
			e := p.tuple(true, false)
			p.end()
			t.print(p.tokens, e)
		case pieceTag:
			t.tag(&parser{tokens: piece.tokens, t: t})
		}
	}
	if n := len(t.open); n > 0 {
		return "", nil, fmt.Errorf("line %d: {%% %s %%} has no end", t.open[n-1].line, t.open[n-1].name)
	}
	if t.out.Len() > maxSource {
		return "", nil, errors.New("the template is too long")
	}
	return t.out.String(), t.sites, nil
}

// maxSource is the greatest length of a template in MiniJinja's terms, in bytes.
const maxSource = 16 << 20

func (t *translator) write(s string) { t.out.WriteString(s) }

func (t *translator) print(tokens []token, e string) {
	t.write("{{ " + functionPrefix + "print(" + t.site(tokens) + ", " + e + ") }}")
}

// site keeps where tokens stand, and gives its number.
func (t *translator) site(tokens []token) string {
	var b strings.Builder
	for i, tok := range tokens {
		text := tok.text
		switch tok.kind {
		case tokenString:
			text = strconv.Quote(text)
		case tokenEnd:
			continue
		}
		if i > 0 && tok.kind != tokenOperator && tokens[i-1].kind != tokenOperator {
			b.WriteByte(' ')
		}
		if b.WriteString(text); b.Len() > 80 {
			break
		}
	}
	text := b.String()
	if len(text) > 80 {
		text = strings.ToValidUTF8(text[:80], "") + "…"
	}
	t.sites = append(t.sites, fmt.Sprintf("line %d: %s", tokens[0].line, text))
	return strconv.Itoa(len(t.sites) - 1)
}

func (t *translator) push(p *parser, name string, elses bool, close func()) {
	if len(t.open) >= maxNesting {
		p.fail("tags are nested more than %d deep", maxNesting)
	}
	t.open = append(t.open, openTag{name, p.tokens[0].line, close, elses})
}

func (t *translator) simpleEnd(name string) func() {
	return func() { t.write("{% end" + name + " %}") }
}

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

// macro defines a macro under a name of ours, and makes it the value of the variable: MiniJinja looks for variables
// first, so that one of the context would hide it.
func (t *translator) macro(p *parser) {
	name := p.variable(p.name())
	t.temps++
	temp := functionPrefix + "macro" + strconv.Itoa(t.temps)
	t.push(p, "macro", false, func() { t.write("{% endmacro %}{% set " + name + " = " + temp + " %}") })
	t.write("{% macro " + temp + t.parameters(p, t.usesCaller()) + " %}")
}

// usesCaller says whether the body of the macro that begins here has the name caller.
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
