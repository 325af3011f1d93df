package weights

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/llm/weights/checkpoint"
	"github.com/mojo-patch/mojo-patch/llm/weights/llamacpp"
	"github.com/mojo-patch/mojo-patch/llm/weights/parameters"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// Rule is the way in which an initializer's tensor was found.
type Rule string

// The rules, in the order in which they are tried.
const (
	ByMap    Rule = "map"    // by the map
	ByName   Rule = "name"   // the initializer has a parameter's name
	ByModule Rule = "module" // by the metadata or names of the nodes that read it
	ByRole   Rule = "role"   // by its role in a decoder layer
	ByTie    Rule = "tie"    // the checkpoint has a token embedding for the head, or a head for the embedding
	ByPlace  Rule = "place"  // another initializer refers to the same external data
)

// assignment is an initializer with its source.
type assignment struct {
	value   *onnx.Value
	recipe  *recipe
	rule    Rule
	tensors []*checkpoint.Tensor
	present bool  // it already has its elements
	equal   *bool // whether they equal the checkpoint's; nil if they were not compared
	tied    *assignment
	kept    *matrixRows  // set if it stays quantized
	half    *onnx.Tensor // set if it stays in 16 bits
	why     error        // why it does not although it should
}

// Plan is the result of Match.
type Plan struct {
	c           *checkpoint.Checkpoint
	assignments []*assignment
	missing     []MissingKey
	without     []*onnx.Value // the missing initializers
	unexpected  []*checkpoint.Tensor
	unusedMap   []string
	execution   *execution
	check       *QuantizedCheck // of the quantized weights; nil if it was not requested
}

// MatchOptions are the options of Match.
type MatchOptions struct {
	// Map names the tensors of some or all initializers. Rules find the others.
	Map Map
	// Replace also loads initializers that already have elements, if a tensor is found for them.
	Replace bool
}

type matcher struct {
	c      *checkpoint.Checkpoint
	look   *lookup
	stored map[string]parameters.Layout
	roles  map[*onnx.Value]string

	entries  Map
	found    map[*onnx.Value]*assignment
	why      map[*onnx.Value]error // why it was not found
	consumed map[*checkpoint.Tensor]bool
}

// Match finds the checkpoint's tensor of each initializer whose external data are missing. The plan also lists the
// initializers without a tensor. Match returns an error if head counts in the metadata contradict the tensors, because
// rows would be in the wrong order.
func Match(m *onnx.Model, c *checkpoint.Checkpoint, o MatchOptions) (*Plan, error) {
	p := &Plan{c: c}
	x := &matcher{c: c, entries: o.Map, look: newLookup(c), stored: map[string]parameters.Layout{},
		roles: parameters.Roles(m),
		found: map[*onnx.Value]*assignment{}, why: map[*onnx.Value]error{}, consumed: map[*checkpoint.Tensor]bool{}}
	var values []*onnx.Value // candidates for loading
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
		case absent[v] && errors.Is(x.why[v], llamacpp.ErrHeads): // some tensors would be in the wrong order
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
	slices.SortFunc(p.unexpected, func(a, b *checkpoint.Tensor) int { return strings.Compare(a.Name, b.Name) })
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

// run finds tensors for the initializers. Ties come last, when it is known which tensors are already in use.
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

// worthLoading excludes shapes, axes and single numbers, which are part of the graph.
func worthLoading(t *onnx.Tensor) bool { return t.DataType.IsFloat() && t.Len() > 1 }

func product(dims []int64) int64 {
	n := int64(1)
	for _, d := range dims {
		n *= d
	}
	return n
}

// shape returns a copy that is never nil, for JSON.
func shape(dims []int64) []int64 { return append([]int64{}, dims...) }
