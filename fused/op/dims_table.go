package op

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// ShapeTable encodes the shapes of an op as numbers. The C++ kernels match tensors against it.
type ShapeTable struct {
	// Sizes are all sizes in the shapes. The first Fields of them are the symbols and the names in Let.
	Sizes  []SizeEntry
	Fields int
	// Inputs, Outputs and Where encode the op's fields.
	Inputs, Outputs []ShapeEntry
	Where           []RelationEntry
}

// SizeEntry is a size. Kind is 's' for a symbol, 'p' for the product of a spread, 'l' for a name in Let, 'a' for an
// attribute, 'n' for a number, '?' for an unknown size, '=' for another size, or an operator.
type SizeEntry struct {
	Text string
	Kind byte
	// Left and Right are an operator's operands. Otherwise Left is the size that '=' refers to, the index of an
	// attribute, or the selector among the Number sizes from Right on.
	Left, Right int
	// Number is a number, or a bit for each input that a symbol is a dimension of.
	Number int64
}

// ShapeEntry is a shape. Selector is the index of an attribute, -2 - n for input n, or -1 if nothing selects.
type ShapeEntry struct {
	Selector     int
	Alternatives [][]DimEntry
}

// DimEntry is a word of a shape. Size is the index of its size, or of a spread's product. From is the index of the size
// at which a spread begins, or -1.
type DimEntry struct {
	Size                int
	Spread, Wide, Least bool
	From                int
}

// RelationEntry is a relation. Kind is 'd' for divides, '<' for <=, '=' for equal sizes, 'i' for iff or 'n' for needs.
// Left and Right are sizes, or inputs for iff and needs. The relation applies if Selector has the value Value, or, with
// Unless, if it has another one.
type RelationEntry struct {
	Relation
	Kind                         byte
	Left, Right, Selector, Value int
	Unless                       bool
}

// tabler makes a ShapeTable.
type tabler struct {
	*Op
	ShapeTable
	known map[string]int
}

// ShapeTable encodes the shapes of the op. It panics if a shape is not well-formed.
func (o *Op) ShapeTable() ShapeTable {
	t := &tabler{Op: o, known: map[string]int{}}
	for _, p := range o.Inputs {
		t.symbols(p.Dims)
	}
	lets := slices.Sorted(maps.Keys(o.Let))
	for _, name := range lets {
		t.add(name, SizeEntry{Kind: 'l'})
	}
	t.Fields = len(t.Sizes)
	for _, name := range lets {
		selector, list := o.Let[name].Alternatives()
		var sizes []int
		for _, text := range list {
			sizes = append(sizes, t.size(parseSize(text)))
		}
		let := &t.Sizes[t.known[name]]
		let.Left, let.Right, let.Number = t.selector(selector), len(t.Sizes), int64(len(list))
		for _, size := range sizes {
			t.Sizes = append(t.Sizes, SizeEntry{Kind: '=', Left: size})
		}
	}
	for _, p := range o.Inputs {
		t.ShapeTable.Inputs = append(t.ShapeTable.Inputs, t.shape(p.Dims))
	}
	for _, p := range o.Outputs {
		t.ShapeTable.Outputs = append(t.ShapeTable.Outputs, t.shape(p.Dims))
	}
	for _, r := range o.Where {
		t.ShapeTable.Where = append(t.ShapeTable.Where, t.relation(r))
	}
	return t.ShapeTable
}

// symbols adds the symbols that a shape binds.
func (t *tabler) symbols(s Shape) {
	_, list := s.Alternatives()
	for _, text := range list {
		for _, d := range parseDims(text) {
			kind, name := byte('p'), d.spread
			if d.spread == "" {
				kind, name = 's', d.size.name
			}
			follows := name == "" || name == "?" || t.place(name) >= 0 || t.Let[name] != ""
			if follows || d.wide || d.least || d.from != nil {
				continue
			}
			if kind == 'p' {
				name = "#" + name
			}
			if _, ok := t.known[name]; !ok {
				t.add(name, SizeEntry{Kind: kind, Number: t.binders(strings.TrimPrefix(name, "#"), kind)})
			}
		}
	}
}

