package weights

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// Rule is how the tensor of an initializer was found.
type Rule string

// The rules, in the order in which they are tried.
const (
	ByMap    Rule = "map"    // the map names it
	ByName   Rule = "name"   // the initializer's name is that of a parameter
	ByModule Rule = "module" // the metadata or names of the nodes that read it say the parameter
	ByRole   Rule = "role"   // so does its part in a decoder layer
	ByTie    Rule = "tie"    // the checkpoint has a token embedding for the head, or a head for the embedding
	ByPlace  Rule = "place"  // another initializer refers to the same external data
)

// assignment is an initializer with what it is made of.
type assignment struct {
	value   *onnx.Value
	recipe  *recipe
	rule    Rule
	tensors []*Tensor
	present bool  // it has its elements already
	equal   *bool // and they are the checkpoint's; nil where that was not compared
	tied    *assignment
}

// Plan is the result of Match.
type Plan struct {
	c           *Checkpoint
	assignments []*assignment
	missing     []MissingKey
	without     []*onnx.Value // what is missing
	unexpected  []*Tensor
	unusedMap   []string
	execution   *execution
}

// MatchOptions change what Match looks for.
type MatchOptions struct {
	// Map says for some initializers, or all, which tensors they are; rules find the others.
	Map Map
	// Replace loads initializers that have their elements already, too, where a tensor is found for them.
	Replace bool
}

type matcher struct {
	c      *Checkpoint
	look   *lookup
	stored map[string]layout
	roles  map[*onnx.Value]string

	entries  Map
	found    map[*onnx.Value]*assignment
	why      map[*onnx.Value]error // nothing was found
	consumed map[*Tensor]bool
}

