package op

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// sizes holds the sizes of symbols and the dimensions of spreads that a site's inputs determine, -1 if unknown.
type sizes struct {
	op     *Op
	site   Site
	equal  func(a, b int64) int64 // merges two sizes that must be equal
	known  byName[int64]
	spread byName[[]int64]
	strict bool // sizes that differ are an error and are not kept
	differ bool
}

// byName is a short list of named values. It is faster to copy and to search than a map.
type byName[T any] []namedValue[T]

type namedValue[T any] struct {
	name  string
	value T
}

func (n byName[T]) get(name string) (value T, ok bool) {
	for i := range n {
		if n[i].name == name {
			return n[i].value, true
		}
	}
	return value, false
}

func (n *byName[T]) set(name string, value T) {
	for i := range *n {
		if (*n)[i].name == name {
			(*n)[i].value = value
			return
		}
	}
	*n = append(*n, namedValue[T]{name, value})
}

// checkShapes errs if a known shape of an input is not as declared.
func (o *Op) checkShapes(s Site) error {
	z := &sizes{op: o, site: s, strict: true}
	z.equal = func(a, b int64) int64 {
		z.differ = z.differ || a >= 0 && b >= 0 && a != b
		return max(a, b)
	}
	for _, r := range o.Where {
		if !z.given(r) {
			return fmt.Errorf("mojo.%s takes %s", o.Name, r.Doc)
		}
	}
	for range 2 { // a size may follow from a later input
		for i, p := range o.Inputs {
			if !z.match(p.Dims, s.Shape(i)) {
				if err := z.related(i); err != nil { // a broken relation explains more
					return err
				}
				return fmt.Errorf("mojo.%s takes %s %s: %s", o.Name, p.Name, z.expected(p.Dims), z.shapes(i))
			}
		}
	}
	return z.related(len(o.Inputs) - 1)
}

// related errs if a relation is broken by the known sizes of the inputs up to last.
func (z *sizes) related(last int) error {
	for _, r := range z.op.Where {
		if !z.holds(r) {
			left, operator, right := z.parts(r)
			return fmt.Errorf("mojo.%s takes %s: %s %s %s, here %d and %d; %s", z.op.Name, r.Doc, left, operator, right,
				z.size(parseSize(left)), z.size(parseSize(right)), z.shapes(last))
		}
	}
	return nil
}

// shapes lists the known shapes of the inputs up to last, backwards.
func (z *sizes) shapes(last int) string {
	var words []string
	for i := last; i >= 0; i-- {
		if d := z.site.Shape(i); d != nil {
			words = append(words, fmt.Sprintf("%s is %s", z.op.Inputs[i].Name, FormatDims(d)))
		}
	}
	return strings.Join(words, ", ")
}

// OutputShapes returns the shapes of the outputs at a site, as far as they follow from the inputs: nil for an unknown
// rank, -1 for an unknown dimension. equal merges two dimensions that must be equal.
func (o *Op) OutputShapes(s Site, equal func(a, b int64) int64) [][]int64 {
	z := &sizes{op: o, site: s, equal: equal}
	for i, p := range o.Inputs {
		z.match(p.Dims, s.Shape(i))
	}
	var shapes [][]int64
	for _, p := range o.Outputs {
		shapes = append(shapes, z.make(p.Dims))
	}
	return shapes
}

// choose returns the alternatives of a shape that are possible at the site.
func (z *sizes) choose(text Shape) []string {
	selector, list := text.Alternatives()
	at := -1
	if name, ok := strings.CutSuffix(selector, "?"); ok {
		at = 0
		if z.site.Has(z.op.input(name)) {
			at = 1
		}
	} else if i := z.op.place(selector); i >= 0 && z.op.Attributes[i].Type == onnx.AttrInt {
		at = int(-1 - z.site.Attr(selector).Int)
	} else if i >= 0 {
		at = slices.Index(z.op.Attributes[i].Values, z.site.Attr(selector).String)
	}
	if at >= 0 && at < len(list) {
		return list[at : at+1]
	}
	return list
}

// input returns the index of an input, or -1 if no input has the name.
func (o *Op) input(name string) int {
	return slices.IndexFunc(o.Inputs, func(p Param) bool { return p.Name == name })
}

// match records the sizes of a shape and reports whether the shape fits one of the alternatives.
func (z *sizes) match(want Shape, shape []int64) bool {
	if shape == nil {
		return true
	}
	list := z.choose(want)
	if len(list) > 1 && !z.strict {
		return true // it is unknown which one is meant
	}
	for _, text := range list {
		known, spread := slices.Clone(z.known), slices.Clone(z.spread)
		z.differ = false
		if z.fit(parseDims(text), shape) && !z.differ {
			return true
		}
		if z.strict {
			z.known, z.spread = known, spread
		}
	}
	return false
}

