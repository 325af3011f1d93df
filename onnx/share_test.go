package onnx

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx/internal/share"
)

// carriedModel writes a model whose three weights fill a file of 300,007 bytes except the first 7, and reads it.
func carriedModel(t *testing.T) (m *Model, weights string) {
	t.Helper()
	const size = 100_000
	path, _ := externalModel(t,
		externalTensor("a", size, "location", "big.bin", "offset", "7"),
		externalTensor("b", size, "location", "big.bin", "offset", fmt.Sprint(size+7)),
		externalTensor("c", size, "location", "big.bin", "offset", fmt.Sprint(2*size+7)),
		externalTensor("tied", size, "location", "big.bin", "offset", "7"))
	weights = filepath.Join(filepath.Dir(path), "big.bin")
	var b bytes.Buffer
	for b.Len() < 3*size+7 {
		fmt.Fprintln(&b, b.Len())
	}
	must(t, os.WriteFile(weights, b.Bytes()[:3*size+7], 0o666))
	m, err := Read(path)
	must(t, err)
	t.Cleanup(func() { m.Close() })
	return m, weights
}

func remove(m *Model, name string) {
	m.Graph.RemoveUnusedInitializers(map[*Value]bool{m.Graph.Value(name): true})
}

// fileSystems runs a test with and without sharing, and with the actual file system.
func fileSystems(t *testing.T, test func(t *testing.T, shares bool)) {
	was := share.Range
	t.Cleanup(func() { share.Range = was })
	t.Run("this one", func(t *testing.T) {
		shares := false
		share.Range = func(dst *os.File, to int64, src *os.File, from, n int64) error {
			err := was(dst, to, src, from, n)
			shares = shares || err == nil
			return err
		}
		_, weights := carriedModel(t)
		dst, err := os.Create(filepath.Join(t.TempDir(), "x"))
		must(t, err)
		defer dst.Close()
		src, err := os.Open(weights)
		must(t, err)
		defer src.Close()
		share.Range(dst, 0, src, 0, 2*pageSize)
		t.Logf("the file system shares bytes: %v", shares)
		test(t, shares)
	})
	t.Run("copies", func(t *testing.T) {
		share.Range = func(*os.File, int64, *os.File, int64, int64) error { return errors.ErrUnsupported }
		test(t, false)
	})
	t.Run("shares", func(t *testing.T) {
		share.Range = func(dst *os.File, to int64, src *os.File, from, n int64) error {
			if from%pageSize != 0 || to%pageSize != 0 || n%pageSize != 0 {
				t.Errorf("%d bytes at %d shared with those at %d: they are not whole pages", n, to, from)
			}
			b := make([]byte, n)
			if _, err := src.ReadAt(b, from); err != nil {
				return err
			}
			_, err := dst.WriteAt(b, to)
			return err
		}
		test(t, true)
	})
}

