package onnx

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// patterned returns n bytes in which no long range repeats.
func patterned(n, seed int) []byte {
	b := make([]byte, n)
	x := uint32(seed)*2654435761 + 1
	for i := range b {
		x = x*1664525 + 1013904223
		b[i] = byte(x >> 24)
	}
	return b
}

// wholeModel has weights in a data file, in memory, in typed fields, and computed ones.
func wholeModel(t *testing.T) *Model {
	t.Helper()
	path := filepath.Join(t.TempDir(), "whole.onnx")
	m := New(10, 21)
	for i, name := range []string{"rows", "columns", "overlapping", "tied", "whole"} {
		w, err := NewTensor(name, Float, []int64{96, 64}, patterned(96*64*4, i))
		must(t, err)
		m.Graph.AddInitializer(w)
	}
	must(t, Write(path, m, ExternalDataOver(1000)))
	m, err := Read(path)
	must(t, err)
	t.Cleanup(func() { m.Close() })
	memory, err := NewTensor("memory", Float16, []int64{96, 64}, patterned(96*64*2, 7))
	must(t, err)
	m.Graph.AddInitializer(memory)
	deferred, err := NewDeferred("deferred", Float, []int64{96, 64}, func(w io.Writer) error {
		_, err := w.Write(patterned(96*64*4, 8))
		return err
	})
	must(t, err)
	m.Graph.AddInitializer(deferred)
	small, err := NewTensor("small", Float, []int64{96}, patterned(96*4, 9))
	must(t, err)
	m.Graph.AddInitializer(small)
	return m
}

// rankModel has a rank's slices of the weights.
func rankModel(t *testing.T, m *Model, rank, ranks int64) *Model {
	t.Helper()
	r := New(10, 21)
	view := func(name string, dims []int64, offset int64, strides []int64) {
		v, err := m.Graph.Value(name).Const.View(name, dims, offset, strides)
		must(t, err)
		r.Graph.AddInitializer(v)
	}
	n, k := 96/ranks, 64/ranks
	for _, name := range []string{"rows", "memory", "deferred"} {
		view(name, []int64{n, 64}, rank*n*64, nil)
	}
	view("columns", []int64{96, k}, rank*k, []int64{64, 1})
	view("overlapping", []int64{64, 64}, rank%2*32*64, nil)
	half, err := m.Graph.Value("tied").Const.View("half", []int64{48, 64}, rank%2*48*64, nil)
	must(t, err)
	r.Graph.AddInitializer(half)
	all, err := m.Graph.Value("whole").Const.View("transposed", []int64{64, 96}, 0, []int64{1, 64})
	must(t, err)
	r.Graph.AddInitializer(all)
	for _, name := range []string{"tied", "whole", "small"} {
		r.Graph.AddInitializer(m.Graph.Value(name).Const)
	}
	return r
}

func TestWriteFolder(t *testing.T) {
	for _, ranks := range []int64{1, 2, 4} {
		m := wholeModel(t)
		var models []FolderModel
		want := make([]map[string][]byte, ranks)
		for rank := range ranks {
			r := rankModel(t, m, rank, ranks)
			models = append(models, FolderModel{fmt.Sprintf("rank-%d.onnx", rank), r})
			want[rank] = map[string][]byte{}
			for _, w := range r.Graph.Initializers() {
				b, err := w.Const.Bytes()
				must(t, err)
				want[rank][w.Name] = b
			}
		}
		folder := filepath.Join(t.TempDir(), "sharded")
		must(t, WriteFolder(folder, models, func(folder string) error {
			return os.WriteFile(filepath.Join(folder, "plan.json"), []byte("{}"), 0o666)
		}))
		list, err := os.ReadDir(folder)
		must(t, err)
		if len(list) != int(ranks)+2 {
			t.Errorf("%d ranks: the folder has %d files", ranks, len(list))
		}
		for rank, w := range want {
			r, err := Read(filepath.Join(folder, models[rank].File))
			must(t, err)
			for name, b := range w {
				got, err := r.Graph.Value(name).Const.Bytes()
				must(t, err)
				if !bytes.Equal(got, b) {
					t.Errorf("rank %d of %d: %s differs", rank, ranks, name)
				}
			}
			must(t, r.Close())
		}
		// columns, tied, whole and its transposition, deferred, memory, and the slices of rows and overlapping, which
		// ends at 64 of 96 rows with one rank
		info, err := os.Stat(filepath.Join(folder, FolderData))
		must(t, err)
		least := int64(96*64*4*6 + 96*64*2 + 64*64*4)
		if ranks > 1 {
			least = 96*64*4*7 + 96*64*2
		}
		if most := least + pageSize*(3*ranks+6); info.Size() < least || info.Size() > most {
			t.Errorf("%d ranks: the data file has %d bytes, want %d to %d", ranks, info.Size(), least, most)
		}
	}
}

