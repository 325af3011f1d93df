package chat

import (
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// token is a piece of a template: text between tags, or a token of a tag, whose text is its value.
type token struct {
	kind       tokenKind
	text       string
	start, end int // in the source
}

type tokenKind int

const (
	tokenText  tokenKind = iota
	tokenBegin           // {{ or {%
	tokenClose           // }} or %}
	tokenName
	tokenString
	tokenNumber
	tokenOperator
	tokenEnd // of the template
)

// space is what \s is in Python.
const space = `[\t-\r\x1c-\x20\x{85}\p{Z}]`

// The regular expressions are those of jinja2/lexer.py, with trim_blocks.
var (
	opening     = regexp.MustCompile(`\{([{%#])([-+]?)`)
	rawBegin    = regexp.MustCompile(`^` + space + `*raw` + space + `*(?:-%\}` + space + `*|%\})`)
	rawEnd      = regexp.MustCompile(`\{%([-+]?)` + space + `*endraw` + space + `*(?:\+%\}|-%\}` + space + `*|%\}\n?)`)
	commentEnd  = regexp.MustCompile(`\+#\}|-#\}` + space + `*|#\}\n?`)
	tagEnd      = regexp.MustCompile(`^(?:\+%\}|-%\}` + space + `*|%\}\n?)`)
	outputEnd   = regexp.MustCompile(`^(?:-\}\}` + space + `*|\}\})`)
	floatNumber = regexp.MustCompile(`^(?i)(?:\d+_)*\d+(?:(?:\.(?:\d+_)*\d+)?e[-+]?(?:\d+_)*\d+|\.(?:\d+_)*\d+)`)
	tagToken    = regexp.MustCompile(
		`^(?:((?i)0b(?:_?[01])+|0o(?:_?[0-7])+|0x(?:_?[\da-f])+|[1-9](?:_?\d)*|0(?:_?0)*)` +
			`|([\w\p{L}\p{N}]+)|((?s)'[^'\\]*(?:\\.[^'\\]*)*'|"[^"\\]*(?:\\.[^"\\]*)*")` +
			`|(\*\*|//|==|!=|>=|<=|[-+/*%~[\](){}><=.:|,]))`)
	closing = map[string]string{"(": ")", "[": "]", "{": "}"}
)

// lex cuts a template into tokens as jinja2's lexer does with trim_blocks and lstrip_blocks.
func (r *runner) lex() {
	lineStart := true // what was read last ended with a newline
	for pos := 0; pos < len(r.source); {
		m := opening.FindStringSubmatchIndex(r.source[pos:])
		if m == nil {
			r.addText(r.source[pos:], pos)
			break
		}
		at, inside := pos+m[0], pos+m[1]
		kind, sign := r.source[at:at+2], r.source[pos+m[4]:inside]
		r.addText(leading(r.source[pos:at], sign, kind != "{{", lineStart), pos)
		raw := rawBegin.FindStringIndex(r.source[inside:])
		switch {
		case kind == "{%" && raw != nil:
			inside += raw[1]
			end := rawEnd.FindStringSubmatchIndex(r.source[inside:])
			r.require(end != nil, at, "{%% raw %%} has no {%% endraw %%}")
			s := r.source[inside:]
			r.addText(leading(s[:end[0]], s[end[2]:end[3]], true, r.source[inside-1] == '\n'), inside)
			pos = inside + end[1]
		case kind == "{#":
			end := commentEnd.FindStringIndex(r.source[inside:])
			r.require(end != nil, at, "a comment has no end: #} is missing")
			pos = inside + end[1]
		default:
			r.tokens = append(r.tokens, token{tokenBegin, kind, at, inside})
			pos = r.lexTag(inside, kind)
		}
		lineStart = r.source[pos-1] == '\n'
	}
	r.tokens = append(r.tokens, token{tokenEnd, "the end of the template", len(r.source), len(r.source)})
}

// leading returns the text before a tag, stripped as its sign and lstrip_blocks say.
func leading(text, sign string, block, lineStart bool) string {
	if sign == "-" {
		return strings.TrimRightFunc(text, isSpace)
	}
	i := strings.LastIndexByte(text, '\n') + 1
	if sign == "" && block && (i > 0 || lineStart) && strings.TrimLeftFunc(text[i:], isSpace) == "" {
		return text[:i]
	}
	return text
}

func (r *runner) addText(s string, at int) {
	if s != "" {
		r.tokens = append(r.tokens, token{tokenText, s, at, at + len(s)})
	}
}

// lexTag reads the tokens of {{ }} or {% %} from pos, and returns where it ends.
func (r *runner) lexTag(pos int, kind string) int {
	begin, end, missing := pos, outputEnd, "}}"
	if kind == "{%" {
		end, missing = tagEnd, "%}"
	}
	var open []string // the brackets that are waited for
	for {
		pos = len(r.source) - len(strings.TrimLeftFunc(r.source[pos:], isSpace))
		rest := r.source[pos:]
		if m := end.FindString(rest); m != "" && len(open) == 0 {
			r.tokens = append(r.tokens, token{tokenClose, "end of the tag", pos, pos + len(m)})
			return pos + len(m)
		}
		r.require(rest != "", begin, "a tag has no end: %s is missing", missing)
		t := r.token(pos, rest)
		if t.kind == tokenOperator && closing[t.text] != "" {
			open = append(open, closing[t.text])
		} else if t.kind == tokenOperator && strings.Contains(")]}", t.text) {
			r.require(len(open) > 0 && open[len(open)-1] == t.text, pos, "%q closes nothing", t.text)
			open = open[:len(open)-1]
		}
		r.tokens = append(r.tokens, t)
		pos = t.end
	}
}

// token reads the token that rest, at pos, begins with.
func (r *runner) token(pos int, rest string) token {
	if m := floatNumber.FindString(rest); m != "" && r.source[pos-1] != '.' { // x.0.1 has two indices
		return token{tokenNumber, m, pos, pos + len(m)}
	}
	m := tagToken.FindStringSubmatch(rest)
	r.require(m != nil || rest[0] != '\'' && rest[0] != '"', pos, "a string has no end: %.1s is missing", rest)
	char, _ := utf8.DecodeRuneInString(rest)
	r.require(m != nil, pos, "unexpected character %q", char)
	t := token{tokenOperator, m[0], pos, pos + len(m[0])}
	switch {
	case m[1] != "":
		t.kind = tokenNumber
	case m[2] != "":
		t.kind = tokenName
		ascii := strings.IndexFunc(t.text, func(r rune) bool { return r >= utf8.RuneSelf }) < 0
		r.require(ascii, pos, "the name %q has letters that are not ASCII: not supported", t.text)
	case m[3] != "":
		t.kind = tokenString
		t.text = escapeSequence.ReplaceAllStringFunc(m[0][1:len(m[0])-1], func(s string) string {
			return r.unescape(pos, s)
		})
	}
	return t
}

var (
	escapeSequence = regexp.MustCompile(`(?s)\\(?:x[\da-fA-F]{2}|u[\da-fA-F]{4}|U[\da-fA-F]{8}|[0-7]{1,3}|.)`)
	escapes        = map[string]string{"\n": "", `\`: `\`, "'": "'", `"`: `"`, "a": "\a", "b": "\b", "f": "\f",
		"n": "\n",
		"r": "\r", "t": "\t", "v": "\v"}
)

// unescape returns what an escape sequence of a Python string stands for; unknown ones stay as they are.
func (r *runner) unescape(pos int, sequence string) string {
	s := sequence[1:]
	if plain, ok := escapes[s]; ok {
		return plain
	}
	digits, base := strings.TrimLeft(s, "xuU"), 16
	if digits == s {
		base = 8
	}
	code, err := strconv.ParseUint(digits, base, 32)
	r.require(err != nil || utf8.ValidRune(rune(code)), pos, "string with %s: no character", sequence)
	r.require(err == nil || !strings.ContainsAny(s, "xuUN") && s[0] < utf8.RuneSelf, pos,
		"string with %s: not supported", sequence)
	if err != nil {
		return sequence
	}
	return string(rune(code))
}
