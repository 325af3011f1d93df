package chat

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// token is one token of an expression; text of a string is its value.
type token struct {
	kind tokenKind
	text string
	line int
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