// TestDataIsCarriedOver writes models with external data to another folder.
func TestDataIsCarriedOver(t *testing.T) {
	fileSystems(t, func(t *testing.T, shares bool) {
		stage := func(m *Model, options ...WriteOption) (*Model, DataWritten) {
			t.Helper()
			out := filepath.Join(t.TempDir(), "out.onnx")
			s, err := Stage(out, m, options...)
			must(t, err)
			must(t, s.Commit())
			read, err := Read(out)
			must(t, err)
			t.Cleanup(func() { read.Close() })
			sameTensors(t, m, read)
			return read, s.Data()
		}
		expect := func(what string, d DataWritten, source string, copied, pages int64) {
			t.Helper()
			want := DataWritten{File: d.File, Source: source, Copied: copied + pages}
			if shares {
				want.Copied, want.Shared = copied, pages
			}
			if d != want || d.File == "" {
				t.Errorf("%s: %+v, want %+v", what, d, want)
			}
		}
		const pages = 300_007 / pageSize * pageSize

		m, weights := carriedModel(t)
		_, d := stage(m)
		sameFile(t, weights, d.File)
		expect("a whole file", d, weights, 300_007-pages, pages)

		more, err := NewTensor("more", Uint8, []int64{5000}, bytes.Repeat([]byte{1}, 5000))
		must(t, err)
		m.Graph.AddInitializer(more)
		_, d = stage(m, ExternalDataOver(1000))
		if info, err := os.Stat(d.File); err != nil || info.Size() != (pages+pageSize)+5000 {
			t.Errorf("a whole file and 5000 bytes: %v, %v", info, err)
		}
		expect("a whole file and more", d, weights, 300_007-pages, pages)

		// Of a partly used file, only the used part is copied, to pages.
		part, weights := carriedModel(t)
		remove(part, "b")
		read, d := stage(part)
		for _, name := range []string{"a", "c"} {
			if e := read.Graph.Value(name).Const.External; e.Offset%pageSize != 0 {
				t.Errorf("%s lies at %d", name, e.Offset)
			}
		}
		if d.Source != weights || d.Copied != 200_000 || d.Shared != 0 {
			t.Errorf("a part of a file: %+v", d)
		}

		// That file has its parts on pages, so they can be shared.
		part, d = stage(read)
		again, e := stage(part)
		sameFile(t, d.File, e.File)
		expect("pages", e, d.File, (102_400+100_000)%pageSize, (102_400+100_000)/pageSize*pageSize)
		remove(again, "tied")
		remove(again, "a")
		_, f := stage(again)
		expect("pages in the middle", f, e.File, 100_000%pageSize, 100_000/pageSize*pageSize)
	})
}

// TestLinkedData makes hard links of external data, again and again, and then replaces them by a copy.
func TestLinkedData(t *testing.T) {
	m, weights := carriedModel(t)
	source, err := os.Stat(weights)
	must(t, err)
	out := filepath.Join(t.TempDir(), "out.onnx")
	data := out + ".data"
	write := func(linked bool, options ...WriteOption) {
		t.Helper()
		s, err := Stage(out, m, options...)
		must(t, err)
		must(t, s.Commit())
		info, err := os.Stat(data)
		must(t, err)
		same, d := os.SameFile(info, source), s.Data()
		if same != linked || (d.Linked == 300_007) != linked || (d.Copied == 0) != linked {
			t.Errorf("linked %v, %+v; want %v", same, d, linked)
		}
		read, err := Read(out)
		must(t, err)
		defer read.Close()
		sameTensors(t, m, read)
		if left, _ := os.ReadDir(filepath.Dir(out)); len(left) != 2 {
			t.Errorf("left %v", left)
		}
		if left, _ := os.ReadDir(filepath.Dir(weights)); len(left) != 8 {
			t.Errorf("left %v beside the source", left)
		}
		if now, err := os.Stat(weights); err != nil || !os.SameFile(now, source) || now.Size() != 300_007 {
			t.Errorf("the source is another file: %v", err)
		}
	}
	write(true, LinkData())
	write(true, LinkData())
	was := share.Range
	share.Range = func(*os.File, int64, *os.File, int64, int64) error { return errors.ErrUnsupported }
	defer func() { share.Range = was }()
	write(false)
	write(true, LinkData())

	s, err := Stage(filepath.Join(t.TempDir(), "out.onnx"), m, LinkData())
	must(t, err)
	must(t, s.Close())
	emptyFolder(t, filepath.Dir(s.path))

	// With additional bytes the file cannot be linked.
	more, err := NewTensor("more", Uint8, []int64{5000}, bytes.Repeat([]byte{1}, 5000))
	must(t, err)
	m.Graph.AddInitializer(more)
	write(false, LinkData(), ExternalDataOver(1000))

	// In the same folder a hard link of the data is not replaced, because the new model refers to the same file.
	twin := filepath.Join(filepath.Dir(weights), "twin.onnx")
	must(t, os.Link(weights, twin+".data"))
	if err := Write(twin, m, ExternalDataOver(1000)); err == nil ||
		!strings.Contains(err.Error(), "holds external data of the model that was read") {
		t.Errorf("over a hard link in the same folder: %v", err)
	}

	// A changed source is not linked.
	must(t, os.WriteFile(weights, []byte("short"), 0o666))
	remove(m, "more")
	if err := Write(out, m, LinkData()); err == nil {
		t.Error("no error for a file that has shrunk")
	}
}
