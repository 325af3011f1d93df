// Package target replaces the fused ops for runtimes other than onnxruntime with the kernels of this toolkit: by ops of
// the standard, by ops of onnxruntime, or by forms that a compiler recognizes. A target is one table in one file. A
// site that it cannot express stays as exported.
package target

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/internal/english"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/ort/kernels"
)

// Mojo is the name of the default target: fused ops with their definitions.
const Mojo = "mojo"

// A Target is a runtime, or a device behind one, to patch a model for.
type Target struct {
	Name string
	// Summary describes in a few words its ops and its users.
	Summary string
	// Opset is the oldest version of the standard that it writes. Older models are converted.
	Opset int64
	// Device is the device in a backend whose fused kernels it uses, or "" if it uses no kernels.
	Device string
	// Mixtures means that its op for MoE includes the router: its rule receives both ops if they are at the same site.
	Mixtures bool
	// Masks selects the masks added to the scores of attention that stay tensors.
	Masks Masks
	// Standard means that it is for any runtime of the standard.
	Standard bool
	// OnCPU means that onnxruntime's CPU provider runs the result and can be asked about it.
	OnCPU bool
	// only is the only version of onnxruntime that has to run the result; nil: all listed ones.
	only *kernels.Version
	// Static means that every dimension must be a number.
	Static bool
	// Rules are tried in order. The first one that supports a fused op writes it.
	Rules []Rule
}

// Masks selects the attention masks that a target needs as tensors added to the scores.
type Masks int

// NoMasks selects only masks that follow from neither positions nor padding. OtherMasks adds those that the standard's
// op has no attributes for. AllMasks selects all.
const (
	NoMasks Masks = iota
	OtherMasks
	AllMasks
)

// A Rule is one line of a target's table.
type Rule struct {
	// Op is the fused op. Emits describes the replacement for people.
	Op, Emits string
	// Write adds the nodes that replace the call. Its error says why the target does not support it.
	Write func(*Call) error
}

var targets = []*Target{ort, standard, qnn, openvino, ascend, ascend310p}

// All lists the targets except Mojo, in the order of the documentation.
func All() []*Target { return append([]*Target(nil), targets...) }

// Lookup finds a target by name. It returns nil for Mojo, which keeps the fused ops.
func Lookup(name string) (*Target, error) {
	if name == Mojo {
		return nil, nil
	}
	known := []string{Mojo}
	name, version, one := strings.Cut(name, "@")
	for _, t := range targets {
		switch {
		case t.Name == name && one:
			return t.version(version)
		case t.Name == name:
			return t, nil
		}
		known = append(known, t.Name)
	}
	return nil, fmt.Errorf("unknown target %q%s; the targets are %s", name, english.Suggestion(name, known),
		strings.Join(known, ", "))
}

// version returns the target for one version of onnxruntime: it writes every op for which that version has CPU kernels.
func (t *Target) version(name string) (*Target, error) {
	if !t.OnCPU {
		return nil, fmt.Errorf("target %s has no versions: %q", t.Name, name)
	}
	var known []string
	for _, v := range kernels.Versions(kernels.CPU) {
		minor := v.Name[:strings.LastIndexByte(v.Name, '.')]
		if name == minor || name == v.Name {
			one := *t
			one.only = &v
			return &one, nil
		}
		known = append(known, minor)
	}
	return nil, fmt.Errorf("target %s: the kernels of onnxruntime %s are not known, only the kernels of %s",
		t.Name, name, strings.Join(known, ", "))
}

// Takes reports whether there is a rule for the fused op, whatever its types and attributes.
func (t *Target) Takes(op string) bool {
	return slices.ContainsFunc(t.Rules, func(r Rule) bool { return r.Op == op })
}

// Write replaces a fused op by the target's form and returns the rule's Emits. An error says why no rule supports the
// op, and the graph is then unchanged.
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

// errOther is the error of a rule for other attributes. It explains nothing to a user.
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
