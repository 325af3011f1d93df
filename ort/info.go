package ort

import (
	"fmt"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/ort/providers"
)

// Info describes an input or output of a session, as onnxruntime sees it.
type Info struct {
	Name     string
	DataType onnx.DataType // Undefined for anything except dense tensors
	Dims     []onnx.Dim
}

// String returns the name, type and shape, for example `"input_ids": int64[batch,7]`.
func (i Info) String() string {
	dims := make([]string, len(i.Dims))
	for k, d := range i.Dims {
		dims[k] = d.String()
	}
	return fmt.Sprintf("%q: %s[%s]", i.Name, i.DataType, strings.Join(dims, ","))
}

// PlacedNode is a node that onnxruntime assigned to an execution provider: a node of the model under its name, or one
// that onnxruntime made from functions or by fusing nodes.
type PlacedNode struct {
	Provider string // onnxruntime's name of the provider
	Domain   string
	Op       string
	Name     string
}

// ProviderFacts are the facts about an execution provider that are known before a session is opened with it.
type ProviderFacts struct {
	Name    string             // "QNNExecutionProvider"
	Library string             // of its plugin; empty for a built-in provider
	Devices []providers.Device // that it offers; built-in providers seldom list them
	Error   error              // why the plugin cannot be registered
}
