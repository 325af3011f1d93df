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

// sourceNames lists the nodes of the model as it was that nodes stand for: those each was made of, or itself.
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

// SourceNodes returns the names of the nodes that a node stands for, as its metadata say.
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

// Origin returns the metadata of a node that a rule of this version of the tool made in place of others, or besides
// them.
func Origin(version, rule string, replaced ...*onnx.Node) []onnx.Entry {
	entries := []onnx.Entry{{Key: MetaRule, Value: rule}}
	if len(replaced) > 0 {
		names, err := json.Marshal(sourceNames(replaced))
		if err != nil {
			names = []byte("[]") // strings always marshal
		}
		entries = append(entries, onnx.Entry{Key: MetaSourceNodes, Value: string(names)})
	}
	return append(entries, onnx.Entry{Key: MetaVersion, Value: version})
}

// MetaFormat is the metadata_props key of a node with a quantized matrix: how its elements were quantized.
const MetaFormat = "mojo_patch.format"

// MetaMatrices is the metadata_props key of a product that several were merged into: the matrices that it has one below
// the other, as a JSON list of MergedMatrix. Each begins with a panel.
const MetaMatrices = "mojo_patch.matrices"

// MergedMatrix is one of the matrices of MetaMatrices.
type MergedMatrix struct {
	Codes string `json:"codes"` // the name that the initializer with its codes had
	N     int64  `json:"n"`     // its rows
}

// FormatOf returns how the matrix of a node was quantized, as its metadata say.
func FormatOf(n *onnx.Node) string {
	for _, e := range n.Metadata {
		if e.Key == MetaFormat {
			return e.Value
		}
	}
	return ""
}
