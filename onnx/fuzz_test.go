package onnx

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/mojo-patch/mojo-patch/internal/cputime"
	"github.com/mojo-patch/mojo-patch/onnx/internal/onnxpb"
	"google.golang.org/protobuf/proto"
)

// FuzzRead reads arbitrary bytes. It must not panic, and a model that is read must be written back unchanged.
//
//	go test -fuzz FuzzRead ./onnx
func FuzzRead(f *testing.F) {
	models, _ := filepath.Glob(filepath.Join("testdata", "models", "*.onnx"))
	if len(models) == 0 {
		f.Fatal("no fixtures in testdata/models")
	}
	for _, path := range models {
		b, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	for _, p := range []*onnxpb.ModelProto{everything(), modelOf(nested(20)),
		modelOf(&onnxpb.GraphProto{Node: []*onnxpb.NodeProto{node("a = Abs(b)"), node("b = Abs(a)")}}),
		modelOf(&onnxpb.GraphProto{
			Initializer: []*onnxpb.TensorProto{externalTensor("w", 9, "location", "x", "offset", "1")}}),
	} {
		b, err := proto.Marshal(p)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		defer limited(t, len(b))()
		m, err := readBytes(b, &externalFiles{options: readOptions{allowMissingData: true}})
		if err != nil {
			return
		}
		m.Graph.Text()
		for _, fn := range m.Functions {
			fn.Text()
		}
		m.eachTensor(func(x *Tensor) { x.Bytes() })
		inOrder := keepsOrder(m)
		out := encode(t, m)
		if out == nil {
			return // external data that cannot be read
		}
		p, q := &onnxpb.ModelProto{}, &onnxpb.ModelProto{}
		if err := proto.Unmarshal(b, p); err != nil {
			t.Fatal(err)
		}
		if err := proto.Unmarshal(out, q); err != nil {
			t.Fatal(err)
		}
		if inOrder && !proto.Equal(p, q) {
			t.Fatalf("%v\nbecame\n%v", p, q)
		}
		again, err := readBytes(out, &externalFiles{options: readOptions{allowMissingData: true}})
		if err != nil {
			t.Fatalf("what was written cannot be read: %v", err)
		}
		if twice := encode(t, again); !bytes.Equal(out, twice) {
			t.Fatal("written a second time it differs")
		}
	})
}

// limited requires the following code to end soon and to need a small multiple of the input: each message of a few
// bytes becomes objects of a few hundred, a handful of times here.
func limited(t *testing.T, size int) (check func()) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := cputime.Used()
	return func() {
		took := cputime.Used() - start
		runtime.ReadMemStats(&after)
		if took > 10*time.Second {
			t.Errorf("it took %v for %d bytes", took, size)
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > 4<<20+2000*uint64(size) {
			t.Errorf("it took %d KB in all for %d bytes", n>>10, size)
		}
	}
}

// encode returns the bytes that Write writes, nil if the model has external data.
func encode(t *testing.T, m *Model) []byte {
	external := false
	m.eachTensor(func(x *Tensor) { external = external || x.External != nil })
	if external {
		return nil
	}
	l, err := newLayout("model.onnx", m, writeOptions{externalOver: -1, limit: maxModelFile})
	if err != nil {
		t.Fatal(err)
	}
	defer l.restore()
	var out bytes.Buffer
	w := bufio.NewWriter(&out)
	if err := l.writeModel(&fileWriter{Writer: w}); err != nil {
		t.Fatal(err)
	}
	w.Flush()
	return out.Bytes()
}

// keepsOrder reports whether Read did not need to sort any graph.
func keepsOrder(m *Model) bool {
	same := true
	compare := func(nodes []*Node, messages []*onnxpb.NodeProto) {
		for i, n := range nodes {
			same = same && n.proto == messages[i]
		}
	}
	for _, f := range m.Functions {
		compare(f.Body.Nodes, f.proto.Node)
	}
	for _, g := range m.Graphs() {
		if g.proto != nil {
			compare(g.Nodes, g.proto.Node)
		}
	}
	return same
}