// Match finds for each initializer whose external data are missing the tensor of the checkpoint that it is. What it does not
// find is part of the plan.
func Match(m *onnx.Model, c *Checkpoint, o MatchOptions) (*Plan, error) {
	p := &Plan{c: c}
	x := &matcher{c: c, entries: o.Map, look: newLookup(c), stored: map[string]layout{}, roles: roles(m),
		found: map[*onnx.Value]*assignment{}, why: map[*onnx.Value]error{}, consumed: map[*Tensor]bool{}}
	var values []*onnx.Value // that may be loaded
	absent, used := map[*onnx.Value]bool{}, map[string]bool{}
	for _, g := range m.Graphs() {
		for _, v := range g.Initializers() {
			used[v.Name] = true
			if v.Const.External != nil {
				_, err := v.Const.Bytes()
				absent[v] = errors.Is(err, onnx.ErrMissingData)
			}
			if absent[v] || worthLoading(v.Const) {
				values = append(values, v)
			}
		}
	}
	for name := range o.Map {
		if !used[name] {
			p.unusedMap = append(p.unusedMap, name)
		}
	}
	slices.Sort(p.unusedMap)
	x.run(values)
	for _, v := range values {
		a := x.found[v]
		switch {
		case a != nil:
			a.present = !absent[v] && !o.Replace
			if a.present {
				a.equal = a.compare()
			}
			p.assignments = append(p.assignments, a)
		case absent[v]:
			p.missing = append(p.missing, missingKey(v, x.why[v]))
			p.without = append(p.without, v)
		}
	}
	p.tie()
	for _, t := range c.Tensors {
		if !x.consumed[t] {
			p.unexpected = append(p.unexpected, t)
		}
	}
	slices.SortFunc(p.unexpected, func(a, b *Tensor) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(p.missing, func(a, b MissingKey) int { return strings.Compare(a.Name, b.Name) })
	return p, nil
}

func missingKey(v *onnx.Value, why error) MissingKey {
	k := MissingKey{Name: v.Name, DataType: v.Const.DataType.String(), Shape: shape(v.Const.Dims)}
	var wrong *mismatch
	if errors.As(why, &wrong) {
		k.Tensor, k.Found = wrong.tensor, shape(wrong.found)
	}
	if why != nil {
		k.Reason = why.Error()
	}
	return k
}

// run finds what there is for the initializers; ties come last, when it is known which tensors have a use of their own.
func (x *matcher) run(values []*onnx.Value) {
	for _, v := range values {
		if _, mapped := x.entries[v.Name]; !mapped {
			x.survey(v)
		}
	}
	for _, assign := range []func(v *onnx.Value) (*assignment, error){x.assign, x.tied} {
		for _, v := range values {
			if x.found[v] != nil {
				continue
			}
			a, err := assign(v)
			if a == nil {
				if x.why[v] == nil {
					x.why[v] = err
				}
				continue
			}
			x.found[v] = a
			for _, t := range a.tensors {
				x.consumed[t] = true
			}
		}
	}
}

// worthLoading leaves out shapes, axes and single numbers, which are parts of the graph.
func worthLoading(t *onnx.Tensor) bool { return t.DataType.IsFloat() && t.Len() > 1 }

// candidate is a name that an initializer may have in a checkpoint.
type candidate struct {
	name string
	rule Rule
}

func (x *matcher) candidates(v *onnx.Value) []candidate {
	list := []candidate{{v.Name, ByName}}
	for _, name := range parameterNames(v) {
		list = append(list, candidate{name, ByModule})
	}
	if name := x.roles[v]; name != "" {
		list = append(list, candidate{name, ByRole})
	}
	return list
}

// survey learns from an initializer how the checkpoint stores its matrices.
func (x *matcher) survey(v *onnx.Value) {
	if len(v.Const.Dims) < 2 {
		return
	}
	for _, c := range x.candidates(v) {
		if t, err := x.look.find(c.name); t != nil && err == nil {
			x.learn(v, matrix{t.Name, t.Dims, t.arch != nil, storedLike(t.Name)})
			return
		}
	}
}

// assign finds what the initializer is made of. It gives nil, and why if that is known, where nothing is found.
func (x *matcher) assign(v *onnx.Value) (*assignment, error) {
	if e, ok := x.entries[v.Name]; ok {
		return x.mapped(v, e)
	}
	var first error
	var stack *assignment // of experts, whose module says no parameter
	for _, c := range x.candidates(v) {
		a, err := x.named(v, c)
		switch {
		case a != nil && len(v.Const.Dims) == 3 && c.rule == ByModule:
			if stack != nil && stack.recipe.key() != a.recipe.key() {
				return nil, fmt.Errorf("it may be %s or %s: give a map", stack.tensors[0].Name, a.tensors[0].Name)
			}
			stack = a
		case a != nil:
			return a, nil
		case first == nil:
			first = err
		}
	}
	return stack, first
}

// tied takes the token embedding for a head that the checkpoint lacks, or a head that nothing else wants for the embedding.
func (x *matcher) tied(v *onnx.Value) (a *assignment, err error) {
	if _, mapped := x.entries[v.Name]; mapped || x.why[v] != nil {
		return nil, nil
	}
	for _, c := range x.candidates(v) {
		t, err := x.look.tied(c.name)
		switch {
		case err != nil:
			return nil, err
		case t == nil:
			continue
		case x.c.untied:
			return nil, fmt.Errorf("the checkpoint has %s alone, and its config.json says that head and token embedding are two (tie_word_embeddings)", t.Name)
		case hasName(c.name, embeddings) && x.consumed[t]:
			continue
		}
		if a, err = x.single(v, t, c.rule == ByName); a != nil {
			a.rule = ByTie
		}
		return a, err
	}
	return nil, nil
}

// named looks a parameter up: a tensor of its own, or one that is put together.
func (x *matcher) named(v *onnx.Value, c candidate) (a *assignment, err error) {
	t, err := x.look.find(c.name)
	if t == nil && err == nil && strings.Contains(c.name, ".mlp.") { // Mixtral's checkpoints have an older name for it
		t, err = x.look.find(strings.Replace(c.name, ".mlp.", ".block_sparse_moe.", 1))
	}
	if t == nil && err == nil {
		t, err = x.look.head(c.name)
	}
	switch {
	case err != nil:
		return nil, err
	case t != nil:
		a, err = x.single(v, t, c.rule == ByName)
	default:
		a, err = x.experts(v, c)
	}
	if a != nil {
		a.rule = c.rule
	}
	return a, err
}

// single makes an initializer of one tensor.
func (x *matcher) single(v *onnx.Value, t *Tensor, own bool) (*assignment, error) {
	transposed, err := x.orient(v, matrix{t.Name, t.Dims, t.arch != nil, storedLike(t.Name)}, own)
	if err != nil {
		return nil, err
	}
	heads, err := t.arch.ropeHeads(t.Name)
	if err != nil {
		return nil, err
	}
	add, err := x.normFactor(v, t, own)
	if err != nil {
		return nil, err
	}
	r, err := newRecipe(v.Const.Dims, t, transposed, heads, add)
	if err == nil {
		err = r.ungroup(t)
	}
	if err != nil {
		return nil, err
	}
	return x.checked(v, r)
}

// ungroup puts the rows of q, k and v back to each head, where llama.cpp's conversion has put all of q first: (3, heads, d)
// becomes (heads, 3, d).
func (r *recipe) ungroup(t *Tensor) error {
	heads, err := t.arch.qkvHeads(t.Name)
	if heads == 0 || err != nil {
		return err
	}
	whole := r.blocks[0].pieces[0]
	if len(r.blocks) != 1 || whole.rows%(3*heads) != 0 {
		return fmt.Errorf("%s has %d rows, which are no q, k and v of %d heads", t.Name, whole.rows, heads)
	}
	d := whole.rows / (3 * heads)
	r.blocks[0].pieces, r.qkvHeads = nil, heads
	for h := range heads {
		for part := range int64(3) {
			r.blocks[0].pieces = append(r.blocks[0].pieces, piece{t, (part*heads + h) * d * whole.cols, d, whole.cols, 0})
		}
	}
	return nil
}

// newRecipe makes the recipe of one tensor, whose shape has been compared.
func newRecipe(dims []int64, t *Tensor, transposed bool, heads int64, add float32) (*recipe, error) {
	k := len(t.Dims)
	rows, cols, count := int64(1), t.Len(), int64(1)
	if k > 0 {
		rows, cols = t.Dims[0], product(t.Dims[1:])
	}
	if transposed {
		rows, cols, count = t.Dims[k-2], t.Dims[k-1], product(t.Dims[:k-2])
	}
	if heads > 0 && (count != 1 || rows%(2*heads) != 0) {
		return nil, fmt.Errorf("%s has %d rows, which are no pairs of %d heads", t.Name, rows, heads)
	}
	r := &recipe{dims: dims, add: add}
	for i := range count {
		r.blocks = append(r.blocks, block{[]piece{{t, i * rows * cols, rows, cols, heads}}, transposed})
	}
	return r, nil
}

// checked refuses types that the initializer cannot take.
func (x *matcher) checked(v *onnx.Value, r *recipe) (*assignment, error) {
	a := &assignment{value: v, recipe: r}
	want := v.Const.DataType
	for _, b := range r.blocks {
		for _, p := range b.pieces {
			if !p.t.Readable && p.t.DataType != want {
				return nil, fmt.Errorf("%s is of type %s, which cannot be read: requantise the file, or convert it to F16 (llama-quantize)", p.t.Name, p.t.Type)
			}
			isFloat := p.t.DataType == onnx.Undefined || p.t.DataType.IsFloat() || isFloat8(p.t.DataType)
			if p.t.DataType != want && !(isFloat && casts[want] != nil) {
				return nil, fmt.Errorf("%s is of type %s, which does not become %s", p.t.Name, p.t.Type, want)
			}
			if !slices.Contains(a.tensors, p.t) {
				a.tensors = append(a.tensors, p.t)
			}
		}
	}
	return a, nil
}

func isFloat8(t onnx.DataType) bool { return t >= onnx.Float8E4M3FN && t <= onnx.Float8E5M2FNUZ }

// mapped follows an entry of the map.
func (x *matcher) mapped(v *onnx.Value, e MapEntry) (*assignment, error) {
	t := x.c.Tensor(e.Tensor)
	if t == nil {
		return nil, fmt.Errorf("the map names the tensor %s, which no file has", e.Tensor)
	}
	want := v.Const.Dims
	if e.Shape != nil && !same(e.Shape, want) {
		return nil, &mismatch{"the map's entry", e.Shape, want}
	}
	k := len(t.Dims)
	found := slices.Clone(t.Dims)
	if e.Transposed {
		if k < 2 {
			return nil, fmt.Errorf("the map transposes %s, which has %d axes", t.Name, k)
		}
		found[k-1], found[k-2] = found[k-2], found[k-1]
	}
	if !same(found, want) {
		return nil, &mismatch{t.Name, found, want}
	}
	r, err := newRecipe(want, t, e.Transposed, e.RopeHeads, float32(e.Add))
	if err != nil {
		return nil, err
	}
	a, err := x.checked(v, r)
	if a != nil {
		a.rule = ByMap
	}
	return a, err
}

// tie gives initializers that nothing was found for what another one at the same place of the external data has, and notes
// which initializers are the same tensor in the same form.
func (p *Plan) tie() {
	type place struct {
		location string
		offset   int64
		t        onnx.DataType
		dims     string
	}
	at := map[place]*assignment{}
	key := func(v *onnx.Value) place {
		return place{v.Const.External.Location, v.Const.External.Offset, v.Const.DataType, fmt.Sprint(v.Const.Dims)}
	}
	for _, a := range p.assignments {
		if a.value.Const.External != nil {
			at[key(a.value)] = a
		}
	}
	found := map[string]bool{}
	for _, v := range p.without {
		i := slices.IndexFunc(p.missing, func(k MissingKey) bool { return k.Name == v.Name })
		if i < 0 {
			continue
		}
		if a := at[key(v)]; a != nil {
			p.assignments = append(p.assignments, &assignment{value: v, recipe: a.recipe, rule: ByPlace, tensors: a.tensors})
			found[v.Name] = true
		}
	}
	p.missing = slices.DeleteFunc(p.missing, func(k MissingKey) bool { return found[k.Name] })
	first := map[string]*assignment{}
	for _, a := range p.assignments {
		if a.present {
			continue
		}
		k := a.recipe.key() + a.value.Const.DataType.String()
		if first[k] == nil {
			first[k] = a
		} else {
			a.tied = first[k]
		}
	}
}

// key is the same for recipes that give the same elements in the same shape.
func (r *recipe) key() string {
	var b strings.Builder
	fmt.Fprint(&b, r.dims, r.add)
	for _, x := range r.blocks {
		fmt.Fprint(&b, x.transposed)
		for _, p := range x.pieces {
			fmt.Fprintf(&b, "%p %d %d %d %d ", p.t, p.first, p.rows, p.cols, p.heads)
		}
	}
	return b.String()
}

func product(dims []int64) int64 {
	n := int64(1)
	for _, d := range dims {
		n *= d
	}
	return n
}

// shape is never nil, for JSON.
func shape(dims []int64) []int64 { return append([]int64{}, dims...) }
