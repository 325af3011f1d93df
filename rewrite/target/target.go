// Package target says what other runtimes than onnxruntime with the kernels of this toolkit take in place of the fused
// ops: ops of the standard, of onnxruntime, or forms that a compiler recognises. A target is one table in one file.
// What it does not take stays in the model as it was exported.
package target

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/internal/english"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// Mojo is the name of the default: fused ops with their definitions.
const Mojo = "mojo"

// Target is a runtime, or a device behind one, that a model is patched for.
type Target struct {
	Name string
	// Summary says in a few words what it writes and for whom.
	Summary string
	// Opset is the least version of the standard that it writes: older models are converted.
	Opset int64
	// Device is the device in a backend whose kernels of fused ops it takes; "" when it takes none.
	Device string
	// Mixtures says that what it takes for MoE is made of the experts and their router: its rule is given both, where
	// they stand together.
	Mixtures bool
	// Masks are those that the model adds to the scores of attention and that stay tensors.
	Masks Masks
	// Standard says that it is for any runtime of the standard.
	Standard bool
	// OnCPU says that onnxruntime's CPU provider runs what it writes, and can be asked about it.
	OnCPU bool
	// Static says that it takes no dimension that is not a number.
	Static bool
	// Rules are tried in order: the first that takes a fused op writes it.
	Rules []Rule
}

// Masks says which masks of attention a target wants as the tensors that the model adds to the scores.
type Masks int

// The choices: those that follow from no positions and no padding, those that the standard's op has no attributes for
// as well, and all.
const (
	NoMasks Masks = iota
	OtherMasks
	AllMasks
)

// Rule is one line of a target's table.
type Rule struct {
	// Op is the fused op that it takes, Emits what it writes in its place, for people.
	Op, Emits string
	// Write adds the nodes that take the place of the call. Its error says why the target does not take it.
	Write func(*Call) error
}

var targets = []*Target{ort, standard, qnn, openvino, ascend, ascend310p}

// All lists the targets but Mojo, in the order of the documentation.
func All() []*Target { return append([]*Target(nil), targets...) }

// Lookup finds a target. It is nil for Mojo, where fused ops stay what they are.
func Lookup(name string) (*Target, error) {
	if name == Mojo {
		return nil, nil
	}
	known := []string{Mojo}
	for _, t := range targets {
		if t.Name == name {
			return t, nil
		}
		known = append(known, t.Name)
	}
	return nil, fmt.Errorf("there is no target %q%s; there are %s", name, english.Suggestion(name, known),
		strings.Join(known, ", "))
}

// Takes reports whether a rule is for the fused op, whatever its types and attributes.
func (t *Target) Takes(op string) bool {
	return slices.ContainsFunc(t.Rules, func(r Rule) bool { return r.Op == op })
}

// Write puts what the target takes in the place of a fused op, and returns the rule's Emits. An error says why no rule
// takes it, and leaves the graph as it was.
func (t *Target) Write(c *Call) (emits string, err error) {
	var why []string
	for _, r := range t.Rules {
		if r.Op != c.Op {
			continue
		}
		w := *c
		w.edit.Undoable = true
		err := r.Write(&w)
		for i := 0; err == nil && i < len(w.nodes); i++ {
			err = t.has(w.nodes[i], c.Site.Opset)
		}
		if err != nil {
			if err := w.edit.Undo(); err != nil {
				return "", err
			}
			if !errors.Is(err, errOther) {
				why = append(why, err.Error())
			}
			continue
		}
		return r.Emits, w.finish()
	}
	if len(why) == 0 {
		return "", fmt.Errorf("target %s has nothing for mojo.%s", t.Name, c.Op)
	}
	return "", fmt.Errorf("target %s: %s", t.Name, strings.Join(why, "; "))
}

// errOther is the error of a rule that is for other attributes: why it does not take a fused op explains nothing.
var errOther = errors.New("another rule's")

func halfOr32(op string, types ...onnx.DataType) error {
	return onlyFloats(op+" takes float32 and float16 on the CPU", types)
}

func onlyFloats(what string, types []onnx.DataType) error {
	for _, t := range types {
		if t != onnx.Float && t != onnx.Float16 {
			return fmt.Errorf("%s, not %s", what, t)
		}
	}
	return nil
}
