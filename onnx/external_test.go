package onnx

import (
	"bytes"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx/internal/onnxpb"
	"google.golang.org/protobuf/proto"
)

// externalTensor refers to external data; entries are key, value, key, value, …
func externalTensor(name string, dim int64, entries ...string) *onnxpb.TensorProto {
	t := &onnxpb.TensorProto{Name: &name, DataType: ptr(int32(Uint8)), Dims: []int64{dim},
		DataLocation: onnxpb.TensorProto_EXTERNAL.Enum()}
	for i := 0; i < len(entries); i += 2 {
		t.ExternalData = append(t.ExternalData, &onnxpb.StringStringEntryProto{Key: &entries[i], Value: &entries[i+1]})
	}
	return t
}

// externalModel writes a model with these initializers beside a folder structure with 10,000 bytes of weights:
// weights.bin, sub/weights.bin, link.bin -> weights.bin, linked -> sub, ../outside.bin, pipe-like folder.bin/.
func externalModel(t *testing.T, ts ...*onnxpb.TensorProto) (path string, weights []byte) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "model")
	weights = bytes.Repeat([]byte("0123456789"), 1000)
	must(t, os.MkdirAll(filepath.Join(dir, "sub"), 0o777))
	must(t, os.Mkdir(filepath.Join(dir, "folder.bin"), 0o777))
	for _, name := range []string{"weights.bin", "sub/weights.bin", "../outside.bin"} {
		must(t, os.WriteFile(filepath.Join(dir, name), weights, 0o666))
	}
	must(t, os.Symlink("weights.bin", filepath.Join(dir, "link.bin")))
	must(t, os.Symlink("../outside.bin", filepath.Join(dir, "escape.bin")))
	must(t, os.Symlink("sub", filepath.Join(dir, "linked")))
	b, err := proto.Marshal(modelOf(&onnxpb.GraphProto{Name: ptr("g"), Initializer: ts}))
	must(t, err)
	path = filepath.Join(dir, "model.onnx")
	must(t, os.WriteFile(path, b, 0o666))
	return path, weights
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestExternalData(t *testing.T) {
	sum := func(b []byte) string { h := sha1.Sum(b); return hex.EncodeToString(h[:]) }
	_, weights := externalModel(t)
	path, _ := externalModel(t,
		externalTensor("a", 100, "location", "weights.bin"),
		externalTensor("b", 100, "location", "./weights.bin", "offset", "50", "length", "100", "checksum",
			strings.ToUpper(sum(weights))),
		externalTensor("c", 10000, "location", "sub/../sub/weights.bin", "length", "10000", "basepath", "ignored"),
		externalTensor("none", 0, "location", "weights.bin", "offset", "10000"))
	m, err := Read(path, VerifyChecksums())
	must(t, err)
	defer m.Close()
	for name, want := range map[string][]byte{"a": weights[:100], "b": weights[50:150], "c": weights, "none": {}} {
		if got, err := m.Graph.Value(name).Const.Bytes(); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
	}
	if n := len(m.files.files); n != 2 {
		t.Errorf("%d files opened for 2", n)
	}
	files, err := m.Files()
	if err != nil || len(files) != 3 || files[0].Path != path || files[1].Size != 10000 {
		t.Errorf("files %v, %v", files, err)
	}
	if hash, err := SHA256(path); err != nil || len(hash) != 64 {
		t.Errorf("SHA256 %q, %v", hash, err)
	}
	out := filepath.Join(filepath.Dir(path), "out.onnx") // the same folder: references stay as they were spelled
	must(t, Write(out, m))
	if !proto.Equal(message(t, path), message(t, out)) {
		t.Error("references changed")
	}
	if _, err := os.Stat(out + ".data"); err == nil {
		t.Error("data file written although references were kept")
	}
}

func TestExternalDataErrors(t *testing.T) {
	for name, test := range map[string]struct {
		tensor *onnxpb.TensorProto
		want   string
	}{
		"missing":       {externalTensor("w", 1, "location", "absent.bin"), "missing|absent.bin"},
		"no location":   {externalTensor("w", 1, "offset", "0"), "names no location"},
		"parent":        {externalTensor("w", 1, "location", "../outside.bin"), "outside the model's folder"},
		"hidden parent": {externalTensor("w", 1, "location", "sub/../../outside.bin"), "outside the model's folder"},
		"absolute":      {externalTensor("w", 1, "location", "/etc/hostname"), "outside the model's folder"},
		"the folder":    {externalTensor("w", 1, "location", "."), "outside the model's folder"},
		"link": {externalTensor("w", 1, "location", "link.bin"), "symbolic link (link.bin): replace the link by " +
			"the file, or use --allow-links to follow it"},
		"escaping link":  {externalTensor("w", 1, "location", "escape.bin"), "symbolic link (escape.bin)"},
		"linked folder":  {externalTensor("w", 1, "location", "linked/weights.bin"), "symbolic link (linked)"},
		"not a file":     {externalTensor("w", 1, "location", "folder.bin"), "not a regular file"},
		"file as folder": {externalTensor("w", 1, "location", "weights.bin/x"), "weights.bin/x"},
		"past the end": {externalTensor("w", 100, "location", "weights.bin", "offset", "9901"),
			"100 bytes at offset 9901 lie past the end of|10000 bytes"},
		"far past it": {externalTensor("w", 100, "location", "weights.bin", "offset", "9223372036854775807"),
			"past the end"},
		"too long": {externalTensor("w", 10001, "location", "weights.bin"), "past the end"},
		"wrong length": {externalTensor("w", 100, "location", "weights.bin", "length", "99"),
			"takes 100 bytes, but its external_data has the length 99"},
		"no number": {externalTensor("w", 100, "location", "weights.bin", "offset", "x"), `offset "x"`},
		"negative":  {externalTensor("w", 100, "location", "weights.bin", "offset", "-4"), `offset "-4"`},
		"key twice": {externalTensor("w", 1, "location", "weights.bin", "location", "sub/weights.bin"),
			`"location" twice`},
		"overflow":       {externalTensor("w", 1<<62, "location", "weights.bin"), "overflow"},
		"wrong checksum": {externalTensor("w", 1, "location", "weights.bin", "checksum", "00ff"), "SHA-1 of|00ff"},
	} {
		path, _ := externalModel(t, externalTensor("fine", 1, "location", "weights.bin"), test.tensor)
		_, err := Read(path, VerifyChecksums())
		if err == nil {
			t.Errorf("%s: no error", name)
			continue
		}
		for _, want := range append(strings.Split(test.want, "|"), path, `tensor "w"`) {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: error %q says nothing of %q", name, err, want)
			}
		}
	}
}

