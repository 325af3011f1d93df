package onnx_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// Restore restores the model exactly: it writes the same file.
func TestSnapshot(t *testing.T) {
	write := func(m *onnx.Model) []byte {
		path := filepath.Join(t.TempDir(), "m.onnx")
		if err := onnx.Write(path, m); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for _, name := range []string{"llama-ts-fp32", "qwen3-dynamo-fp32"} {
		m, err := onnx.Read(filepath.Join("..", "models", name+".onnx"))
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		want, weight := write(m), m.Graph.Initializers()[0].Const
		restore := m.Snapshot()
		m.IRVersion, m.Graph.Nodes[0].Name = 99, "another"
		if err := m.Graph.RemoveNodes(map[*onnx.Node]bool{}); err != nil {
			t.Fatal(err)
		}
		m.Graph.AddOutput(m.Graph.AddNode("Neg", m.Graph.Inputs[:1], []*onnx.Value{m.Graph.NewValue("y")}).Outputs[0])
		if bytes.Equal(write(m), want) {
			t.Fatalf("%s was not changed", name)
		}
		if err := restore(); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(write(m), want) {
			t.Errorf("%s is another model than before", name)
		}
		if m.Graph.Initializers()[0].Const != weight {
			t.Error("a weight was copied")
		}
	}
}
