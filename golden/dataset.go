package golden

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"

	"github.com/mojo-patch/mojo-patch/internal/atomicfile"
	"github.com/mojo-patch/mojo-patch/internal/regular"
	"github.com/mojo-patch/mojo-patch/onnx"
)

const dataSet = "test_data_set_"

// loadDir reads ONNX test data: each folder test_data_set_N holds input_0.pb, input_1.pb, … and output_0.pb, …, each
// with one TensorProto.
func loadDir(dir string, m *onnx.Model) ([]Case, error) {
	sets, err := numbered(dir, dataSet, "")
	if err != nil {
		return nil, err
	}
	if len(sets) == 0 {
		c, err := loadSet(dir, m)
		if err == nil && len(c.Inputs)+len(c.Outputs) == 0 {
			err = fmt.Errorf("the folder contains neither %s0 nor input_0.pb", dataSet)
		}
		return []Case{c}, err
	}
	cases := make([]Case, len(sets))
	for i, set := range sets {
		if cases[i], err = loadSet(set, m); err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Base(set), err)
		}
	}
	return cases, nil
}

func loadSet(dir string, m *onnx.Model) (c Case, err error) {
	if c.Inputs, err = loadTensors(dir, "input_", inputValues(m)); err != nil {
		return c, err
	}
	c.Outputs, err = loadTensors(dir, "output_", outputValues(m))
	return c, err
}

func loadTensors(dir, prefix string, values []*onnx.Value) ([]*onnx.Tensor, error) {
	files, err := numbered(dir, prefix, ".pb")
	if err != nil {
		return nil, err
	}
	list := make([]*onnx.Tensor, len(files))
	for i, file := range files {
		b, err := regular.ReadFile(file, math.MaxInt32) // protobuf's limit
		if err != nil {
			return nil, err
		}
		t, err := onnx.UnmarshalTensor(b)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Base(file), err)
		}
		if t.Name == "" && i < len(values) {
			t.Name = values[i].Name
		}
		list[i] = t
	}
	return list, nil
}

// numbered lists dir's entries prefixN+suffix in numeric order. It returns an error if a number is missing, since the
// number is a position.
func numbered(dir, prefix, suffix string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var numbers []int
	for _, e := range entries {
		s, ok := strings.CutPrefix(e.Name(), prefix)
		if !ok || !strings.HasSuffix(s, suffix) {
			continue
		}
		if n, err := strconv.Atoi(strings.TrimSuffix(s, suffix)); err == nil {
			numbers = append(numbers, n)
		}
	}
	sort.Ints(numbers)
	paths := make([]string, len(numbers))
	for i, n := range numbers {
		if i != n {
			return nil, fmt.Errorf("%s%d%s is missing", prefix, i, suffix)
		}
		paths[i] = filepath.Join(dir, prefix+strconv.Itoa(n)+suffix)
	}
	return paths, nil
}

// SaveDir writes the cases as ONNX test data: dir/test_data_set_N/input_i.pb and output_i.pb. It makes dir if needed,
// and returns an error without writing if dir contains test data. The folders appear when all are complete.
func SaveDir(dir string, cases []Case) error {
	if err := saveDir(dir, cases); err != nil {
		return fmt.Errorf("cannot write test data to %s: %w", dir, err)
	}
	return nil
}

func saveDir(dir string, cases []Case) (err error) {
	if _, missing := os.Stat(dir); missing != nil {
		defer func() {
			if err != nil {
				os.Remove(dir) // made here, and empty
			}
		}()
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	old, err := filepath.Glob(filepath.Join(dir, dataSet+"*"))
	if err != nil {
		return err
	}
	if len(old) > 0 {
		return fmt.Errorf("it already contains %s: remove it or choose another folder", filepath.Base(old[0]))
	}
	temp, err := atomicfile.MkdirTemp(dir, ".test_data_*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, atomicfile.Remove(temp)) }()
	for i, c := range cases {
		set := filepath.Join(temp, dataSet+strconv.Itoa(i))
		if err := os.Mkdir(set, 0o777); err != nil {
			return err
		}
		if err := saveTensors(set, "input_", c.Inputs); err != nil {
			return err
		}
		if err := saveTensors(set, "output_", c.Outputs); err != nil {
			return err
		}
	}
	return atomicfile.Commit(func() error { return renameSets(temp, dir, len(cases)) })
}

// renameSets moves the folders of n cases. If one cannot be moved, it removes those that were.
func renameSets(from, to string, n int) error {
	for i := range n {
		name := dataSet + strconv.Itoa(i)
		if err := os.Rename(filepath.Join(from, name), filepath.Join(to, name)); err != nil {
			for k := range i {
				err = errors.Join(err, os.RemoveAll(filepath.Join(to, dataSet+strconv.Itoa(k))))
			}
			return err
		}
	}
	return nil
}

func saveTensors(dir, prefix string, list []*onnx.Tensor) error {
	for i, t := range list {
		b, err := onnx.MarshalTensor(t)
		if err != nil {
			return fmt.Errorf("tensor %q: %w", t.Name, err)
		}
		err = atomicfile.WriteFile(filepath.Join(dir, prefix+strconv.Itoa(i)+".pb"), func(w io.Writer) error {
			_, err := w.Write(b)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
