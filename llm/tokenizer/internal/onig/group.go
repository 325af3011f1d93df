package onig

import (
	"errors"
	"fmt"
	"strings"
)

// group reads a group after its opening parenthesis.
func (p *parser) group(o options) (node, error) {
	if !p.take("?") {
		return p.closed("(?:", o)
	}
	for _, open := range []string{":", ">", "=", "!", "<=", "<!"} {
		if p.take(open) {
			return p.closed("(?"+open, o)
		}
	}
	switch {
	case p.take("#"):
		for p.more() {
			if p.source[p.at] == '\\' {
				p.at++
			} else if p.take(")") {
				return nil, nil
			}
			p.at++
		}
		return nil, errors.New("a comment that does not end")
	case p.take("<"), p.take("'"):
		return p.named(o)
	}
	return p.withOptions(o)
}

// closed reads the rest of a group and its closing parenthesis.
func (p *parser) closed(open string, o options) (node, error) {
	n, err := p.alternatives(o)
	if err != nil {
		return nil, err
	}
	if !p.take(")") {
		return nil, errors.New("a group that does not end")
	}
	return group{open, n}, nil
}

// named reads a named group. References to it are not supported.
func (p *parser) named(o options) (node, error) {
	end := '>'
	if p.source[p.at-1] == '\'' {
		end = '\''
	}
	start := p.at
	for p.more() && p.source[p.at] != end {
		p.at++
	}
	if !p.more() || p.at == start {
		return nil, errors.New("a group without a name")
	}
	p.at++
	return p.closed("(?:", o)
}

// withOptions reads (?i), which applies to the rest of the enclosing group, and (?i:…).
func (p *parser) withOptions(o options) (node, error) {
	on := true
	for p.more() {
		r := p.source[p.at]
		p.at++
		switch r {
		case '-':
			on = false
		case 'i':
			o.ignoreCase = on
		case 'm':
			o.dotAll = on
		case ':':
			return p.closed("(?:", o)
		case ')':
			n, err := p.alternatives(o)
			return group{"(?:", n}, err
		default:
			return nil, fmt.Errorf("group (?%c is not supported", r)
		}
	}
	return nil, errors.New("a group that does not end")
}

// boundary returns \b, or \B if inside is set.
func boundary(inside bool) node {
	w := char{wordAlone()}
	behind, ahead := group{"(?<=", w}, group{"(?=", w}
	notBehind, notAhead := group{"(?<!", w}, group{"(?!", w}
	if inside {
		return alternation{concat{behind, ahead}, concat{notBehind, notAhead}}
	}
	return alternation{concat{behind, notAhead}, concat{notBehind, ahead}}
}

// escape reads an escape outside brackets, after the backslash.
func (p *parser) escape(o options) (node, error) {
	if !p.more() {
		return nil, errors.New("a backslash at the end")
	}
	switch r := p.source[p.at]; r {
	case 'A', 'z':
		p.at++
		return anchor(`\` + string(r)), nil
	case 'Z': // the end, or before the newline at the end
		p.at++
		return group{"(?=", concat{repeat{body: char{single('\n')}, max: 1}, anchor(`\z`)}}, nil
	case 'b', 'B':
		p.at++
		return boundary(r == 'B'), nil
	case 'R':
		p.at++
		crlf := concat{char{single('\r')}, char{single('\n')}}
		return group{"(?>", alternation{crlf, char{set{{'\n', '\r'}, {0x85, 0x85}, {0x2028, 0x2029}}}}}, nil
	case 'w', 'W':
		p.at++
		if r == 'W' {
			return char{wordAlone().complement()}, nil
		}
		return char{wordAlone()}, nil
	}
	if s, ok, err := p.kind(); ok || err != nil {
		if err == nil && o.ignoreCase {
			s, err = ignoringCase(s)
		}
		return char{s}, err
	}
	r, err := p.escaped()
	if err != nil {
		return nil, err
	}
	return p.literal(r, o)
}

// kind reads an escape for a set, \d or \p{…}, after the backslash.
func (p *parser) kind() (s set, found bool, err error) {
	r := p.source[p.at]
	if r == 'p' || r == 'P' {
		p.at++
		s, err := p.property(r == 'P')
		return s, true, err
	}
	names := map[rune]string{'d': "digit", 's': "space", 'w': "word", 'h': "xdigit"}
	if name, ok := names[r]; ok {
		p.at++
		return properties()[name], true, nil
	}
	if name, ok := names[r+'a'-'A']; ok && r >= 'A' && r <= 'Z' {
		p.at++
		return properties()[name].complement(), true, nil
	}
	return nil, false, nil
}

// property reads {Name} or {^Name}.
func (p *parser) property(negated bool) (set, error) {
	start := p.at
	for p.more() && p.source[p.at] != '}' {
		p.at++
	}
	text := string(p.source[start:p.at])
	name, braced := strings.CutPrefix(text, "{")
	if !braced || !p.more() {
		return nil, errors.New("\\p without a name in braces")
	}
	p.at++
	if rest, ok := strings.CutPrefix(name, "^"); ok {
		name, negated = rest, !negated
	}
	s, ok := property(name)
	if !ok {
		return nil, fmt.Errorf("property \\p{%s} is not supported", name)
	}
	if canonical(name) == "word" {
		s = wordAlone()
	}
	if negated {
		s = s.complement()
	}
	return s, nil
}

// escaped reads an escape for one character.
func (p *parser) escaped() (rune, error) {
	r := p.source[p.at]
	p.at++
	if control, ok := map[rune]rune{'t': '\t', 'n': '\n', 'r': '\r', 'f': '\f', 'v': '\v', 'a': '\a',
		'e': 0x1b}[r]; ok {
		return control, nil
	}
	switch {
	case r == 'x' && p.take("{"):
		c, err := p.hex(1, 8)
		if err == nil && !p.take("}") {
			err = errors.New("\\x{ without a }")
		}
		return c, err
	case r == 'x':
		c, err := p.hex(1, 2)
		if c > 0x7f {
			err = errors.New("\\x with two digits beyond 7F, a byte, is not supported")
		}
		return c, err
	case r == 'u':
		return p.hex(4, 4)
	case r == '0' && !(p.more() && p.source[p.at] >= '0' && p.source[p.at] <= '9'):
		return 0, nil
	case r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z':
		return 0, fmt.Errorf("\\%c is not supported", r)
	}
	return r, nil
}
