package dims

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
)

// rule is the name in the metadata of new nodes.
const rule = "free"

// sum is a number that depends on dimensions: (constant + one·n + two·n·n) / by.
type sum struct {
	constant, by int64
	one          []int64
	two          map[[2]int]int64
}

// sum returns a slot of a reading as a sum.
func (a *analysis) sum(r *reading, c *constant, s slot) *sum {
	e := c.original(s)
	p := &sum{constant: e, by: 1, one: make([]int64, len(a.dims)), two: map[[2]int]int64{}}
	list := r.factors[s]
	for _, f := range list {
		p.by *= f.den
	}
	if r.product[s] {
		p.by *= e
	}
	p.constant *= p.by
	for i, f := range list {
		p.one[i] += f.num * p.by / f.den
		p.constant -= f.num * p.by / f.den * a.dims[i].Size
		for k, g := range list[:i] {
			if !r.pairs(s, k, i, e) {
				continue
			}
			x := f.num * g.num * p.by / (f.den * g.den * e)
			p.two[[2]int{k, i}] += x
			p.one[i] -= x * a.dims[k].Size
			p.one[k] -= x * a.dims[i].Size
			p.constant += x * a.dims[i].Size * a.dims[k].Size
		}
	}
	return p.reduced()
}

// reduced divides by the common divisor of all coefficients.
func (p *sum) reduced() *sum {
	common := p.by
	with := func(x int64) {
		for x = max(x, -x); x != 0; {
			common, x = x, common%x
		}
	}
	with(p.constant)
	for _, x := range p.one {
		with(x)
	}
	for _, x := range p.two {
		with(x)
	}
	if common = max(common, -common); p.by < 0 {
		common = -common
	}
	p.constant, p.by = p.constant/common, p.by/common
	for i := range p.one {
		p.one[i] /= common
	}
	for k := range p.two {
		p.two[k] /= common
	}
	return p
}

// text formats a sum with the names of dimensions.
func (a *analysis) text(p *sum) string {
	var terms []string
	add := func(k int64, what string) {
		if k != 0 && what != "" && k != 1 {
			what = fmt.Sprintf("%d*%s", k, what)
		}
		if k != 0 {
			terms = append(terms, what)
		}
	}
	for i := range a.dims {
		for k := range i {
			add(p.two[[2]int{k, i}], a.dims[k].Name+"*"+a.dims[i].Name)
		}
	}
	for i, d := range a.dims {
		add(p.one[i], d.Name)
	}
	if p.constant != 0 || len(terms) == 0 {
		terms = append(terms, fmt.Sprint(p.constant))
	}
	text := strings.ReplaceAll(strings.Join(terms, " + "), "+ -", "- ")
	switch {
	case p.by == 1:
		return text
	case len(terms) > 1:
		return fmt.Sprintf("(%s)/%d", text, p.by)
	}
	return fmt.Sprintf("%s/%d", text, p.by)
}

// emitter writes a reading into a model.
type emitter struct {
	*analysis
	editor *edit.Editor
	change *edit.Change
	graph  *onnx.Graph
	inputs map[*onnx.Value]*onnx.Value // values of the changed model, by those of the analyzed one
	made   map[string]*onnx.Value
}

func (e *emitter) ints(v ...int64) *onnx.Value {
	key := fmt.Sprint("ints", v)
	return e.once(key, func() *onnx.Value {
		return e.change.AddInitializer(e.graph, onnx.NewInt64s("free_sizes", v))
	})
}

func (e *emitter) scalar(n int64) *onnx.Value {
	return e.once(fmt.Sprint("scalar", n), func() *onnx.Value {
		t := onnx.NewInt64s("free_number", []int64{n})
		t.Dims = []int64{}
		return e.change.AddInitializer(e.graph, t)
	})
}

func (e *emitter) once(key string, build func() *onnx.Value) *onnx.Value {
	if e.made[key] == nil {
		e.made[key] = build()
	}
	return e.made[key]
}

// op adds a node, or returns the value of an existing one that computes the same.
func (e *emitter) op(op string, attrs []*onnx.Attribute, in ...*onnx.Value) *onnx.Value {
	key := op + onnx.AttributesKey(attrs) + strings.Join(onnx.Names(in), "\x00")
	return e.once(key, func() *onnx.Value {
		out := e.graph.NewValue("free_" + strings.ToLower(op))
		e.change.SetAttr(e.editor.AddNode(e.change, e.graph, rule, op, out, in...), attrs...)
		return out
	})
}

// size returns a dimension as a list of one number.
func (e *emitter) size(i int) *onnx.Value {
	p := e.dims[i].places[0]
	return e.op("Gather", nil, e.op("Shape", nil, e.inputs[p.input]), e.ints(int64(p.axis)))
}

