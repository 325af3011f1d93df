package notation

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Pos is a position in a pattern file.
type Pos struct {
	File      string
	Line, Col int
}

// String returns file:line:column.
func (p Pos) String() string { return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Col) }

// Error is a mistake in a pattern file.
type Error struct {
	Pos Pos
	Msg string
}

// Error returns the position and the message.
func (e *Error) Error() string { return e.Pos.String() + ": " + e.Msg }

type tokenKind int

const (
	tokEOF tokenKind = iota
	tokName
	tokNumber
	tokString
	tokCapture // $name, text without the $
	tokPunct
)

type token struct {
	kind tokenKind
	text string
	pos  Pos
}

func (t token) String() string {
	switch t.kind {
	case tokEOF:
		return "end of file"
	case tokCapture:
		return "$" + t.text
	}
	return fmt.Sprintf("%q", t.text)
}

// puncts are tried in order, so longer ones come first.
var puncts = []string{"->", "=>", "==", "!=", "<=", ">=", "&&", "||",
	"(", ")", "{", "}", "[", "]", "<", ">", "=", ",", ";", "|", "?", "_", "!", "+", "-", "*", "/", "%", "."}

func lex(file, src string) ([]token, error) {
	var toks []token
	line, col := 1, 1
	for len(src) > 0 {
		pos := Pos{file, line, col}
		n := 0
		kind := tokEOF
		switch c := src[0]; {
		case c == '\n':
			line, col = line+1, 1
			src = src[1:]
			continue
		case c == ' ' || c == '\t' || c == '\r':
			n = 1
		case c == '#':
			if n = strings.IndexByte(src, '\n'); n < 0 {
				n = len(src)
			}
		case c == '"':
			end := strings.IndexAny(src[1:], "\"\n")
			if end < 0 || src[1+end] == '\n' {
				return nil, &Error{pos, "unterminated string"}
			}
			n, kind = end+2, tokString
		case c == '$':
			if n = 1 + nameLen(src[1:]); n == 1 {
				return nil, &Error{pos, "expected a name after $"}
			}
			kind = tokCapture
		case nameLen(src) > 0 && !(c == '_' && nameLen(src) == 1):
			n, kind = nameLen(src), tokName
		case c >= '0' && c <= '9':
			n, kind = numberLen(src), tokNumber
		default:
			for _, p := range puncts {
				if strings.HasPrefix(src, p) {
					n, kind = len(p), tokPunct
					break
				}
			}
			if n == 0 {
				r, _ := utf8.DecodeRuneInString(src)
				return nil, &Error{pos, fmt.Sprintf("unexpected character %q", r)}
			}
		}
		text := src[:n]
		switch kind {
		case tokString:
			text = text[1 : n-1]
		case tokCapture:
			text = text[1:]
		}
		if kind != tokEOF {
			toks = append(toks, token{kind, text, pos})
		}
		src = src[n:]
		col += n
	}
	return append(toks, token{tokEOF, "", Pos{file, line, col}}), nil
}

// nameLen returns the length of the name at the start of s. Dots join the parts of a domain: com.microsoft.QuickGelu.
func nameLen(s string) int {
	for i, r := range s {
		letter := r == '_' || unicode.IsLetter(r)
		digit := unicode.IsDigit(r) || r == '.' && i+1 < len(s) && (s[i+1] == '_' || unicode.IsLetter(rune(s[i+1])))
		if !letter && (i == 0 || !digit) {
			return i
		}
	}
	return len(s)
}

func numberLen(s string) int {
	i := 0
	for i < len(s) {
		c := s[i]
		exp := i > 0 && (s[i-1] == 'e' || s[i-1] == 'E') && (c == '-' || c == '+')
		if !(c >= '0' && c <= '9' || c == '.' || c == 'e' || c == 'E' || exp) {
			break
		}
		i++
	}
	return i
}
