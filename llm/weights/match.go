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
	kept    *matrixRows  // it stays quantised
	half    *onnx.Tensor // it stays in 16 bits
	why     error        // it does not, though it was asked for
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
	check       *QuantisedCheck // of what stays quantised; nil where that was not asked for
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

// Match finds for each initializer whose external data are missing the tensor of the checkpoint that it is. What it
// does not find is part of the plan.
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
		case absent[v] && errors.Is(x.why[v], errHeads): // a part of the tensors would be in a wrong order
			return nil, fmt.Errorf("%s cannot be loaded: %w", v.Name, x.why[v])
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

func product(dims []int64) int64 {
	n := int64(1)
	for _, d := range dims {
		n *= d
	}
	return n
}

// shape is never nil, for JSON.
func shape(dims []int64) []int64 { return append([]int64{}, dims...) }