// number returns a sum as a list of one number.
func (e *emitter) number(p *sum) *onnx.Value {
	var total *onnx.Value
	add := func(k int64, v *onnx.Value) {
		if k == 0 {
			return
		}
		if k != 1 && v != nil {
			v = e.op("Mul", nil, v, e.ints(k))
		} else if v == nil {
			v = e.ints(k)
		}
		if total != nil {
			v = e.op("Add", nil, total, v)
		}
		total = v
	}
	for i := range e.dims {
		for k := range i {
			if x := p.two[[2]int{k, i}]; x != 0 {
				add(x, e.op("Mul", nil, e.size(k), e.size(i)))
			}
		}
	}
	for i, x := range p.one {
		if x != 0 {
			add(x, e.size(i))
		}
	}
	add(p.constant, nil)
	if p.by != 1 {
		total = e.op("Div", nil, total, e.ints(p.by))
	}
	return total
}

// list returns numbers, each a constant or a sum, as one list.
func (e *emitter) list(numbers []int64, sums map[int]*sum) *onnx.Value {
	var parts []*onnx.Value
	var run []int64
	flush := func() {
		if len(run) > 0 {
			parts, run = append(parts, e.ints(run...)), nil
		}
	}
	for i, n := range numbers {
		if p := sums[i]; p != nil {
			flush()
			parts = append(parts, e.number(p))
		} else {
			run = append(run, n)
		}
	}
	if flush(); len(parts) == 1 {
		return parts[0]
	}
	return e.op("Concat", []*onnx.Attribute{onnx.IntAttr("axis", 0)}, parts...)
}

// constant returns the replacement of a constant and describes its elements or shape; nil if it stays.
func (e *emitter) constant(r *reading, c *constant) (*onnx.Value, string, error) {
	sums, lengths := map[int]*sum{}, map[int]*sum{}
	var diag *sum
	for s := range r.factors {
		if s.node != c.node || s.input != c.input {
			continue
		}
		p := e.sum(r, c, s)
		if axis, ok := s.axis(); ok {
			lengths[axis] = p
		} else if s.part == diagonal {
			diag = p
		} else {
			sums[s.part] = p
		}
	}
	t := c.tensor
	if c.inferred >= 0 {
		delete(sums, c.inferred)
		t = &reference.Tensor{DataType: t.DataType, Shape: t.Shape, I: slices.Clone(t.I)}
		t.I[c.inferred] = -1
	}
	if len(sums) > 0 {
		v := e.list(t.I, sums)
		if t.Rank() == 0 {
			v = e.op("Squeeze", nil, v)
		} else if t.Rank() > 1 {
			v = e.op("Reshape", nil, v, e.ints(t.Dims()...))
		}
		return e.cast(v, onnx.Int64, t.DataType), e.words(t.I, sums), nil
	}
	if len(lengths) == 0 && diag == nil {
		return nil, "", nil
	}
	words, of := e.words(t.Dims(), lengths), ""
	if diag != nil {
		of = e.text(diag)
	}
	var err error
	v := e.once(fmt.Sprintf("table %p %s %s", c.value, words, of), func() (made *onnx.Value) {
		made, err = e.table(c, lengths, diag)
		return made
	})
	return v, words, err
}

// words formats numbers in brackets.
func (e *emitter) words(numbers []int64, sums map[int]*sum) string {
	list := make([]string, len(numbers))
	for i, n := range numbers {
		if list[i] = fmt.Sprint(n); sums[i] != nil {
			list[i] = e.text(sums[i])
		}
	}
	return "[" + strings.Join(list, ", ") + "]"
}

func (e *emitter) cast(v *onnx.Value, from, to onnx.DataType) *onnx.Value {
	if from == to {
		return v
	}
	return e.op("Cast", []*onnx.Attribute{onnx.IntAttr("to", int64(to))}, v)
}

