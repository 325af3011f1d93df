package convert

import (
	"errors"
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
)

// OldestLowered is the oldest opset that Lower converts to. The additions of all newer opsets are known.
const OldestLowered = 21

// addition is a feature that a version of an op adds to the version before.
type addition struct {
	// attributes holds the value of each new attribute that means the old behavior, or nil if its mere presence changes
	// the meaning.
	attributes map[string]*onnx.Attribute
	input      int // first new input, 0 if all are old
}

// additions has an entry for every version after OldestLowered of an older op, except versions that versions.txt marks
// as the same.
var additions = map[string]map[int64]addition{
	"Attention": {24: {input: 6}, 25: {attributes: map[string]*onnx.Attribute{
		"left_window_size": onnx.IntAttr("", -1), "right_window_size": onnx.IntAttr("", -1)}}},
	"Cast":             {24: {attributes: map[string]*onnx.Attribute{"round_mode": onnx.StringAttr("", "up")}}},
	"CastLike":         {24: {attributes: map[string]*onnx.Attribute{"round_mode": onnx.StringAttr("", "up")}}},
	"DequantizeLinear": {23: {attributes: map[string]*onnx.Attribute{"output_dtype": onnx.IntAttr("", 0)}}},
	"QuantizeLinear":   {23: {attributes: map[string]*onnx.Attribute{"precision": onnx.IntAttr("", 0)}}},
	"Range":            {27: {attributes: map[string]*onnx.Attribute{"stash_type": onnx.IntAttr("", 1)}}},
	"ReduceLogSum":     {28: {}}, // accepts fewer types
	"ReduceLogSumExp":  {28: {}},
	"SpaceToDepth":     {28: {attributes: map[string]*onnx.Attribute{"mode": onnx.StringAttr("", "DCR")}}},
}

// newTypes are the element types that no opset up to OldestLowered has.
var newTypes = []onnx.DataType{onnx.Float4E2M1, onnx.Float8E8M0, onnx.Int2, onnx.Uint2}

// Lowers returns why a node of opset from cannot be expressed in the older opset to (at least OldestLowered), or nil if
// it can. It checks the meaning of ops, not the types of their inputs.
func Lowers(n *onnx.Node, from, to int64) error {
	if to < OldestLowered {
		return fmt.Errorf("opset %d is older than %d", to, OldestLowered)
	}
	if !onnx.IsStandardDomain(n.Domain) || from <= to {
		return nil
	}
	versions := known().ops[n.OpType]
	if _, runtimes := onnxruntimes[n.OpType]; runtimes && (len(versions) == 0 || versions[0].since > from) {
		return nil
	}
	if len(versions) == 0 {
		return errors.New("it is not a known standard op")
	}
	if since := versions[0].since; since > to {
		return fmt.Errorf("%s is an op of opset %d", n.OpType, since)
	}
	return added(n, to, from, func(given, before *onnx.Attribute) bool {
		return given.RefName == "" && given.Int == before.Int && given.String == before.String
	})
}

// Adds returns the additions that a node uses from versions of its op newer than after, up to upTo, whatever their
// values: a runtime that does not know the version refuses them. It returns nil if there are no such additions.
func Adds(n *onnx.Node, after, upTo int64) error {
	return added(n, after, upTo, func(_, _ *onnx.Attribute) bool { return false })
}

// added returns the additions of newer versions that a node uses, except attributes for which same returns true.
func added(n *onnx.Node, after, upTo int64, same func(given, before *onnx.Attribute) bool) error {
	for _, v := range known().ops[n.OpType] {
		if v.same || v.since <= after || v.since > upTo {
			continue
		}
		a, ok := additions[n.OpType][v.since]
		if !ok {
			return fmt.Errorf("the changes in opset %d are not known", v.since)
		}
		for name, before := range a.attributes {
			if given := n.Attr(name); given != nil && !same(given, before) {
				return fmt.Errorf("its attribute %s is new in opset %d", name, v.since)
			}
		}
		if a.input > 0 && n.Input(a.input) != nil {
			return fmt.Errorf("its input %d is new in opset %d", a.input, v.since)
		}
	}
	return nil
}

// Lower converts a model, with all its graphs and functions, to an older opset of the standard, at least OldestLowered.
// It changes the imports, removes attributes that the older versions lack, and sets the IR version that belongs to the
// opset. If a node cannot be lowered (see Lowers), or an element type is newer, nothing is changed and the error names
// all of them.
func Lower(m *onnx.Model, to int64) error {
	from := m.Opset("")
	if from <= to {
		return nil
	}
	var errs []error
	var c edit.Change
	look := func(root *onnx.Graph, from int64) {
		root.Walk(func(g *onnx.Graph) {
			for _, v := range slices.Concat(g.Inputs, g.Outputs, g.Initializers()) {
				t, _ := v.Type()
				if v.Const != nil {
					t.DataType = v.Const.DataType
				}
				if slices.Contains(newTypes, t.DataType) {
					errs = append(errs, fmt.Errorf("%q is of type %s, which opset %d lacks", v.Name, t.DataType, to))
				}
			}
			for _, n := range g.Nodes {
				if m.Function(n.Domain, n.OpType, n.Overload) != nil {
					continue
				}
				err := Lowers(n, from, to)
				if t := onnx.DataType(n.AttrInt("to", 0)); n.Is("Cast") && slices.Contains(newTypes, t) {
					err = fmt.Errorf("it casts to %s", t)
				}
				if err != nil {
					errs = append(errs, fmt.Errorf("node %q (%s), opset %d to %d: %w", n.Label(), n.OpType, from, to,
						err))
				}
			}
		})
	}
	look(m.Graph, from)
	for _, f := range m.Functions {
		of := f.Opset("")
		if of == 0 {
			of = from
		}
		if of < to {
			errs = append(errs, fmt.Errorf("function %s.%s has opset %d", f.Domain, f.Name, of))
		}
		look(f.Body, of)
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	for _, g := range m.Graphs() {
		for _, n := range g.Nodes {
			if !onnx.IsStandardDomain(n.Domain) {
				continue
			}
			for since, a := range additions[n.OpType] {
				for name := range a.attributes {
					if since > to && n.Attr(name) != nil {
						c.RemoveAttr(n, name)
					}
				}
			}
		}
	}
	c.SetOpset(m, to)
	c.LowerIR(m, known().irVersion[to])
	return c.Finish()
}
