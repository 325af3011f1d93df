package onig

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
)

// Limits for patterns: length, nesting of groups, and Oniguruma's limit for counts.
const (
	maxLength = 10_000
	maxDepth  = 200
	maxCount  = 100_000
)

// options are the options (?i) and (?m); with m, a dot matches a newline.
type options struct{ ignoreCase, dotAll bool }

type parser struct {
	source []rune
	at     int
	depth  int
}

// parse parses a pattern. Groups do not capture because references are not supported.
func parse(source string) (node, error) {
	p := &parser{source: []rune(source)}
	if len(p.source) > maxLength {
		return nil, fmt.Errorf("more than %d characters", maxLength)
	}
	n, err := p.alternatives(options{})
	if err == nil && p.at < len(p.source) {
		err = errors.New("a ) without a (")
	}
	return n, err
}

func (p *parser) more() bool          { return p.at < len(p.source) }
func (p *parser) rest() string        { return string(p.source[p.at:min(len(p.source), p.at+8)]) }
func (p *parser) is(text string) bool { return strings.HasPrefix(p.rest(), text) }

// take skips text if it comes next.
func (p *parser) take(text string) bool {
	if !p.is(text) {
		return false
	}
	p.at += len([]rune(text))
	return true
}

// alternatives reads up to the end or a closing parenthesis.
func (p *parser) alternatives(o options) (node, error) {
	if p.depth++; p.depth > maxDepth {
		return nil, errors.New("groups are nested too deeply")
	}
	defer func() { p.depth-- }()
	var all alternation
	for {
		n, err := p.sequence(o)
		if err != nil {
			return nil, err
		}
		all = append(all, n)
		if !p.take("|") {
			break
		}
	}
	if len(all) == 1 {
		return all[0], nil
	}
	return all, nil
}

func (p *parser) sequence(o options) (node, error) {
	var all concat
	var letters strings.Builder // consecutive letters, if case is ignored
	for p.more() && !p.is("|") && !p.is(")") {
		start := p.at
		n, err := p.atom(o)
		if err != nil {
			return nil, err
		}
		if n == nil { // a comment
			continue
		}
		if c, ok := n.(char); ok && o.ignoreCase && p.at == start+1 && c.set != nil {
			letters.WriteRune(p.source[start])
			if err := checkFolds(letters.String()); err != nil {
				return nil, err
			}
		} else {
			letters.Reset()
		}
		for {
			q, found, err := p.quantifier(n)
			if err != nil {
				return nil, err
			}
			if !found {
				break
			}
			n = q
		}
		all = append(all, n)
	}
	if len(all) == 1 {
		return all[0], nil
	}
	return all, nil
}

// atom reads the operand of a quantifier.
func (p *parser) atom(o options) (node, error) {
	r := p.source[p.at]
	switch r {
	case '(':
		p.at++
		return p.group(o)
	case '[':
		p.at++
		s, err := p.class(o)
		return char{s}, err
	case '\\':
		p.at++
		return p.escape(o)
	case '.':
		p.at++
		if o.dotAll {
			return char{anything}, nil
		}
		return char{single('\n').complement()}, nil
	case '^':
		p.at++
		// No line begins after a newline that ends the text.
		return concat{alternation{anchor(`\A`), concat{group{"(?<=", char{single('\n')}}, group{"(?!", anchor(`\z`)}}}},
			nil
	case '$':
		p.at++
		return alternation{group{"(?=", char{single('\n')}}, anchor(`\z`)}, nil
	case '*', '+', '?':
		return nil, fmt.Errorf("%q repeats nothing", r)
	}
	p.at++
	return p.literal(r, o)
}

func (p *parser) literal(r rune, o options) (node, error) {
	s := single(r)
	if o.ignoreCase {
		var err error
		if s, err = ignoringCase(s); err != nil {
			return nil, err
		}
	}
	return char{s}, nil
}

// quantifier reads a quantifier after n, if there is one.
func (p *parser) quantifier(n node) (node, bool, error) {
	q := repeat{body: n}
	switch {
	case p.take("*"):
		q.min, q.max = 0, -1
	case p.take("+"):
		q.min, q.max = 1, -1
	case p.take("?"):
		q.min, q.max = 0, 1
	case p.is("{"):
		low, high, length, fixed := p.interval()
		if length == 0 { // the brace is a literal
			return nil, false, nil
		}
		if low > maxCount || high > maxCount {
			return nil, false, fmt.Errorf("a count in %q is too big", p.rest())
		}
		if high >= 0 && low > high {
			return nil, false, fmt.Errorf("the counts in %q are in the wrong order", p.rest())
		}
		p.at += length
		q.min, q.max = low, high
		// {n,m}+ repeats the repetition and {n}? makes it optional: only {n,m}? is lazy.
		if !fixed && p.take("?") {
			q.suffix = "?"
		}
		return q, true, nil
	default:
		return nil, false, nil
	}
	switch {
	case p.take("?"):
		q.suffix = "?"
	case p.take("+"):
		q.suffix = "+"
	}
	return q, true, nil
}

// interval reads {n}, {n,}, {,m} or {n,m} and returns its length, 0 without a match; high is -1 for no limit.
func (p *parser) interval() (low, high, length int, fixed bool) {
	i := p.at + 1
	number := func() (n int, found bool) {
		for ; i < len(p.source) && p.source[i] >= '0' && p.source[i] <= '9'; i++ {
			n, found = min(n*10+int(p.source[i]-'0'), maxCount+1), true
		}
		return n, found
	}
	low, hasLow := number()
	high, hasHigh := low, hasLow
	if i < len(p.source) && p.source[i] == ',' {
		i++
		if high, hasHigh = number(); !hasHigh {
			high = -1
		}
	} else {
		fixed = true
	}
	if i >= len(p.source) || p.source[i] != '}' || !hasLow && !hasHigh {
		return 0, 0, 0, false
	}
	return low, high, i + 1 - p.at, fixed
}

// hex reads up to most hexadecimal digits.
func (p *parser) hex(least, most int) (rune, error) {
	r, n := rune(0), 0
	for ; n < most && p.more(); n++ {
		d := strings.IndexRune("0123456789abcdef", unicode.ToLower(p.source[p.at]))
		if d < 0 {
			break
		}
		r = r*16 + rune(d)
		p.at++
	}
	if n < least || r > unicode.MaxRune {
		return 0, errors.New("a code point in hexadecimal is expected behind \\x or \\u")
	}
	return r, nil
}
