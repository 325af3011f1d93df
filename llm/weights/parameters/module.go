// Package parameters finds out which parameter of a module an initializer of a graph is: by the metadata and names of
// the nodes that read it, and by its role in a decoder.
package parameters

import (
	"regexp"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// Names lists possible PyTorch names of a parameter, derived from the nodes that read the initializer.
func Names(v *onnx.Value) []string {
	var names []string
	if n := attentionOfSinks(v); n != nil {
		for _, module := range modulesOf(n) {
			names = append(names, module+".sinks")
		}
	}
	for _, u := range Readers(v) {
		role := roleOf(v, u)
		for _, module := range modulesOf(u.Node) {
			parameters := []string{role}
			if rank := len(v.Const.Dims); strings.HasSuffix(module, ".experts") && (rank == 3 || rank == 2) {
				parameters = expertParameters[rank] // the shape must identify one of them
			}
			for _, parameter := range parameters {
				if name := module + "." + parameter; parameter != "" && !slices.Contains(names, name) {
					names = append(names, name)
				}
			}
		}
	}
	return names
}

// modulesOf lists the modules of a node, from its metadata and its name.
func modulesOf(n *onnx.Node) []string {
	return slices.DeleteFunc([]string{scope(n), namespace(n), path(n)}, func(s string) bool { return s == "" })
}

// expertParameters are the parameters of an experts module, by rank.
var expertParameters = map[int][]string{3: {"gate_up_proj", "down_proj"}, 2: {"gate_up_proj_bias", "down_proj_bias"}}

var expertParameter = regexp.MustCompile(`\.experts\.(gate_up|down)_proj(_bias)?$`)

// IsExpertParameter reports whether a name is that of a parameter of all experts.
func IsExpertParameter(name string) bool { return expertParameter.MatchString(name) }

// Readers lists the uses of a value, also through nodes that only move or cast it.
func Readers(v *onnx.Value) []onnx.Use {
	var list []onnx.Use
	seen := map[*onnx.Value]bool{}
	var visit func(v *onnx.Value)
	visit = func(v *onnx.Value) {
		if v == nil || seen[v] {
			return
		}
		seen[v] = true
		for _, u := range v.Uses() {
			if u.Index == 0 && (u.Node.Is("Transpose") || u.Node.Is("Cast") || u.Node.Is("Identity")) {
				visit(u.Node.OutputValue(0))
				continue
			}
			list = append(list, u)
		}
	}
	visit(v)
	return list
}

// roleOf returns an initializer's parameter name in its module, "" if it is unknown.
func roleOf(v *onnx.Value, u onnx.Use) string {
	rank := len(v.Const.Dims)
	switch n := u.Node; {
	case n.Is("MatMul"), n.Is("Gemm") && u.Index < 2, n.Is("Gather") && u.Index == 0 && rank == 2,
		n.Is("Conv") && u.Index == 1,
		n.Is("LayerNormalization") && u.Index == 1, n.Is("RMSNormalization") && u.Index == 1, n.Is("Mul") && rank == 1:
		return "weight"
	case n.Is("Gemm"), n.Is("Add") && rank == 1, n.Is("Conv"), n.Is("LayerNormalization") && u.Index == 2:
		return "bias"
	}
	return ""
}

// scope reads the module from the metadata of torch.onnx: "[”, 'model', 'model.layers.0.self_attn.q_proj', 'linear']".
// The last entry is the node's own.
func scope(n *onnx.Node) string {
	parts := scopePart.FindAllStringSubmatch(entry(n.Metadata, "pkg.torch.onnx.name_scopes"), -1)
	if len(parts) < 2 {
		return ""
	}
	return parts[len(parts)-2][1]
}

var scopePart = regexp.MustCompile(`'([^']*)'`)

// namespace reads it from "…/model.layers.0.self_attn.q_proj: torch.nn.modules.linear.Linear/linear:
// aten.linear.default".
func namespace(n *onnx.Node) string {
	parts := strings.Split(entry(n.Metadata, "namespace"), "/")
	if len(parts) < 2 {
		return ""
	}
	module, _, _ := strings.Cut(parts[len(parts)-2], ": ")
	return module
}

// path reads it from a node's TorchScript name: "/model/layers.0/self_attn/q_proj/MatMul".
func path(n *onnx.Node) string {
	parts := strings.Split(n.Name, "/")
	if len(parts) < 3 || parts[0] != "" {
		return ""
	}
	return strings.Join(parts[1:len(parts)-1], ".")
}

func entry(list []onnx.Entry, key string) string {
	for _, e := range list {
		if e.Key == key {
			return e.Value
		}
	}
	return ""
}

// IsParameter reports whether an initializer is a parameter of a module, which checkpoints contain: by its name, or by
// its use in a node whose module is known.
func IsParameter(v *onnx.Value) bool {
	if strings.HasSuffix(v.Name, ".weight") || strings.HasSuffix(v.Name, ".bias") ||
		len(v.Const.Dims) >= 3 && strings.Contains(v.Name, ".experts.") {
		return true
	}
	if strings.Contains(v.Name, ".") && !strings.HasPrefix(v.Name, "/") { // another PyTorch name: a buffer
		return false
	}
	for _, u := range Readers(v) {
		named := scope(u.Node) != "" || namespace(u.Node) != "" || path(u.Node) != ""
		// a gathered table has kept its name if it is a parameter
		if named && !u.Node.Is("Gather") && (roleOf(v, u) != "" || len(v.Const.Dims) == 3) {
			return true
		}
	}
	return false
}
