package reference

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/internal/ops/elementwise"
)

// TestExports compares real exports with PyTorch's results at export time: the models in the repository, or in the
// folder MOJO_ZOO (NAME.onnx with NAME.npz: n, i.in.INPUT, i.out.OUTPUT).
func TestExports(t *testing.T) {
	dir := os.Getenv("MOJO_ZOO")
	if dir == "" {
		dir = filepath.Join("..", "models")
	}
	var files []string
	for _, pattern := range []string{"*.onnx", "*/*.onnx"} {
		f, _ := filepath.Glob(filepath.Join(dir, pattern))
		files = append(files, f...)
	}
	ran := 0
	for _, path := range files {
		cases := strings.TrimSuffix(path, ".onnx") + ".npz"
		if _, err := os.Stat(cases); err != nil || filepath.Base(filepath.Dir(path)) == "broken" {
			continue // those of a folder "broken" do not match their goldens before they are patched
		}
		ran++
		t.Run(strings.TrimSuffix(filepath.Base(path), ".onnx"), func(t *testing.T) { checkExport(t, path, cases) })
	}
	if ran == 0 {
		t.Skipf("no models with goldens in %s: set MOJO_ZOO", dir)
	}
}

func checkExport(t *testing.T, path, cases string) {
	m, err := onnx.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	e, err := New(m, Options{})
	if err != nil {
		t.Fatal(err)
	}
	z, err := readNPZ(cases)
	if err != nil {
		t.Fatal(err)
	}
	n := int(z["n"].I[0])
	worst := ""
	start := time.Now()
	for i := range n {
		in := map[string]*Tensor{}
		for _, v := range m.Graph.Inputs {
			x := z[fmt.Sprintf("%d.in.%s", i, v.Name)]
			if x == nil {
				t.Fatalf("case %d has no input %q", i, v.Name)
			}
			decl, _ := v.Type()
			in[v.Name] = elementwise.Cast(x, decl.DataType, true, "up", false)
		}
		out, err := e.Run(in)
		if err != nil {
			t.Fatalf("case %d: %v", i, err)
		}
		for _, v := range m.Graph.Outputs {
			want := z[fmt.Sprintf("%d.out.%s", i, v.Name)]
			if want == nil {
				t.Fatalf("case %d has no output %q", i, v.Name)
			}
			got := out[v.Name]
			abs := 1e-4
			for _, x := range []*Tensor{got, want} { // some exports widen float16 logits at the end
				if x.DataType == onnx.Float16 || x.DataType == onnx.BFloat16 {
					abs = 4 * ulp(x)
				}
			}
			if want.DataType != got.DataType { // bfloat16 is stored widened: numpy lacks it
				want = elementwise.Cast(want, got.DataType, true, "up", false)
			}
			if err := closeTo(got, want, abs, 0); err != nil {
				t.Errorf("case %d, output %q: %v", i, v.Name, err)
			}
			worst = fmt.Sprint(got.DataType)
		}
	}
	t.Logf("%d cases of %s in %v", n, worst, time.Since(start).Round(time.Millisecond))
}

// readNPZ reads the little-endian, C-ordered arrays that numpy.savez writes.
func readNPZ(path string) (map[string]*Tensor, error) {
	z, err := zip.OpenReader(path)
	if err != nil {
		return nil, err
	}
	defer z.Close()
	arrays := map[string]*Tensor{}
	for _, f := range z.File {
		r, err := f.Open()
		if err != nil {
			return nil, err
		}
		b, err := io.ReadAll(r)
		r.Close()
		if err != nil {
			return nil, err
		}
		a, err := parseNPY(b)
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", path, f.Name, err)
		}
		arrays[strings.TrimSuffix(f.Name, ".npy")] = a
	}
	return arrays, nil
}

var npyHeader = regexp.MustCompile(`'descr': '([^']*)', 'fortran_order': False, 'shape': \(([^)]*)\)`)

func parseNPY(b []byte) (*Tensor, error) {
	if !bytes.HasPrefix(b, []byte("\x93NUMPY\x01\x00")) || len(b) < 10 {
		return nil, fmt.Errorf("no .npy of version 1")
	}
	end := 10 + int(binary.LittleEndian.Uint16(b[8:]))
	h := npyHeader.FindSubmatch(b[10:end])
	if h == nil {
		return nil, fmt.Errorf("unknown header %q", b[10:end])
	}
	t, ok := map[string]onnx.DataType{"<f4": onnx.Float, "<f2": onnx.Float16, "<f8": onnx.Double, "<i8": onnx.Int64,
		"<i4": onnx.Int32, "|b1": onnx.Bool}[string(h[1])]
	if !ok {
		return nil, fmt.Errorf("unknown type %q", h[1])
	}
	dims := []int64{}
	for _, s := range strings.Split(string(h[2]), ",") {
		if s = strings.TrimSpace(s); s == "" {
			continue
		}
		d, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return nil, err
		}
		dims = append(dims, d)
	}
	p, err := onnx.NewTensor("", t, dims, b[end:])
	if err != nil {
		return nil, err
	}
	return FromONNX(p)
}
