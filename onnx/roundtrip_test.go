package onnx

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx/internal/onnxpb"
	"google.golang.org/protobuf/proto"
)

// TestNodeTests reads and writes every model of the ONNX standard's node tests and compares the messages, including
// unknown fields. tools/onnx-node-tests.py makes the folder.
func TestNodeTests(t *testing.T) {
	dir := os.Getenv("MOJO_ONNX_NODE_TESTS")
	if dir == "" {
		dir = filepath.Join("..", "build", "onnx-node-tests")
	}
	models, _ := filepath.Glob(filepath.Join(dir, "*", "model.onnx"))
	if len(models) == 0 {
		t.Skipf("no models in %s: make them with tools/onnx-node-tests.py, or set MOJO_ONNX_NODE_TESTS", dir)
	}
	roundTripAll(t, models)
	t.Logf("%d models of the ONNX node tests survive read and write", len(models))
}

// TestFixtures does the same with the bundled models.
func TestFixtures(t *testing.T) {
	models, _ := filepath.Glob(filepath.Join("testdata", "models", "*.onnx"))
	if len(models) == 0 {
		t.Fatal("no fixtures in testdata/models")
	}
	roundTripAll(t, models)
}

// TestZoo does the same with a folder of exported models, at any depth.
func TestZoo(t *testing.T) {
	dir := os.Getenv("MOJO_ZOO")
	if dir == "" {
		t.Skip("set MOJO_ZOO to a folder of exported models")
	}
	var models []string
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if strings.HasSuffix(path, ".onnx") {
			models = append(models, path)
		}
		return err
	})
	if err != nil || len(models) == 0 {
		t.Fatalf("%d models in %s: %v", len(models), dir, err)
	}
	roundTripAll(t, models)
	t.Logf("%d exported models survive read and write", len(models))
}

func roundTripAll(t *testing.T, models []string) {
	out := filepath.Join(t.TempDir(), "model.onnx")
	for _, path := range models {
		m, err := Read(path)
		if errors.Is(err, ErrMissingData) { // a folder may contain graphs without weights
			t.Log(err)
			continue
		}
		if err != nil {
			t.Error(err)
			continue
		}
		if err := Write(out, m); err != nil {
			t.Error(err)
		} else if !proto.Equal(message(t, path), message(t, out)) {
			t.Errorf("%s: the written model differs", path)
		}
		if text := m.Graph.Text(); strings.Count(text, "\n") < len(m.Graph.Nodes) {
			t.Errorf("%s: its text has fewer lines than nodes:\n%s", path, text)
		}
		if err := m.Close(); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// message decodes a file without the package's own code.
func message(t *testing.T, path string) *onnxpb.ModelProto {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	p := &onnxpb.ModelProto{}
	if err := proto.Unmarshal(b, p); err != nil {
		t.Fatal(err)
	}
	return p
}

// writeMessage encodes a model to a file in a new folder.
func writeMessage(t *testing.T, p *onnxpb.ModelProto) string {
	t.Helper()
	b, err := proto.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	return writeFile(t, "model.onnx", b)
}

func writeFile(t *testing.T, name string, b []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, b, 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestRoundTripEverything round-trips a model with every field of onnx.proto, and unknown fields.
func TestRoundTripEverything(t *testing.T) {
	p := everything()
	m, err := Read(writeMessage(t, p))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	out := filepath.Join(t.TempDir(), "out.onnx")
	for range 2 { // the second time from updated messages
		if err := Write(out, m); err != nil {
			t.Fatal(err)
		}
		if q := message(t, out); !proto.Equal(p, q) {
			t.Fatalf("written model differs:\n%v\nwas\n%v", q, p)
		}
	}
	again, err := Read(out)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	sameTensors(t, m, again)
}

func sameTensors(t *testing.T, a, b *Model) {
	t.Helper()
	var as, bs []*Tensor
	a.eachTensor(func(x *Tensor) { as = append(as, x) })
	b.eachTensor(func(x *Tensor) { bs = append(bs, x) })
	if len(as) != len(bs) {
		t.Fatalf("%d tensors became %d", len(as), len(bs))
	}
	for i := range as {
		if as[i].DataType == String {
			continue
		}
		x, err := as[i].Bytes()
		y, err2 := bs[i].Bytes()
		if (err == nil) != (err2 == nil) || string(x) != string(y) {
			t.Errorf("tensor %q: bytes differ (%v, %v)", as[i].Name, err, err2)
		}
	}
}
