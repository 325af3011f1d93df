package onnx

import (
	"os"
	"testing"
)

// FuzzInline inlines the functions of damaged or malicious files, except those selected by the bits of kept, then the
// first branch of every If node. The result must be readable.
//
//	go test -fuzz FuzzInline ./onnx
func FuzzInline(f *testing.F) {
	nest, err := os.ReadFile("testdata/nest.onnx")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(nest, uint8(0))
	f.Add(nest, uint8(0b10001)) // Scale and Unused stay
	f.Fuzz(func(t *testing.T, b []byte, kept uint8) {
		m, err := readBytes(b, &externalFiles{options: readOptions{allowMissingData: true}})
		if err != nil {
			return
		}
		stays := map[*Function]bool{}
		for i, fn := range m.Functions {
			stays[fn] = kept>>(i%8)&1 != 0
		}
		if _, err := m.InlineFunctions(func(fn *Function) bool { return stays[fn] }); err != nil {
			return
		}
		if _, err := m.InlineBranches(func(n *Node) *Graph {
			if gs := n.Subgraphs(); n.Is("If") && len(gs) > 0 {
				return gs[0]
			}
			return nil
		}); err != nil {
			return
		}
		out := encode(t, m)
		if out == nil {
			return // external data that cannot be read
		}
		if _, err := readBytes(out, &externalFiles{options: readOptions{allowMissingData: true}}); err != nil {
			t.Fatalf("what was written cannot be read: %v", err)
		}
	})
}
