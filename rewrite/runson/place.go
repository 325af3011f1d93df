// Package runson makes a model use only ops for which a provider of a version of onnxruntime has kernels.
package runson

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/ort/kernels"
	"github.com/mojo-patch/mojo-patch/rewrite/convert"
)

// A Place is where a model will run: a provider of a version of onnxruntime.
type Place struct {
	Device  string // kernels.CPU or kernels.CUDA
	Version kernels.Version
}

// String returns, for example, "CPU in onnxruntime 1.31.1".
func (p *Place) String() string { return fmt.Sprintf("%s in onnxruntime %s", p.Device, p.Version.Name) }

// ParsePlace parses PROVIDER or PROVIDER@VERSION, such as cpu@1.29. The default version is atHand, the installed one.
// If that is "" or too new to be known, it is the newest known version.
func ParsePlace(text, atHand string) (*Place, error) {
	name, version, given := strings.Cut(text, "@")
	p := &Place{}
	switch strings.ToLower(name) {
	case "cpu":
		p.Device = kernels.CPU
	case "cuda":
		p.Device = kernels.CUDA
	default:
		return nil, fmt.Errorf("%q: only the kernels of cpu and cuda are known", name)
	}
	if !given {
		version = atHand
	}
	known := kernels.Versions(p.Device)
	names := make([]string, len(known))
	for i, v := range known {
		names[i] = v.Name
	}
	i := slices.IndexFunc(known, func(v kernels.Version) bool { return minor(v.Name) == minor(version) })
	switch {
	case i >= 0:
		p.Version = known[i]
	case !given && (version == "" || older(known[len(known)-1].Name, version)):
		p.Version = known[len(known)-1]
	default:
		return nil, fmt.Errorf("the kernels of %s are known only for onnxruntime %s, not for %s", p.Device,
			strings.Join(names, ", "), version)
	}
	return p, nil
}

// minor returns the first two numbers of a version.
func minor(version string) string {
	parts := strings.SplitN(version, ".", 3)
	return strings.Join(parts[:min(2, len(parts))], ".")
}

// older reports whether a version is older than another one.
func older(a, b string) bool {
	var x, y [2]int
	fmt.Sscanf(minor(a), "%d.%d", &x[0], &x[1])
	fmt.Sscanf(minor(b), "%d.%d", &y[0], &y[1])
	return slices.Compare(x[:], y[:]) < 0
}

// refused returns why the provider has no kernel for a node with inputs of these types in a model that imports this
// opset of the node's domain, or nil if it has one.
func (p *Place) refused(n *onnx.Node, opset int64, types []onnx.DataType) error {
	if err := kernels.RefusedReduction(p.Device, n, types); err != nil {
		return err
	}
	err := p.Version.Refused(p.Device, n.Domain, n.OpType, opset, types)
	if err != nil && p.Device == kernels.CPU && slices.Contains(types, onnx.Float16) {
		// onnxruntime itself adds casts around nodes without a CPU kernel for float16.
		if p.Version.Refused(p.Device, n.Domain, n.OpType, opset,
			with(types, widening{onnx.Float16: onnx.Float})) == nil {
			return nil
		}
	}
	return err
}

// knows returns an error if a node of the standard uses features that the runtime does not know yet, although it opens
// models of the opset.
func (p *Place) knows(n *onnx.Node, opset int64) error {
	since := p.Version.Since(n.Domain, n.OpType, opset)
	if !onnx.IsStandardDomain(n.Domain) || since < convert.OldestLowered {
		return nil
	}
	return convert.Adds(n, since, opset)
}

// widening maps types to their replacements.
type widening map[onnx.DataType]onnx.DataType

// with returns the types after a widening.
func with(types []onnx.DataType, w widening) []onnx.DataType {
	list := slices.Clone(types)
	for i, t := range list {
		if wide, ok := w[t]; ok {
			list[i] = wide
		}
	}
	return list
}