func TestAllowMissingData(t *testing.T) {
	path, _ := externalModel(t, externalTensor("w", 5, "location", "absent.bin"))
	m, err := Read(path, AllowMissingData())
	must(t, err)
	defer m.Close()
	if _, err := m.Graph.Value("w").Const.Bytes(); !errors.Is(err, ErrMissingData) ||
		!strings.Contains(err.Error(), "absent.bin") {
		t.Errorf("Bytes: %v", err)
	}
	for _, dir := range []string{filepath.Dir(path), t.TempDir()} { // a reference can be kept without its file
		out := filepath.Join(dir, "out.onnx")
		must(t, Write(out, m))
		again, err := Read(out, AllowMissingData())
		must(t, err)
		if e := again.Graph.Value("w").Const.External; e == nil || e.Location != "absent.bin" {
			t.Errorf("the reference became %+v", e)
		}
		again.Close()
	}
	if files, err := m.Files(); err != nil || files[1].Size != -1 {
		t.Errorf("files %v, %v", files, err)
	}
	path, _ = externalModel(t, externalTensor("w", 5, "location", "../outside.bin"))
	if _, err := Read(path, AllowMissingData()); err == nil {
		t.Error("AllowMissingData allows data outside the folder")
	}
}

func TestAllowLinks(t *testing.T) {
	path, weights := externalModel(t, externalTensor("a", 10, "location", "escape.bin"),
		externalTensor("b", 10, "location", "linked/weights.bin", "offset", "3"))
	m, err := Read(path, AllowLinks())
	must(t, err)
	defer m.Close()
	for name, want := range map[string][]byte{"a": weights[:10], "b": weights[3:13]} {
		if got, err := m.Graph.Value(name).Const.Bytes(); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// TestExternalFileShrinks changes the file between Read and the first use.
func TestExternalFileShrinks(t *testing.T) {
	path, _ := externalModel(t, externalTensor("w", 9000, "location", "weights.bin"))
	m, err := Read(path)
	must(t, err)
	defer m.Close()
	must(t, os.Truncate(filepath.Join(filepath.Dir(path), "weights.bin"), 100))
	if _, err := m.Graph.Value("w").Const.Bytes(); err == nil || !strings.Contains(err.Error(), "shrunk to 100 bytes") {
		t.Errorf("got %v", err)
	}
}

func TestExternalTensorMadeInMemory(t *testing.T) {
	m := New(10, 20)
	m.Graph.AddInitializer(&Tensor{Name: "w", DataType: Float, Dims: []int64{2},
		External: &External{Location: "w.bin", Length: -1}})
	if _, err := m.Graph.Value("w").Const.Bytes(); !errors.Is(err, ErrMissingData) {
		t.Errorf("Bytes: %v", err)
	}
	if err := Write(filepath.Join(t.TempDir(), "out.onnx"), m); !errors.Is(err, ErrMissingData) {
		t.Errorf("Write: %v", err)
	}
}

// TestShapesStayInTheModel writes tensors that may be shapes. Shape inference cannot read them from a data file, so
// they go to the model file, wherever they come from.
func TestShapesStayInTheModel(t *testing.T) {
	axes := externalTensor("axes", 4, "location", "weights.bin", "offset", "8")
	axes.DataType = ptr(int32(Int64))
	long := externalTensor("long", 1000, "location", "weights.bin")
	long.DataType = ptr(int32(Int64))
	path, weights := externalModel(t, axes, long, externalTensor("w", 100, "location", "weights.bin"))
	m, err := Read(path)
	must(t, err)
	defer m.Close()
	for _, out := range []string{filepath.Join(filepath.Dir(path), "beside.onnx"),
		filepath.Join(t.TempDir(), "elsewhere.onnx")} {
		for _, option := range []WriteOption{func(*writeOptions) {}, ExternalDataOver(1)} {
			must(t, Write(out, m, option))
			written, err := Read(out)
			must(t, err)
			for name, want := range map[string][]byte{"axes": weights[8:40], "long": weights[:8000],
				"w": weights[:100]} {
				c := written.Graph.Value(name).Const
				if b, err := c.Bytes(); err != nil || !bytes.Equal(b, want) || (c.External == nil) != (name == "axes") {
					t.Errorf("%s: %d bytes, external %v, %v", name, len(b), c.External, err)
				}
			}
			must(t, written.Close())
		}
	}
	if m.Graph.Value("axes").Const.External == nil {
		t.Error("writing has changed the model in memory")
	}
}
