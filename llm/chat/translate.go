package chat

import (
	"errors"
	"fmt"
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

// translate returns the source for MiniJinja, and the sites.
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
