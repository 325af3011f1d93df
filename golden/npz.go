package golden

import (
	"archive/zip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"github.com/mojo-patch/mojo-patch/internal/atomicfile"
	"github.com/mojo-patch/mojo-patch/internal/regular"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// npzKey is the key of an array of a case; names may contain any characters, such as dots and slashes.
var npzKey = regexp.MustCompile(`(?s)^(\d+)\.(in|out)\.(.*)$`)

// maxCases limits the memory that a damaged file can make us allocate.
const maxCases = 1 << 16

// maxRatio is deflate's best compression ratio (RFC 1951: 258 bytes in two bits); a file that claims more is damaged.
const maxRatio = 1032

func loadNPZ(path string, m *onnx.Model) ([]Case, error) {
	file, size, err := regular.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	z, err := zip.NewReader(file, size)
	if err != nil {
		return nil, fmt.Errorf("it is neither an .npz file nor a folder of test data: %w", err)
	}
	number, keyed := int64(-1), false
	for _, f := range z.File {
		key := strings.TrimSuffix(f.Name, ".npy")
		if key == "n" {
			t, err := readMember(f, key, onnx.Undefined)
			if err != nil {
				return nil, err
			}
			if b, err := t.Bytes(); err == nil && t.DataType == onnx.Int64 && len(b) == 8 {
				number = int64(binary.LittleEndian.Uint64(b))
			}
		}
		keyed = keyed || npzKey.MatchString(key)
	}
	if !keyed {
		return loadBare(z.File, m)
	}
	var cases []Case
	for _, f := range z.File {
		key := npzKey.FindStringSubmatch(strings.TrimSuffix(f.Name, ".npy"))
		if key == nil {
			continue
		}
		i, err := strconv.Atoi(key[1])
		if err != nil || i >= maxCases {
			return nil, fmt.Errorf("array %q: case %s does not exist", f.Name, key[1])
		}
		for len(cases) <= i {
			cases = append(cases, Case{})
		}
		values, list := inputValues(m), &cases[i].Inputs
		if key[2] == "out" {
			values, list = outputValues(m), &cases[i].Outputs
		}
		t, err := readMember(f, key[3], declared(values, key[3]))
		if err != nil {
			return nil, err
		}
		*list = append(*list, t)
	}
	if number >= 0 && number != int64(len(cases)) {
		return nil, fmt.Errorf("array n says %d cases, but the file holds %d", number, len(cases))
	}
	return cases, nil
}

// loadBare reads a file whose arrays have the names of the model's inputs and outputs. Other arrays are inputs, so that
// a wrong name is found when the model runs.
func loadBare(files []*zip.File, m *onnx.Model) ([]Case, error) {
	var c Case
	for _, f := range files {
		key := strings.TrimSuffix(f.Name, ".npy")
		list, dt := &c.Inputs, declared(inputValues(m), key)
		if out := declared(outputValues(m), key); dt == onnx.Undefined && out != onnx.Undefined {
			list, dt = &c.Outputs, out
		}
		t, err := readMember(f, key, dt)
		if err != nil {
			return nil, err
		}
		*list = append(*list, t)
	}
	if len(files) == 0 {
		return nil, errors.New("it holds no arrays")
	}
	return []Case{c}, nil
}

func readMember(f *zip.File, name string, want onnx.DataType) (*onnx.Tensor, error) {
	if f.UncompressedSize64/maxRatio > f.CompressedSize64 {
		return nil, fmt.Errorf("array %q claims %d bytes in %d compressed ones: the file is damaged", f.Name,
			f.UncompressedSize64, f.CompressedSize64)
	}
	r, err := f.Open()
	if err != nil {
		return nil, fmt.Errorf("array %q: %w", f.Name, err)
	}
	defer r.Close()
	t, err := readNPY(r, int64(f.UncompressedSize64), name, want)
	if err == nil {
		_, err = io.Copy(io.Discard, r) // the checksum is verified at the end
	}
	if err != nil {
		return nil, fmt.Errorf("array %q: %w", f.Name, err)
	}
	return t, nil
}

// SaveNPZ writes the cases to one .npz file, under the keys of the package comment. Equal cases produce equal bytes:
// arrays keep their order, are not compressed and have no time stamps. The file is written atomically.
func SaveNPZ(path string, cases []Case) error {
	err := atomicfile.WriteFile(path, func(w io.Writer) error {
		z := zip.NewWriter(w)
		for i, c := range cases {
			if err := addTensors(z, fmt.Sprintf("%d.in.", i), c.Inputs); err != nil {
				return err
			}
			if err := addTensors(z, fmt.Sprintf("%d.out.", i), c.Outputs); err != nil {
				return err
			}
		}
		n := binary.LittleEndian.AppendUint64(nil, uint64(len(cases)))
		count, err := onnx.NewTensor("n", onnx.Int64, []int64{}, n)
		if err != nil {
			return err
		}
		if err := addTensors(z, "", []*onnx.Tensor{count}); err != nil {
			return err
		}
		return z.Close()
	})
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", path, err)
	}
	return nil
}

func addTensors(z *zip.Writer, prefix string, list []*onnx.Tensor) error {
	seen := map[string]bool{}
	for _, t := range list {
		key := prefix + t.Name
		if seen[key] {
			return fmt.Errorf("two tensors are named %q", key)
		}
		seen[key] = true
		w, err := z.CreateHeader(&zip.FileHeader{Name: key + ".npy", Method: zip.Store})
		if err == nil {
			err = writeNPY(w, t)
		}
		if err != nil {
			return fmt.Errorf("tensor %q: %w", key, err)
		}
	}
	return nil
}
