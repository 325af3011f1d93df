package convert

import (
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/infer"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
)

// Newest returns the newest opset of the standard that Opset converts to.
func Newest() int64 { return known().newest }

// Opset converts the model to version to of the standard's opset, in its graphs, their subgraphs and the bodies of its
// functions, and raises the IR version to the one that belongs to the opset. Other domains stay unchanged, and so do
// the ops that onnxruntime has in the standard's domain. It returns an error for a model older than opset 11 or newer
// than to. Unknown ops and changes that cannot be made are collected in one joined error, and the model then stays
// unchanged.
func Opset(m *onnx.Model, to int64) error {
	from := m.Opset("")
	switch {
	case from == 0:
		return errors.New("the model does not import a standard opset")
	case from < Oldest:
		return fmt.Errorf("the model has opset %d: only opset %d and newer can be converted", from, Oldest)
	case from > to:
		return fmt.Errorf("the model has opset %d: it cannot be converted to the older opset %d", from, to)
	case to > Newest():
		return fmt.Errorf("opset %d is not known: the newest is %d", to, Newest())
	}
	c := &conversion{model: m, to: to}
	var changes []func()
	var errs []error
	for _, s := range c.scopes() {
		s.root.Walk(func(g *onnx.Graph) {
			for _, n := range g.Nodes {
				more, err := s.node(n)
				if err != nil {
					err = fmt.Errorf("%snode %q (%s), opset %d to %d: %w", s.in(), n.Name, n.OpType, s.from, to, err)
					errs = append(errs, err)
				}
				changes = append(changes, more...)
			}
		})
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	for _, change := range changes {
		change()
	}
	c.edit.SetOpset(m, to)
	c.edit.RaiseIR(m, known().irVersion[to])
	return c.edit.Finish()
}

type conversion struct {
	model *onnx.Model
	edit  edit.Change
	to    int64
	facts *infer.Facts // set on first use
}

// scope is the main graph or a function body, with its subgraphs. All of it sees the same constants.
type scope struct {
	*conversion
	root     *onnx.Graph
	function *onnx.Function // nil for the main graph
	from     int64
	integers map[string]*onnx.Value // the constants created so far, by type and elements
}

func (c *conversion) scopes() []*scope {
	list := []*scope{{conversion: c, root: c.model.Graph, from: c.model.Opset("")}}
	for _, f := range c.model.Functions {
		from := f.Opset("")
		if from == 0 {
			from = c.model.Opset("") // onnxruntime and the evaluator assume the same
		}
		list = append(list, &scope{conversion: c, root: f.Body, function: f, from: from})
	}
	for _, s := range list {
		s.integers = map[string]*onnx.Value{}
	}
	return list
}

// in names the scope for an error.
func (s *scope) in() string {
	if s.function == nil {
		return ""
	}
	return fmt.Sprintf("function %s.%s, ", s.function.Domain, s.function.Name)
}

// node returns the changes to make at a node.
func (s *scope) node(n *onnx.Node) ([]func(), error) {
	if !onnx.IsStandardDomain(n.Domain) || s.model.Function(n.Domain, n.OpType, n.Overload) != nil {
		return nil, nil
	}
	versions := known().ops[n.OpType]
	if len(versions) == 0 || versions[0].since > s.from {
		if step, ok := onnxruntimes[n.OpType]; ok && step != nil {
			_, err := step(s, n)
			return nil, err
		} else if ok {
			return nil, nil
		}
	}
	switch {
	case s.from < Oldest:
		return nil, fmt.Errorf("only opset %d and newer can be converted", Oldest)
	case s.from > s.to:
		return nil, errors.New("conversion to an older opset is not possible")
	case len(versions) == 0:
		return nil, fmt.Errorf("it is not an op of the standard opsets %d to %d, or is deprecated", Oldest, Newest())
	case versions[0].since > s.from:
		return nil, fmt.Errorf("the op is a standard op since opset %d", versions[0].since)
	}
	var changes []func()
	for _, v := range versions {
		if v.same || v.since <= s.from || v.since > s.to {
			continue
		}
		step := steps[n.OpType][v.since]
		if step == nil {
			continue
		}
		change, err := step(s, n)
		if err != nil {
			return nil, err
		}
		if change != nil {
			changes = append(changes, change)
		}
	}
	return changes, nil
}

// rank returns the number of dimensions of a value, if it is known.
func (c *conversion) rank(v *onnx.Value) (int, bool) {
	if t, ok := v.Type(); ok && t.HasShape {
		return len(t.Dims), true
	}
	return c.inferred().Rank(v)
}

// dataType returns the element type of a value, onnx.Undefined when it is unknown.
func (c *conversion) dataType(v *onnx.Value) onnx.DataType {
	if t, ok := v.Type(); ok && t.DataType != onnx.Undefined {
		return t.DataType
	}
	return c.inferred().DataType(v)
}

func (c *conversion) inferred() *infer.Facts {
	if c.facts == nil {
		c.facts = infer.Analyze(c.model)
	}
	return c.facts
}

// Oldest is the oldest opset whose op versions are known.
const Oldest = 11

//go:embed versions.txt
var versionsText string

// Since returns the opset of the first known version of an op: the version that opset Oldest has, or the first one. It
// returns 0 for an op that no opset has.
func Since(op string) int64 {
	if versions := known().ops[op]; len(versions) > 0 {
		return versions[0].since
	}
	return 0
}

type version struct {
	since int64
	// same means that, since the version before, only accepted types were added and the text changed.
	same bool
}

// standard is the content of versions.txt: the versions of every op, oldest first, the first opset in which an op has
// bfloat16 if that is not opset 13 (0: none has it), and the IR version of every opset.
type standard struct {
	ops       map[string][]version
	bfloat16  map[string]int64
	irVersion map[int64]int64
	newest    int64
}

var known = sync.OnceValue(func() *standard {
	s, err := parseVersions(versionsText)
	if err != nil {
		panic(err) // the file is compiled in, and every test reads it
	}
	return s
})

func parseVersions(text string) (*standard, error) {
	s := &standard{ops: map[string][]version{}, bfloat16: map[string]int64{}, irVersion: map[int64]int64{}}
	for i, line := range strings.Split(text, "\n") {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] == "#" {
			continue
		}
		for _, w := range words[1:] {
			if words[0] == "ir_version" {
				opset, ir, _ := strings.Cut(w, ":")
				o, err1 := strconv.ParseInt(opset, 10, 64)
				r, err2 := strconv.ParseInt(ir, 10, 64)
				if err1 != nil || err2 != nil {
					return nil, fmt.Errorf("versions.txt:%d: %q is not a pair of an opset and an IR version", i+1, w)
				}
				s.irVersion[o] = r
				s.newest = max(s.newest, o)
				continue
			}
			half, isHalf := strings.CutPrefix(w, "bfloat16:")
			number, same := strings.CutSuffix(half, "=")
			since, err := strconv.ParseInt(number, 10, 64)
			if err != nil {
				return nil, fmt.Errorf("versions.txt:%d: %q is not a version of %s", i+1, w, words[0])
			}
			if isHalf {
				s.bfloat16[words[0]] = since
				continue
			}
			s.ops[words[0]] = append(s.ops[words[0]], version{since, same})
		}
	}
	return s, nil
}
