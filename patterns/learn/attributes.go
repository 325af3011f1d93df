package learn

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/notation"
)

// byPlace are the ops that take or add elements by index. The view Channels expresses this for the last axis only.
var byPlace = map[string]bool{"Slice": true, "Split": true, "Pad": true}

// sized are attributes that are sizes, or that change nothing: a pattern leaves them open.
var sized = map[string]bool{"num_outputs": true, "allowzero": true, "noop_with_empty_axes": true}

// word matches the names of the notation.
var word = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// firstAxis are the ops whose axis is 0 by default.
var firstAxis = map[string]bool{"Gather": true, "GatherElements": true, "Split": true}

// nodeAttributes writes the pattern's demands on a node's attributes, and returns the inputs that become arguments.
func (w *writer) nodeAttributes(t *term, n *onnx.Node) ([]*onnx.Value, error) {
	demand := func(a notation.AttrPattern) {
		if a.As == "" {
			a.Capture = -1
		}
		t.call.Attrs = append(t.call.Attrs, a)
	}
	inputs := n.Inputs
	if byPlace[n.OpType] && t.call.Domain == "" {
		return nil, fmt.Errorf(
			"its node %q (%s) takes or adds parts by position, which the notation cannot express", n.Name, n.OpType)
	}
	if n.Is("Cast") && w.Facts.DataType(n.Input(0)).IsFloat() && w.Facts.DataType(n.Outputs[0]).IsFloat() {
		t.call.Optional = true
		return inputs, nil
	}
	if by := match.AttributeInputs[n.OpType]; len(by) > 0 && t.call.Domain == "" && !n.Is("Clip") {
		inputs = inputs[:min(1, len(inputs))]
		for _, name := range []string{"axes", "k", "value", "repeats"} {
			i, ok := by[name]
			if !ok || n.Input(i) == nil {
				continue
			}
			switch list, known := w.Ints(n.Input(i)); {
			case !known && name == "repeats": // these follow from the sizes of inputs
			case !known:
				return nil, fmt.Errorf("%s of its node %q (%s) are not constant", name, n.Name, n.OpType)
			case name == "axes":
				demand(notation.AttrPattern{Name: name, Ints: w.fromLast(n, list)})
			default:
				demand(notation.AttrPattern{Name: name, Ints: list})
			}
		}
	}
	for _, a := range n.Attributes {
		if err := w.nodeAttribute(n, a, demand); err != nil {
			return nil, err
		}
	}
	switch rank, ok := w.Facts.Rank(n.Input(0)); {
	case t.call.Domain != "":
	case ok && firstAxis[n.OpType] && n.Attr("axis") == nil:
		demand(notation.AttrPattern{Name: "axis", Number: pointer(int64(-rank))})
	case strings.HasPrefix(n.OpType, "Reduce") && n.Attr("keepdims") == nil:
		demand(notation.AttrPattern{Name: "keepdims", Number: pointer(1)})
	}
	slices.SortStableFunc(t.call.Attrs, func(a, b notation.AttrPattern) int {
		return strings.Compare(a.Name, b.Name)
	})
	return inputs, nil
}

func (w *writer) nodeAttribute(n *onnx.Node, a *onnx.Attribute, demand func(notation.AttrPattern)) error {
	p := notation.AttrPattern{Name: a.Name}
	number := func(x float64) { p.Number = &x }
	switch {
	case a.RefName != "":
		return fmt.Errorf("its node %q (%s) reads an attribute of its function", n.Name, n.OpType)
	case sized[a.Name]:
		return nil
	case !word.MatchString(a.Name) || strings.ContainsAny(a.String, "\"\n"): // would end the quoted text
		return fmt.Errorf("its node %q (%s) has the attribute %q, which the notation cannot express", n.Name,
			n.OpType, a.Name)
	case a.Type == onnx.AttrInt && a.Name == "to":
		text := onnx.DataType(a.Int).String()
		p.Text = &text
	case a.Type == onnx.AttrInt && a.Name == "axis":
		number(float64(w.fromLast(n, []int64{a.Int})[0]))
	case a.Type == onnx.AttrInt:
		number(float64(a.Int))
	case a.Type == onnx.AttrFloat:
		if p.As = w.generalized(float64(a.Float)); p.As == "" {
			number(short(float64(a.Float)))
		}
	case a.Type == onnx.AttrString:
		p.Text = &a.String
	case a.Type == onnx.AttrInts && a.Name == "axes":
		p.Ints = w.fromLast(n, a.Ints)
	case a.Type == onnx.AttrInts:
		p.Ints = a.Ints
	default:
		return fmt.Errorf("its node %q (%s) has the attribute %q, which the notation cannot express", n.Name,
			n.OpType, a.Name)
	}
	demand(p)
	return nil
}

// fromLast counts axes from the last one, for Unsqueeze in its output and for other nodes in their input.
func (w *writer) fromLast(n *onnx.Node, axes []int64) []int64 {
	rank, ok := w.Facts.Rank(n.Input(0))
	if n.Is("Unsqueeze") {
		rank += len(axes)
	}
	out := slices.Clone(axes)
	for i, axis := range out {
		if ok && axis >= 0 {
			out[i] = axis - int64(rank)
		}
	}
	return out
}