// fit is match for one alternative.
func (z *sizes) fit(want []dim, shape []int64) bool {
	// Each word takes one dimension, except a spread, which takes the remaining ones.
	takes, rest, free := make([]int, len(want)), len(shape), -1
	for i, d := range want {
		takes[i] = 1
		if d.spread != "" {
			takes[i], free = 0, i
		}
		rest -= takes[i]
	}
	for i := 0; i < len(want) && want[i].wide && rest < 0; i++ {
		rest, takes[i] = rest+takes[i], 0
	}
	if free >= 0 && rest > 0 {
		takes[free], rest = rest, 0
	}
	if rest != 0 {
		return false
	}
	at := 0
	for i, d := range want {
		part := shape[at : at+takes[i]]
		at += takes[i]
		if d.spread != "" {
			if !z.fitSpread(d, part) {
				return false
			}
		} else if len(part) == 1 && !z.fitSize(d, part[0]) {
			return false
		}
	}
	return true
}

func (z *sizes) fitSpread(d dim, part []int64) bool {
	have, ok := z.spread.get(d.spread)
	if d.from != nil {
		from, known := z.value(d.from)
		if !ok || !known {
			return true
		}
		if len(have)+int(from) < 0 {
			return false
		}
		return z.fitSpread(dim{spread: d.spread}, append(slices.Clone(have[:len(have)+int(from)]), part...))
	}
	if !ok {
		if !d.wide {
			z.spread.set(d.spread, part)
		}
		return true
	}
	if len(part) > len(have) || !d.wide && len(part) < len(have) {
		return false
	}
	merged := slices.Clone(have)
	for i, size := range part {
		if at := len(have) - len(part) + i; !d.wide {
			merged[at] = z.equal(have[at], size)
		} else if size != 1 && size >= 0 && have[at] >= 0 && size != have[at] {
			return false
		}
	}
	z.spread.set(d.spread, merged)
	return true
}

func (z *sizes) fitSize(d dim, size int64) bool {
	name := d.size.name
	before, known := z.known.get(name)
	if name != "" && !d.wide && !d.least && z.op.place(name) < 0 && z.op.Let[name] == "" {
		if known {
			size = z.equal(before, size)
		}
		z.known.set(name, size)
		return true
	}
	want := z.size(d.size)
	switch {
	case want < 0 || size < 0 || d.wide && size == 1:
		return true
	case d.least:
		return size >= want
	case d.wide:
		return size == want
	}
	z.equal(size, want)
	return true
}

// size evaluates a size. It returns -1 if the size is unknown.
func (z *sizes) size(e *sizeOf) int64 {
	if size, ok := z.value(e); ok {
		return max(size, -1)
	}
	return -1
}

// value evaluates a part of a size, which may be negative, and reports whether it is known.
func (z *sizes) value(e *sizeOf) (int64, bool) {
	switch {
	case e.operator == 0 && e.name == "":
		return e.number, true
	case e.operator == 0:
		return z.named(e.name)
	}
	a, ok := z.value(e.left)
	b, known := z.value(e.right)
	switch {
	case !ok || !known || e.operator == '/' && b == 0:
		return 0, false
	case e.operator == '+':
		return a + b, true
	case e.operator == '-':
		return a - b, true
	case e.operator == '*':
		return a * b, true
	case e.operator == ',':
		return max(a, b), true
	}
	return a / b, true
}

func (z *sizes) named(name string) (int64, bool) {
	if size, ok := z.known.get(name); ok {
		return size, size >= 0
	}
	if name == "?" {
		return 0, false
	}
	if spread, ok := strings.CutPrefix(name, "#"); ok {
		part, _ := z.spread.get(spread)
		n := tokens(append(slices.Clone(part), 0))
		return n, n >= 0 && part != nil
	}
	if i := z.op.place(name); i >= 0 {
		a := z.site.Attr(name)
		return a.Int, a.Name != "" && z.op.Attributes[i].Bounds.Takes(float64(a.Int))
	}
	if let := z.op.Let[name]; let != "" {
		if list := z.choose(let); len(list) == 1 {
			return z.value(parseSize(list[0]))
		}
		return 0, false
	}
	for i, p := range z.op.Inputs {
		if z.site.Has(i) && p.Dims.has(name) {
			return 0, false
		}
	}
	return 0, true
}

