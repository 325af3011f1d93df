package chat

import (
	"fmt"
	"strings"
)

type tokenKind int

const (
	tokenName tokenKind = iota
	tokenString
	tokenInteger
	tokenFloat
	tokenOperator
	tokenEnd
)

type pieceKind int

const (
	pieceText pieceKind = iota
	pieceOutput
	pieceTag
)

// piece is a run of text, an output ({{ }}) or a tag ({% %}) of a template.
type piece struct {
	kind   pieceKind
	text   string
	tokens []token
	line   int
}

// lexer cuts a template into pieces as jinja2's Lexer.tokeniter does with trim_blocks and lstrip_blocks.
type lexer struct {
	source string
	pos    int
	line   int
	pieces []piece
}

func lex(source string) ([]piece, error) {
	source = strings.ReplaceAll(strings.ReplaceAll(source, "\r\n", "\n"), "\r", "\n")
	l := &lexer{source: strings.TrimSuffix(source, "\n"), line: 1}
	lineStart := true // what was consumed last ended with a newline
	for l.pos < len(l.source) {
		at := l.nextTag()
		if at < 0 {
			l.text(l.source[l.pos:])
			break
		}
		text, rest := l.source[l.pos:at], l.source[at:]
		kind := rest[1]
		sign := byte(0)
		if len(rest) > 2 && (rest[2] == '-' || rest[2] == '+') {
			sign = rest[2]
		}
		l.text(leading(text, sign, kind != '{', lineStart))
		l.skipTo(at)
		start := l.pos
		l.advance(2)
		if sign != 0 {
			l.advance(1)
		}
		var err error
		switch kind {
		case '#':
			err = l.comment()
		case '%':
			if n := rawBegin(l.source[l.pos:]); n > 0 {
				err = l.raw(n)
			} else {
				err = l.inside(pieceTag)
			}
		default:
			err = l.inside(pieceOutput)
		}
		if err != nil {
			return nil, err
		}
		lineStart = l.pos > start && l.source[l.pos-1] == '\n'
	}
	return l.pieces, nil
}

// nextTag is the position of the next {{, {% or {#, or -1.
func (l *lexer) nextTag() int {
	for i := l.pos; i+1 < len(l.source); i++ {
		if l.source[i] == '{' && strings.IndexByte("{%#", l.source[i+1]) >= 0 {
			return i
		}
	}
	return -1
}

// leading is the text before a tag, stripped as its sign and lstrip_blocks say.
func leading(text string, sign byte, block, lineStart bool) string {
	switch {
	case sign == '-':
		return strings.TrimRightFunc(text, isSpace)
	case sign != '+' && block:
		i := strings.LastIndexByte(text, '\n') + 1
		if (i > 0 || lineStart) && strings.TrimLeftFunc(text[i:], isSpace) == "" {
			return text[:i]
		}
	}
	return text
}

func (l *lexer) text(s string) {
	if s != "" {
		l.pieces = append(l.pieces, piece{kind: pieceText, text: s, line: l.line})
	}
}

func (l *lexer) advance(n int) { l.skipTo(l.pos + n) }

func (l *lexer) skipTo(pos int) {
	l.line += strings.Count(l.source[l.pos:pos], "\n")
	l.pos = pos
}

func (l *lexer) skipSpace() {
	rest := l.source[l.pos:]
	l.advance(len(rest) - len(strings.TrimLeftFunc(rest, isSpace)))
}

// end consumes close with its sign, and what is trimmed behind it; false if it is not here.
func (l *lexer) end(close string, newline bool) bool {
	rest := l.source[l.pos:]
	switch {
	case strings.HasPrefix(rest, "-"+close):
		l.advance(1 + len(close))
		l.skipSpace()
	case newline && strings.HasPrefix(rest, "+"+close):
		l.advance(1 + len(close))
	case strings.HasPrefix(rest, close):
		l.advance(len(close))
		if newline && strings.HasPrefix(l.source[l.pos:], "\n") {
			l.advance(1)
		}
	default:
		return false
	}
	return true
}

func (l *lexer) comment() error {
	line := l.line
	i := strings.Index(l.source[l.pos:], "#}")
	if i < 0 {
		return fmt.Errorf("line %d: a comment has no end: #} is missing", line)
	}
	if i > 0 && strings.IndexByte("-+", l.source[l.pos+i-1]) >= 0 {
		i--
	}
	l.advance(i)
	l.end("#}", true)
	return nil
}

// rawBegin is the length of "raw %}" with its space, where s, behind "{%", is that, or 0.
func rawBegin(s string) int { return keywordTag(s, "raw", false) }

func keywordTag(s, keyword string, plus bool) int {
	rest := strings.TrimLeftFunc(s, isSpace)
	if !strings.HasPrefix(rest, keyword) {
		return 0
	}
	rest = strings.TrimLeftFunc(rest[len(keyword):], isSpace)
	switch {
	case strings.HasPrefix(rest, "%}"):
		return len(s) - len(rest)
	case strings.HasPrefix(rest, "-%}"), plus && strings.HasPrefix(rest, "+%}"):
		return len(s) - len(rest)
	}
	return 0
}

// raw takes the text up to {% endraw %} as it is.
func (l *lexer) raw(n int) error {
	line := l.line
	l.advance(n)
	if l.source[l.pos] == '-' {
		l.end("%}", false)
	} else {
		l.advance(2) // the newline behind stays, as in jinja2
	}
	lineStart := l.source[l.pos-1] == '\n'
	for i := l.pos; ; i++ {
		j := strings.Index(l.source[min(i, len(l.source)):], "{%")
		if j < 0 {
			return fmt.Errorf("line %d: {%% raw %%} has no {%% endraw %%}", line)
		}
		i += j
		after := i + 2
		sign := byte(0)
		if after < len(l.source) && strings.IndexByte("-+", l.source[after]) >= 0 {
			sign = l.source[after]
			after++
		}
		if n := keywordTag(l.source[after:], "endraw", true); n > 0 {
			l.text(leading(l.source[l.pos:i], sign, true, lineStart))
			l.skipTo(after + n)
			l.end("%}", true)
			return nil
		}
	}
}
