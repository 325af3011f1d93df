package edit

import (
	"encoding/json"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// The metadata_props keys of the nodes that replace a site.
const (
	MetaRule        = "mojo_patch.rule"         // name of the pattern
	MetaSourceNodes = "mojo_patch.source_nodes" // JSON list of the replaced nodes' names
	MetaVersion     = "mojo_patch.version"      // version of the tool
)

// sourceNames lists the nodes of the original model that nodes replace: the sources of each, or the node itself.
func sourceNames(nodes []*onnx.Node) []string {
	var names []string
	have := map[string]bool{}
	for _, n := range nodes {
		made := SourceNodes(n)
		if len(made) == 0 {
			made = []string{n.Label()}
		}
		for _, name := range made {
			if !have[name] {
				have[name] = true
				names = append(names, name)
			}
		}
	}
	return names
}

// SourceNodes returns the names of the nodes that a node replaces, according to its metadata.
func SourceNodes(n *onnx.Node) (names []string) {
	for _, e := range n.Metadata {
		if e.Key == MetaSourceNodes && json.Unmarshal([]byte(e.Value), &names) != nil {
			return nil
		}
	}
	return names
}

// Origin is the function Origin with the editor's version.
func (e *Editor) Origin(rule string, replaced ...*onnx.Node) []onnx.Entry {
	return Origin(e.Version, rule, replaced...)
}

// Origin returns the metadata of a node created by a rule of this version of the tool, with the nodes that it replaces.
func Origin(version, rule string, replaced ...*onnx.Node) []onnx.Entry {
	entries := []onnx.Entry{{Key: MetaRule, Value: rule}}
	if len(replaced) > 0 {
		names, _ := json.Marshal(sourceNames(replaced)) // strings can always be marshaled
		entries = append(entries, onnx.Entry{Key: MetaSourceNodes, Value: string(names)})
	}
	return append(entries, onnx.Entry{Key: MetaVersion, Value: version})
}

// MetaFormat is the metadata_props key of a node with a quantized matrix for the format of its elements.
const MetaFormat = "mojo_patch.format"

// MetaMatrices is the metadata_props key of a merged product: a JSON list of MergedMatrix for its matrices, which are
// stacked by rows. Each starts with a new panel.
const MetaMatrices = "mojo_patch.matrices"

// A MergedMatrix is one of the matrices of MetaMatrices.
type MergedMatrix struct {
	Codes string `json:"codes"` // original name of the initializer with its codes
	N     int64  `json:"n"`     // number of rows
}

// FormatOf returns the quantization format of a node's matrix according to its metadata.
func FormatOf(n *onnx.Node) string {
	for _, e := range n.Metadata {
		if e.Key == MetaFormat {
			return e.Value
		}
	}
	return ""
}