// table returns a table with other lengths.
func (e *emitter) table(c *constant, lengths map[int]*sum, diag *sum) (*onnx.Value, error) {
	f, t := &c.family, c.tensor
	shape := e.list(t.Dims(), lengths)
	length := func(axis int) *onnx.Value {
		if p := lengths[axis]; p != nil {
			return e.number(p)
		}
		return e.ints(int64(t.Shape[axis]))
	}
	along := func(v *onnx.Value, axis int) *onnx.Value { // numbers along one axis
		dims := slices.Repeat([]int64{1}, t.Rank())
		dims[axis] = -1
		return e.op("Reshape", nil, v, e.ints(dims...))
	}
	count := func(axis int, from *onnx.Value, by int64) *onnx.Value {
		n := e.op("Squeeze", nil, length(axis))
		places := e.op("Range", nil, e.scalar(0), n, e.scalar(1))
		if by != 1 {
			places = e.op("Mul", nil, places, e.scalar(by))
		}
		if from != nil {
			places = e.op("Add", nil, places, from)
		}
		return along(places, axis)
	}
	var v *onnx.Value
	switch {
	case f.waves != nil && (lengths[f.waves.positions] != nil || diag != nil):
		var err error
		if v, err = e.waves(c, length(f.waves.positions), diag); err != nil {
			return nil, err
		}
	case f.plane != nil && (lengths[f.plane.rows] != nil || lengths[f.plane.columns] != nil || diag != nil):
		p, start := f.plane, e.scalar(f.plane.start)
		if diag != nil {
			start = e.number(diag)
		}
		v = e.op("Add", nil, count(p.rows, start, -1), count(p.columns, nil, 1))
		if p.magnitude {
			v = e.op("Abs", nil, v)
		}
		if t.I != nil {
			v = e.cast(e.op("Mul", nil, v, e.scalar(int64(p.rates[0]))), onnx.Int64, t.DataType)
			break
		}
		rates := &reference.Tensor{DataType: t.DataType, Shape: t.Shape, F: p.rates}
		for axis, even := range f.even {
			if even || p.has(axis) {
				rates = slice(rates, axis, 0, 1)
			}
		}
		stored, err := rates.ToONNX("free_rates")
		if err != nil {
			return nil, err
		}
		v = e.op("Mul", nil, e.cast(v, onnx.Int64, t.DataType), e.change.AddInitializer(e.graph, stored))
	case f.grid != nil:
		parts, each := []*onnx.Value{}, e.list(append(slices.Clone(t.Dims()[:t.Rank()-1]), 1), lengths)
		for _, l := range f.grid {
			p := e.scalar(l.start)
			if l.by != 0 {
				p = count(l.axis, p, l.by)
			}
			parts = append(parts, e.op("Expand", nil, p, each))
		}
		axis := onnx.IntAttr("axis", int64(t.Rank()-1))
		v = e.cast(e.op("Concat", []*onnx.Attribute{axis}, parts...), onnx.Int64, t.DataType)
	case f.linear >= 0:
		var start *onnx.Value
		if diag != nil {
			start = e.number(diag)
		} else if f.start != 0 {
			start = e.scalar(f.start)
		}
		v = e.cast(count(f.linear, start, f.by), onnx.Int64, t.DataType)
	case f.step || f.window > 0:
		rows, columns := t.Rank()-2, t.Rank()-1
		if f.step {
			rows, columns = f.rows, f.columns
		}
		ahead := e.op("Sub", nil, count(columns, nil, 1), count(rows, nil, 1))
		var beyond *onnx.Value
		if f.window > 0 {
			beyond = e.op("LessOrEqual", nil, ahead,
				e.op("Sub", nil, e.op("Sub", nil, length(columns), length(rows)), e.ints(f.window)))
		}
		if !f.step {
			if v = beyond; t.I[0] != 0 {
				v = e.op("Not", nil, v)
			}
			break
		}
		limit := e.ints(f.diagonal)
		if diag != nil {
			limit = e.number(diag)
		}
		if later := e.op("Greater", nil, ahead, limit); beyond != nil {
			beyond = e.op("Or", nil, later, beyond)
		} else {
			beyond = later
		}
		var err error
		if v, err = e.either(beyond, t, f.high, f.low); err != nil {
			return nil, err
		}
	default:
		base := t
		for axis := range lengths { // all equal along it
			base = slice(base, axis, 0, 1)
		}
		stored, err := base.ToONNX(c.value.Name + "_row")
		if err != nil {
			return nil, err
		}
		v = e.change.AddInitializer(e.graph, stored)
	}
	return e.op("Expand", nil, v, shape), nil
}

// either returns one element of a table where a condition holds, and another one elsewhere.
func (e *emitter) either(where *onnx.Value, t *reference.Tensor, yes, no int) (*onnx.Value, error) {
	if t.DataType == onnx.Bool {
		if t.I[yes] != 0 {
			return where, nil
		}
		return e.op("Not", nil, where), nil
	}
	common := onnx.Int64
	if t.F != nil {
		common = onnx.Float
	}
	value := func(i int) (*onnx.Value, error) {
		x := &reference.Tensor{DataType: common, Shape: []int{1}}
		if t.F != nil {
			x.F = t.F[i : i+1]
		} else {
			x.I = t.I[i : i+1]
		}
		stored, err := x.ToONNX("free_element")
		if err != nil {
			return nil, err
		}
		return e.change.AddInitializer(e.graph, stored), nil
	}
	a, err := value(yes)
	if err != nil {
		return nil, err
	}
	b, err := value(no)
	if err != nil {
		return nil, err
	}
	return e.cast(e.op("Where", nil, where, a, b), common, t.DataType), nil
}