// has reports whether a dimension is exactly the symbol.
func (s Shape) has(symbol string) bool {
	_, list := s.Alternatives()
	return slices.ContainsFunc(list, func(text string) bool { return slices.Contains(strings.Fields(text), symbol) })
}

// make returns a shape with its sizes filled in.
func (z *sizes) make(want Shape) []int64 {
	var shape []int64
	for _, d := range parseDims(z.choose(want)[0]) {
		if d.spread == "" {
			shape = append(shape, max(z.size(d.size), -1))
			continue
		}
		part, ok := z.spread.get(d.spread)
		if !ok {
			return nil
		}
		shape = append(shape, part...)
	}
	return shape
}

// Relation is a condition on sizes: "Hk divides H", "R <= D", "#T = #A" (the products of two spreads); or on optional
// inputs: "past_key iff past_value", "past_length needs past_key". It may end in "if a=v" or "unless a=v", where a is a
// string attribute, or in "if a", where a is an optional input.
type Relation struct {
	Text string
	Doc  string // completes "takes"
}

// parts splits a relation at its operator. If the relation does not apply at the site, the operator is empty.
func (z *sizes) parts(r Relation) (left, operator, right string) {
	words := strings.Fields(r.Text)
	if len(words) == 5 {
		name, value, _ := strings.Cut(words[4], "=")
		i := z.op.input(name)
		if (i >= 0 && z.site.Has(i) || i < 0 && z.site.Attr(name).String == value) != (words[3] == "if") {
			return "", "", ""
		}
	}
	return words[0], words[1], words[2]
}

// given reports whether a relation allows the given inputs.
func (z *sizes) given(r Relation) bool {
	left, operator, right := z.parts(r)
	if operator != "iff" && operator != "needs" {
		return true
	}
	a, b := z.site.Has(z.op.input(left)), z.site.Has(z.op.input(right))
	return a == b || operator == "needs" && b
}

// holds reports whether a relation allows the sizes, as far as they are known.
func (z *sizes) holds(r Relation) bool {
	left, operator, right := z.parts(r)
	if operator == "" || operator == "iff" || operator == "needs" {
		return true
	}
	a, ok := z.value(parseSize(left))
	b, known := z.value(parseSize(right))
	switch {
	case !ok || !known:
		return true
	case operator == "divides":
		return b == 0 || a != 0 && b%a == 0
	case operator == "<=":
		return a <= b
	}
	return a == b
}

// expected formats a shape and its known sizes.
func (z *sizes) expected(want Shape) string {
	var words []string
	verb := "of shape"
	for _, text := range z.choose(want) {
		var names, known []string
		for i, d := range parseDims(text) {
			if d.wide {
				verb = "that broadcasts to"
			}
			name := strings.TrimPrefix(strings.Fields(text)[i], "~")
			names = append(names, name)
			switch part, ok := z.spread.get(d.spread); {
			case ok && d.from == nil:
				name = strings.Trim(strings.ReplaceAll(FormatDims(part), " ", ", "), "[]")
			case d.spread == "" && z.size(d.size) >= 0:
				name = strings.TrimSuffix(name, strings.TrimLeft(name, ">=")) + fmt.Sprint(z.size(d.size))
			}
			if name != "" {
				known = append(known, name)
			}
		}
		words = append(words, fmt.Sprintf("[%s], here [%s]", strings.Join(names, ", "), strings.Join(known, ", ")))
	}
	return verb + " " + strings.Join(words, ", or ")
}

// SameShape lists the inputs that must have one shape, without broadcasting. It returns nil if there are none.
func (o *Op) SameShape() []int {
	var list []int
	for i, p := range o.Inputs {
		if strings.Contains(string(p.Dims), "...") && p.Dims == o.Inputs[0].Dims {
			list = append(list, i)
		}
	}
	if len(list) < 2 {
		return nil
	}
	return list
}

// Spread lists the inputs that broadcast to the first input, except in their last dimension.
func (o *Op) Spread() []int {
	var list []int
	for i, p := range o.Inputs {
		if strings.HasPrefix(string(p.Dims), "~A...") {
			list = append(list, i)
		}
	}
	return list
}

// tokens returns the product of all dimensions except the last, or -1 if one is unknown.
func tokens(dims []int64) int64 {
	if len(dims) == 0 {
		return -1
	}
	n := int64(1)
	for _, d := range dims[:len(dims)-1] {
		if d < 0 {
			return -1
		}
		n *= d
	}
	return n
}
