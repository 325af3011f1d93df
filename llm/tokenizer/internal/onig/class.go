package onig

import (
	"errors"
	"fmt"
	"strings"
)

// class reads a class after its opening bracket, up to the closing one: characters, ranges, escapes, [:names:], nested
// classes, and && for intersections.
func (p *parser) class(o options) (set, error) {
	if p.depth++; p.depth > maxDepth {
		return nil, errors.New("classes are nested too deeply")
	}
	defer func() { p.depth-- }()
	negated := p.take("^")
	var all set // of the parts before the last &&
	var part []set
	intersected := false
	join := func() {
		if s := union(part...); intersected {
			all = intersection(all, s)
		} else {
			all = s
		}
		part = nil
	}
	for first := true; ; first = false {
		switch {
		case !p.more():
			return nil, errors.New("a [ without a ]")
		case p.is("]") && !(first && p.closesLater()):
			p.at++
			if first {
				return nil, errors.New("[] has no characters")
			}
			join()
			if negated {
				all = all.complement()
			}
			return all, nil
		case p.take("&&"):
			join()
			intersected = true
		default:
			s, err := p.classPart(o)
			if err != nil {
				return nil, err
			}
			part = append(part, s)
		}
	}
}

// closesLater reports whether another ] follows the next one, which is then a literal.
func (p *parser) closesLater() bool {
	for i := p.at + 1; i < len(p.source); i++ {
		switch p.source[i] {
		case '\\':
			i++
		case ']':
			return true
		}
	}
	return false
}

// classPart reads one part of a class, or a whole range.
func (p *parser) classPart(o options) (set, error) {
	if p.is("[:") {
		if s, ok, err := p.posix(); ok || err != nil {
			return s, err
		}
	}
	if p.take("[") {
		return p.class(o)
	}
	lo, s, err := p.classChar()
	if err != nil {
		return nil, err
	}
	if s == nil {
		s = single(lo)
		if p.is("-") && !p.is("-]") && !p.is("-&&") && p.at+1 < len(p.source) {
			p.at++
			if p.is("[") {
				return nil, fmt.Errorf("a class as the end of a range is not supported")
			}
			hi, kind, err := p.classChar()
			switch {
			case err != nil:
				return nil, err
			case kind != nil || hi < lo:
				return nil, fmt.Errorf("a range from %q without an end", lo)
			}
			s = set{{lo, hi}}
		}
	}
	if o.ignoreCase {
		return ignoringCase(s)
	}
	return s, nil
}

// classChar reads one character, or an escape for a set.
func (p *parser) classChar() (rune, set, error) {
	if !p.take(`\`) {
		r := p.source[p.at]
		p.at++
		return r, nil, nil
	}
	if !p.more() {
		return 0, nil, errors.New("a backslash at the end")
	}
	if s, ok, err := p.kind(); ok || err != nil {
		if s == nil {
			s = set{}
		}
		return 0, s, err
	}
	if p.take("b") { // a backspace inside brackets
		return '\b', nil, nil
	}
	r, err := p.escaped()
	return r, nil, err
}

// posix reads [:name:] or [:^name:]. Otherwise the bracket and the colon are literals.
func (p *parser) posix() (s set, found bool, err error) {
	rest := string(p.source[p.at+2 : min(len(p.source), p.at+2+12)])
	name, _, ok := strings.Cut(rest, ":]")
	if !ok {
		return nil, false, nil
	}
	plain, negated := strings.CutPrefix(name, "^")
	switch plain {
	case "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space", "upper",
		"xdigit", "word":
	default:
		return nil, false, fmt.Errorf("[:%s:] is not supported", name)
	}
	p.at += len([]rune(name)) + 4
	s = properties()[plain]
	if negated {
		s = s.complement()
	}
	return s, true, nil
}
