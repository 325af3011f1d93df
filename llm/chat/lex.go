package chat

import (
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// token is the text between two tags, or a token of a tag.
type token struct {
	kind int
	text string // the value of a string
	line int
}

const (
	tokenText   = iota
	tokenSymbol // an operator, a bracket, {{, }}, {% or %}
	tokenName   // a name or "not in"
	tokenString
	tokenNumber
	tokenEnd // of the template
)

// space matches Python's \s.
const space = `[\t-\r\x1c-\x20\x{85}\p{Z}]`

// The ends of tags as in jinja2/lexer.py, with trim_blocks.
var (
	opening = regexp.MustCompile(`\{([{%#])([-+]?)`)
	closing = map[string]*regexp.Regexp{
		"{{": regexp.MustCompile(`^(?:-\}\}` + space + `*|\}\})`),
		"{%": regexp.MustCompile(`^(?:\+%\}|-%\}` + space + `*|%\}\n?)`),
		"{#": regexp.MustCompile(`^(?s:.*?)(?:\+#\}|-#\}` + space + `*|#\}\n?)`),
	}
	tagToken = regexp.MustCompile(`^(?:(//|[=!<>]=|[-+/*%~[\](){}<>=.:|,])|(not` + space + `+in\b|[A-Za-z_]\w*)` +
		`|((?s)'[^'\\]*(?:\\.[^'\\]*)*'|"[^"\\]*(?:\\.[^"\\]*)*")|((?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?))`)
	escapeSequence = regexp.MustCompile(`\\(?:u[\da-fA-F]{4}|(?s:.))`)
)

// lexer splits a template into tokens like jinja2's lexer with trim_blocks and lstrip_blocks.
type lexer struct {
	rest   string // of the template
	line   int
	tokens []token
}

// take consumes s and adds a token of this kind with the value text. It skips empty text, except for strings.
func (l *lexer) take(s string, kind int, text string) {
	if text != "" || kind == tokenString {
		l.tokens = append(l.tokens, token{kind, text, l.line})
	}
	l.line += strings.Count(s, "\n")
	l.rest = l.rest[len(s):]
}

func (l *lexer) lex() {
	require(utf8.ValidString(l.rest), "not UTF-8")
	for lineStart := true; ; {
		m := opening.FindStringIndex(l.rest)
		if m == nil {
			l.take(l.rest, tokenText, l.rest)
			l.tokens = append(l.tokens, token{tokenEnd, "the end of the template", l.line})
			return
		}
		text, tag, sign := l.rest[:m[0]], l.rest[m[0]:m[0]+2], l.rest[m[0]+2:m[1]]
		kept, line := strings.TrimRightFunc(text, isSpace), strings.LastIndexByte(text, '\n')+1
		if alone := (line > 0 || lineStart) && len(kept) <= line; sign == "" && tag != "{{" && alone {
			kept = text[:line]
		} else if sign != "-" {
			kept = text
		}
		l.take(text, tokenText, kept)
		l.take(tag+sign, tokenSymbol, strings.TrimPrefix(tag, "{#"))
		end := l.tag(tag)
		lineStart = strings.HasSuffix(end, "\n")
	}
}

// tag reads the tokens of a tag after its opening, and its end, which it returns.
func (l *lexer) tag(open string) (end string) {
	for depth := 0; ; { // of brackets
		l.take(l.rest[:len(l.rest)-len(strings.TrimLeftFunc(l.rest, isSpace))], tokenText, "")
		if end = closing[open].FindString(l.rest); end != "" && depth <= 0 {
			l.take(end, tokenSymbol, map[string]string{"{{": "}}", "{%": "%}"}[open])
			return end
		}
		m := tagToken.FindStringSubmatch(l.rest)
		require(l.rest != "" && open != "{#", "a tag or comment has no end")
		require(m != nil, "unexpected %q, or a string that has no end", []rune(l.rest[:min(len(l.rest), 4)])[0])
		switch {
		case m[1] != "":
			depth += strings.Count("([{", m[1]) - strings.Count(")]}", m[1])
			l.take(m[0], tokenSymbol, m[0])
		case m[2] != "":
			l.take(m[0], tokenName, strings.Join(strings.Fields(m[0]), " "))
		case m[3] != "":
			l.take(m[0], tokenString, unescape(m[0][1:len(m[0])-1]))
		default:
			l.take(m[0], tokenNumber, m[0])
		}
	}
}

func unescape(s string) string {
	return escapeSequence.ReplaceAllStringFunc(s, func(e string) string {
		r, _, _, err := strconv.UnquoteChar(e, e[1])
		require(err == nil, "a string with %s is not supported", e)
		return string(r)
	})
}

// isSpace is Python's str.isspace.
func isSpace(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f }
