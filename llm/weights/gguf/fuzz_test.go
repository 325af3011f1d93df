package gguf

import (
	"os"
	"path/filepath"
	"runtime/metrics"
	"testing"
)

// FuzzRead feeds the reader arbitrary bytes. It must not panic or use memory out of proportion to the file, and listed
// tensors must be readable.
//
//	go test -fuzz FuzzRead ./llm/weights/gguf
func FuzzRead(f *testing.F) {
	paths, _ := filepath.Glob("testdata/*.gguf")
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		if len(b) < 1000 {
			f.Add(b)
		}
	}
	if len(paths) == 0 {
		f.Fatal("no fixtures in testdata")
	}
	for kind, info := range types {
		f.Add(header(2, 1).str("k").u32(9).u32(9).u64(1).u32(8).u64(1).str("v").
			tensor("a", kind, 0, uint64(info.Elements), 1).tensor("b", kind, uint64(info.Size+31)/32*32,
			uint64(info.Elements)).
			elements(2*info.Size + 31).b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		before := allocated()
		file, err := parse(b)
		if n := allocated() - before; n > 1<<20+200*uint64(len(b)) {
			t.Errorf("%d bytes were allocated for a file of %d", n, len(b))
		}
		if err != nil {
			return
		}
		for _, x := range file.Tensors {
			if raw, err := x.Bytes(); err != nil || int64(len(raw)) != x.Size {
				t.Fatalf("%q: %d bytes, %v", x.Name, len(raw), err)
			}
			values := make([]float32, min(x.Elements, 300))
			for _, first := range []int64{0, x.Elements - int64(len(values)), x.Elements / 3} {
				part := values[:min(int64(len(values)), x.Elements-first)]
				if err := x.Float32(part, first); (err == nil) != x.Type.Readable() {
					t.Fatalf("%q of %d %s: elements from %d on: %v", x.Name, x.Dims, x.Type, first, err)
				}
			}
		}
	})
}

// allocated returns the number of bytes allocated so far.
func allocated() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}
