package op

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
)

// Shape is the shape of an input or output as the catalogue writes it, a word for each dimension:
//
//	B Hk P+N D     symbols, attributes (in small letters) and numbers, combined with + - * / and ()
//	max(H,Hk)      the greater of two sizes
//	A... D         any number of dimensions before one
//	A...[axis]     the dimensions of A from axis on, which counts from the end
//	~H ~A...       1 or H; dimensions that broadcast to A. Leading ones may be missing
//	>=L            at least L
//	?              an unknown size
//	a: X | Y       X if the attribute a has the first of its values, Y if the second; for an int, X if -1, Y if -2
//	a?: X | Y      X if the input a is left out, Y if it is given
//	X | Y          either
//
// The value of a symbol is the dimension that is exactly this symbol in the first input that has one, or 0 if all such
// inputs are left out. An op's Let defines the symbols that follow from others.
type Shape string

// sizeOf is a size: a name, a number, or an operator with two operands.
type sizeOf struct {
	name        string
	number      int64
	operator    byte // 0 for a name, or a number if name is empty; ',' for the maximum
	left, right *sizeOf
}

// dim is a word of a shape.
type dim struct {
	size   *sizeOf
	spread string  // A of A...
	from   *sizeOf // where a spread begins in A, counted from the end; nil for all of A
	wide   bool    // ~
	least  bool    // >=
}

// Alternatives splits "selector: X | Y".
func (s Shape) Alternatives() (selector string, list []string) {
	c := remember(&choices, string(s), parseChoice)
	return c.selector, c.list
}

type choice struct {
	selector string
	list     []string
}

// Parsed values by their text: the catalogue has few texts, and every site needs them again.
var choices, words, numbers sync.Map

func remember[T any](known *sync.Map, text string, parse func(string) T) T {
	if made, ok := known.Load(text); ok {
		return made.(T)
	}
	made := parse(text)
	known.Store(text, made)
	return made
}

func parseChoice(text string) (c choice) {
	if before, after, ok := strings.Cut(text, ":"); ok {
		c.selector, text = strings.TrimSpace(before), after
	}
	for _, part := range strings.Split(text, "|") {
		c.list = append(c.list, strings.TrimSpace(part))
	}
	return c
}

// parseDims parses the words of one alternative of a shape.
func parseDims(text string) []dim { return remember(&words, text, newDims) }

func newDims(text string) (list []dim) {
	for _, word := range strings.Fields(text) {
		var d dim
		word, d.wide = strings.CutPrefix(word, "~")
		word, d.least = strings.CutPrefix(word, ">=")
		if spread, from, ok := strings.Cut(word, "..."); ok {
			if d.spread = spread; from != "" {
				d.from = parseSize(strings.Trim(from, "[]"))
			}
		} else {
			d.size = parseSize(word)
		}
		list = append(list, d)
	}
	return list
}

// parseSize parses a size without spaces. It panics if text is not a size: the catalogue's tests parse all of them.
func parseSize(text string) *sizeOf { return remember(&numbers, text, newSize) }

func newSize(text string) *sizeOf {
	p := &sizeParser{text: text}
	size := p.sum()
	if p.text != "" {
		panic(fmt.Sprintf("fused: %q is not a size: cannot parse %q", text, p.text))
	}
	return size
}

type sizeParser struct{ text string }

func (p *sizeParser) take(operators string) byte {
	if p.text == "" || !strings.Contains(operators, p.text[:1]) {
		return 0
	}
	c := p.text[0]
	p.text = p.text[1:]
	return c
}

func (p *sizeParser) sum() *sizeOf     { return p.binary("+-", p.product) }
func (p *sizeParser) product() *sizeOf { return p.binary("*/", p.factor) }

func (p *sizeParser) binary(operators string, operand func() *sizeOf) *sizeOf {
	size := operand()
	for c := p.take(operators); c != 0; c = p.take(operators) {
		size = &sizeOf{operator: c, left: size, right: operand()}
	}
	return size
}

func (p *sizeParser) factor() *sizeOf {
	n := strings.IndexAny(p.text, "+-*/(),")
	if n < 0 {
		n = len(p.text)
	}
	word := p.text[:n]
	p.text = p.text[n:]
	if (word == "" || word == "max") && p.take("(") != 0 {
		size := p.sum()
		if word == "max" && p.take(",") != 0 {
			size = &sizeOf{operator: ',', left: size, right: p.sum()}
		}
		p.take(")")
		return size
	}
	if number, err := strconv.ParseInt(word, 10, 64); err == nil {
		return &sizeOf{number: number}
	}
	return &sizeOf{name: word}
}

// FormatDims formats dimensions, with ? for unknown ones.
func FormatDims(dims []int64) string { return strings.ReplaceAll(fmt.Sprint(dims), "-1", "?") }