// binders sets a bit for each input with a dimension that is exactly the symbol.
func (t *tabler) binders(name string, kind byte) (bits int64) {
	if kind == 'p' {
		name += "..."
	}
	for i, p := range t.Op.Inputs {
		if p.Dims.has(name) {
			bits |= 1 << i
		}
	}
	return bits
}

func (t *tabler) add(text string, e SizeEntry) int {
	e.Text = text
	t.Sizes = append(t.Sizes, e)
	t.known[text] = len(t.Sizes) - 1
	return len(t.Sizes) - 1
}

// size returns the index of a size. It adds a new size.
func (t *tabler) size(e *sizeOf) int {
	text := e.String()
	if i, ok := t.known[text]; ok {
		return i
	}
	switch {
	case e.operator != 0:
		left, right := t.size(e.left), t.size(e.right)
		return t.add(text, SizeEntry{Kind: e.operator, Left: left, Right: right})
	case e.name == "?":
		return t.add(text, SizeEntry{Kind: '?'})
	case e.name == "":
		return t.add(text, SizeEntry{Kind: 'n', Number: e.number})
	case t.place(e.name) >= 0:
		return t.add(text, SizeEntry{Kind: 'a', Left: t.place(e.name)})
	}
	panic(fmt.Sprintf("fused: %s: %s is not defined", t.Name, e.name))
}

func (t *tabler) shape(s Shape) ShapeEntry {
	selector, list := s.Alternatives()
	e := ShapeEntry{Selector: t.selector(selector)}
	for _, text := range list {
		var dims []DimEntry
		for _, d := range parseDims(text) {
			entry := DimEntry{Spread: d.spread != "", From: -1, Wide: d.wide, Least: d.least}
			if entry.Spread {
				entry.Size = t.known["#"+d.spread]
			} else {
				entry.Size = t.size(d.size)
			}
			if d.from != nil {
				entry.From = t.size(d.from)
			}
			dims = append(dims, entry)
		}
		e.Alternatives = append(e.Alternatives, dims)
	}
	return e
}

// selector encodes the selector of a shape, as in ShapeEntry.
func (t *tabler) selector(name string) int {
	if name == "" {
		return -1
	}
	if input, ok := strings.CutSuffix(name, "?"); ok {
		return -2 - t.input(input)
	}
	return t.place(name)
}

func (t *tabler) relation(r Relation) RelationEntry {
	words := strings.Fields(r.Text)
	e := RelationEntry{Relation: r, Kind: words[1][0], Selector: -1}
	if e.Kind == 'i' || e.Kind == 'n' {
		e.Left, e.Right = t.input(words[0]), t.input(words[2])
	} else {
		e.Left, e.Right = t.size(parseSize(words[0])), t.size(parseSize(words[2]))
	}
	if len(words) == 5 {
		name, value, _ := strings.Cut(words[4], "=")
		e.Selector, e.Value, e.Unless = -2-t.input(name), 1, words[3] == "unless"
		if i := t.place(name); i >= 0 {
			e.Selector, e.Value = i, slices.Index(t.Attributes[i].Values, value)
		}
	}
	return e
}

// String formats a size.
func (e *sizeOf) String() string {
	switch {
	case e.operator == 0 && e.name == "":
		return fmt.Sprint(e.number)
	case e.operator == 0:
		return e.name
	}
	right := e.right.String()
	if e.operator == ',' {
		return "max(" + e.left.String() + "," + right + ")"
	}
	if e.right.operator != 0 {
		right = "(" + right + ")"
	}
	left := e.left.String()
	if strings.ContainsRune("*/", rune(e.operator)) && e.left.operator != 0 && e.left.operator != ',' {
		left = "(" + left + ")"
	}
	return left + string(e.operator) + right
}
