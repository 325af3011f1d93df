package chat

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
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

// token is one token of an expression; text of a string is its value.
type token struct {
	kind tokenKind
	text string
	line int
}

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

var closers = map[string]string{"(": ")", "[": "]", "{": "}"}

// operators, the longer ones first.
var operators = []string{"**", "//", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[", "]", "(", ")", "{", "}", ">",
	"<", "=", ".", ":", "|", ","}

// inside reads the tokens of {{ }} or {% %}.
func (l *lexer) inside(kind pieceKind) error {
	p := piece{kind: kind, line: l.line}
	close := map[pieceKind]string{pieceOutput: "}}", pieceTag: "%}"}[kind]
	var open []string // the brackets that are waited for
	for {
		l.skipSpace()
		if len(open) == 0 && l.end(close, kind == pieceTag) {
			p.tokens = append(p.tokens, token{tokenEnd, "end of the tag", l.line})
			l.pieces = append(l.pieces, p)
			return nil
		}
		if l.pos == len(l.source) {
			return fmt.Errorf("line %d: a tag has no end: %s is missing", p.line, close)
		}
		t, n, err := l.token()
		if err != nil {
			return fmt.Errorf("line %d: %w", l.line, err)
		}
		if t.kind == tokenOperator {
			if c := closers[t.text]; c != "" {
				open = append(open, c)
			} else if strings.Contains(")]}", t.text) {
				if len(open) == 0 || open[len(open)-1] != t.text {
					return fmt.Errorf("line %d: %q closes nothing", l.line, t.text)
				}
				open = open[:len(open)-1]
			}
		}
		p.tokens = append(p.tokens, t)
		l.advance(n)
	}
}

// token reads the token at the current position, and gives its length.
func (l *lexer) token() (token, int, error) {
	rest := l.source[l.pos:]
	t := token{line: l.line}
	c := rest[0]
	switch {
	case c == '\'' || c == '"':
		return l.str(rest, c)
	case c >= '0' && c <= '9':
		return l.number(rest)
	}
	n := 0
	for i, r := range rest {
		if !wordRune(r) {
			break
		}
		n = i + utf8.RuneLen(r)
	}
	if n > 0 {
		t.kind, t.text = tokenName, rest[:n]
		for _, r := range t.text {
			if r > unicode.MaxASCII {
				return t, 0, fmt.Errorf("the name %q has letters that are not ASCII: not supported", t.text)
			}
		}
		return t, n, nil
	}
	for _, op := range operators {
		if strings.HasPrefix(rest, op) {
			t.kind, t.text = tokenOperator, op
			return t, len(op), nil
		}
	}
	r, _ := utf8.DecodeRuneInString(rest)
	return t, 0, fmt.Errorf("unexpected character %q", r)
}

func wordRune(r rune) bool { return r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) }

func (l *lexer) number(rest string) (token, int, error) {
	digits := func(i int) int {
		for i < len(rest) && (rest[i] >= '0' && rest[i] <= '9' || rest[i] == '_' && i+1 < len(rest) && rest[i+1] >= '0' &&
			rest[i+1] <= '9') {
			i++
		}
		return i
	}
	n, kind := digits(0), tokenInteger
	if len(rest) > 1 && rest[0] == '0' && strings.IndexByte("xXoObB", rest[1]) >= 0 {
		n = 2
		for n < len(rest) && wordRune(rune(rest[n])) {
			n++
		}
	} else {
		// A number behind a dot is an index (x.0.1), never a float.
		afterDot := l.pos > 0 && l.source[l.pos-1] == '.'
		if m := n + 1; !afterDot && n < len(rest) && rest[n] == '.' && digits(m) > m {
			n, kind = digits(m), tokenFloat
		}
		if !afterDot && n < len(rest) && (rest[n] == 'e' || rest[n] == 'E') {
			m := n + 1
			if m < len(rest) && (rest[m] == '+' || rest[m] == '-') {
				m++
			}
			if digits(m) > m {
				n, kind = digits(m), tokenFloat
			}
		}
	}
	t := token{kind, rest[:n], l.line}
	if kind == tokenFloat {
		v, err := strconv.ParseFloat(strings.ReplaceAll(t.text, "_", ""), 64)
		if err != nil && !math.IsInf(v, 0) {
			return t, 0, fmt.Errorf("number %s: %w", t.text, err)
		}
		t.text = strconv.FormatFloat(v, 'g', -1, 64)
		return t, n, nil
	}
	if n > 1 && rest[0] == '0' && strings.Trim(rest[:n], "0_") != "" && rest[1] >= '0' && rest[1] <= '9' {
		return t, 0, fmt.Errorf("number %s: leading zeros", t.text)
	}
	v, err := strconv.ParseInt(t.text, 0, 64)
	if err != nil {
		if v, err = strconv.ParseInt(strings.ReplaceAll(t.text, "_", ""), 10, 64); err != nil {
			return t, 0, fmt.Errorf("number %s: %w", t.text, err)
		}
	}
	t.text = strconv.FormatInt(v, 10)
	return t, n, nil
}

func (l *lexer) str(rest string, quote byte) (token, int, error) {
	for i := 1; i < len(rest); i++ {
		switch rest[i] {
		case '\\':
			i++
		case quote:
			s, err := unescape(rest[1:i])
			return token{tokenString, s, l.line}, i + 1, err
		}
	}
	return token{}, 0, fmt.Errorf("a string has no end: %c is missing", quote)
}

var escapes = map[byte]string{'\n': "", '\\': `\`, '\'': "'", '"': `"`, 'a': "\a", 'b': "\b", 'f': "\f", 'n': "\n", 'r': "\r",
	't': "\t", 'v': "\v"}

// unescape decodes the escapes of a Python string; unknown ones stay as they are.
func unescape(s string) (string, error) {
	if !strings.Contains(s, `\`) {
		return s, nil
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			b.WriteByte(s[i])
			continue
		}
		i++
		c := s[i]
		if plain, ok := escapes[c]; ok {
			b.WriteString(plain)
			continue
		}
		if c >= '0' && c <= '7' {
			n := i
			for n < len(s) && n < i+3 && s[n] >= '0' && s[n] <= '7' {
				n++
			}
			v, _ := strconv.ParseUint(s[i:n], 8, 32)
			b.WriteRune(rune(v))
			i = n - 1
			continue
		}
		n := map[byte]int{'x': 2, 'u': 4, 'U': 8}[c]
		if n == 0 {
			if c == 'N' {
				return "", fmt.Errorf(`string with \N: not supported`)
			}
			b.WriteByte('\\')
			b.WriteByte(c)
			continue
		}
		if i+n >= len(s) {
			return "", fmt.Errorf(`string with \%c: %d hexadecimal digits must follow`, c, n)
		}
		v, err := strconv.ParseUint(s[i+1:i+1+n], 16, 32)
		if err != nil || !utf8.ValidRune(rune(v)) {
			return "", fmt.Errorf(`string with \%c%s: no character`, c, s[i+1:i+1+n])
		}
		b.WriteRune(rune(v))
		i += n
	}
	return b.String(), nil
}

// isSpace is Python's str.isspace.
func isSpace(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f }
