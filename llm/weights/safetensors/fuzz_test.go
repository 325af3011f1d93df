package safetensors

import (
	"os"
	"runtime/metrics"
	"testing"
)

// FuzzRead feeds the reader arbitrary bytes. It must not panic or use memory out of proportion to the file, and listed
// tensors must be readable.
//
//	go test -fuzz FuzzRead ./llm/weights/safetensors
func FuzzRead(f *testing.F) {
	b, err := os.ReadFile("testdata/model-00001-of-00002.safetensors")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	for kind, stored := range types {
		f.Add([]byte(file(`{"__metadata__":{"k":"v"},"a":{"dtype":"`+string(kind)+`","shape":[2,4],"data_offsets":[0,`+
			string('0'+rune(stored.Bits()/8))+`]},"b":{"dtype":"U8","shape":[],"data_offsets":[8,9],"x":[{}]}}`, 65)))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		before := allocated()
		file, err := parse(string(b))
		if n := allocated() - before; n > 1<<20+200*uint64(len(b)) {
			t.Errorf("%d bytes were allocated for a file of %d", n, len(b))
		}
		if err != nil {
			return
		}
		end := int64(0)
		for _, x := range file.Tensors {
			raw, err := x.Bytes()
			if err != nil || int64(len(raw)) != x.Size || end != 0 && x.Start != end {
				t.Fatalf("%q: %d bytes at %d, %v", x.Name, len(raw), x.Start, err)
			}
			end = x.Start + x.Size
			values := make([]float32, min(x.Elements, 300))
			if err := x.Float32(values, x.Elements-int64(len(values))); (err == nil) != x.Type.Readable() {
				t.Fatalf("%q of %d %s: %v", x.Name, x.Dims, x.Type, err)
			}
		}
	})
}

// FuzzIndex feeds the index reader arbitrary bytes.
//
//	go test -fuzz FuzzIndex ./llm/weights/safetensors
func FuzzIndex(f *testing.F) {
	b, err := os.ReadFile("testdata/model.safetensors.index.json")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{"weight_map":{"a":"b/c","d":"../e"},"x":[1,{"y":null}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		places, err := parseIndex(b)
		if (places == nil) && err == nil {
			t.Error("neither a map nor an error")
		}
	})
}

// allocated returns the number of bytes allocated so far.
func allocated() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}