// TestWriteFolderAgain writes the same models twice, and the whole model after that: nothing of a write may stay in
// the models.
func TestWriteFolderAgain(t *testing.T) {
	m := wholeModel(t)
	models := []FolderModel{{"a.onnx", rankModel(t, m, 0, 2)}, {"b.onnx", rankModel(t, m, 1, 2)}}
	var data [2][]byte
	for i := range data {
		folder := filepath.Join(t.TempDir(), "sharded")
		must(t, os.Mkdir(folder, 0o777)) // an empty folder may be there
		must(t, WriteFolder(folder, models, func(string) error { return nil }))
		for _, name := range []string{FolderData, "a.onnx", "b.onnx"} {
			b, err := os.ReadFile(filepath.Join(folder, name))
			must(t, err)
			data[i] = append(data[i], b...)
		}
	}
	if !bytes.Equal(data[0], data[1]) {
		t.Error("the same models have other files")
	}
	must(t, Write(filepath.Join(t.TempDir(), "whole.onnx"), m))
}

func TestWriteFolderAllOrNothing(t *testing.T) {
	m := wholeModel(t)
	parent := t.TempDir()
	folder := filepath.Join(parent, "sharded")
	models := []FolderModel{{"a.onnx", rankModel(t, m, 0, 2)}}
	failure := errors.New("no plan")
	if err := WriteFolder(folder, models, func(string) error { return failure }); !errors.Is(err, failure) {
		t.Errorf("got %v", err)
	}
	twice := append(models, models...)
	if err := WriteFolder(folder, twice, func(string) error { return nil }); !errors.Is(err, os.ErrExist) {
		t.Errorf("two models of one name: %v", err)
	}
	if list, err := os.ReadDir(parent); err != nil || len(list) > 0 {
		t.Errorf("failed writes left %v, %v", list, err)
	}
	must(t, os.Mkdir(folder, 0o777))
	must(t, os.WriteFile(filepath.Join(folder, "mine"), nil, 0o666))
	mine := filepath.Join(folder, "mine")
	for path, text := range map[string]string{folder: "is not empty", mine: "is not a folder"} {
		err := WriteFolder(path, models, func(string) error { return nil })
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", path, err)
		}
	}
	must(t, m.Close())
	err := WriteFolder(filepath.Join(parent, "closed"), models, func(string) error { return nil })
	if !errors.Is(err, ErrClosed) {
		t.Errorf("a closed model: %v", err)
	}
}

// TestCloneOfOthersWeights clones a model in memory whose weights are in another model's data file.
func TestCloneOfOthersWeights(t *testing.T) {
	m := wholeModel(t)
	part := New(10, 21)
	part.Graph.AddInitializer(m.Graph.Value("rows").Const)
	c, err := part.Clone()
	must(t, err)
	got, err := c.Graph.Value("rows").Const.Bytes()
	must(t, err)
	want, err := m.Graph.Value("rows").Const.Bytes()
	must(t, err)
	if !bytes.Equal(got, want) {
		t.Error("the clone has other weights")
	}
}
