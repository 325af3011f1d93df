// Package checkpoint opens the files of a checkpoint, GGUF or safetensors, as one list of tensors.
package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/mojo-patch/mojo-patch/internal/blocks"
	"github.com/mojo-patch/mojo-patch/internal/regular"
	"github.com/mojo-patch/mojo-patch/llm/weights/gguf"
	"github.com/mojo-patch/mojo-patch/llm/weights/llamacpp"
	"github.com/mojo-patch/mojo-patch/llm/weights/safetensors"
	"github.com/mojo-patch/mojo-patch/llm/weights/statistics"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// Tensor is a tensor of a checkpoint.
type Tensor struct {
	Name string
	// Type is the format's name for the storage of the elements, such as "Q4_K" or "BF16".
	Type string
	Dims []int64 // outermost first: the weight of a linear layer is [out, in]
	// DataType is the type of elements stored individually, onnx.Undefined for quantized blocks.
	DataType onnx.DataType
	Size     int64 // bytes in the file
	Path     string
	// Readable reports whether the elements can be read. Some types cannot be read.
	Readable bool

	Arch    *llamacpp.Architecture                 // of GGUF files, nil for safetensors
	Format  *blocks.Format                         // of the blocks, or nil
	Panels  *blocks.Panels                         // the panel layout of the blocks, or nil
	Float32 func(dst []float32, first int64) error // reads elements
	Bytes   func() ([]byte, error)                 // as the file stores them
	// row assembles a row of blocks, in buffer if it has room. It is nil for a tensor whose bytes are its rows.
	row    func(at int64, buffer []byte) ([]byte, error)
	OutIn  bool  // its matrices are [out, in], whatever the parameter's layout is
	Broken error // why it cannot be read although its type can
}

// Stored returns a row of size bytes as the file stores it.
func (t *Tensor) Stored(at, size int64, buffer []byte) ([]byte, error) {
	if t.row != nil {
		return t.row(at, buffer)
	}
	b, err := t.Bytes()
	if err != nil {
		return nil, err
	}
	return b[at*size : (at+1)*size], nil
}

// Len returns the number of elements.
func (t *Tensor) Len() int64 {
	n := int64(1)
	for _, d := range t.Dims {
		n *= d
	}
	return n
}

// Statistics reads all elements, in chunks.
func (t *Tensor) Statistics() (*statistics.Statistics, error) {
	return statistics.Read(t.Len(), t.Float32)
}

// Checkpoint is a set of open weight files.
type Checkpoint struct {
	Files   []string
	Tensors []*Tensor // in the order of the files

	byName    map[string]*Tensor
	ModelType string          // of config.json beside safetensors files
	Untied    bool            // config.json has tie_word_embeddings false
	split     map[string]bool // files that were opened as parts of others
	close     []func() error
}

// Tensor returns the tensor with this name, or nil.
func (c *Checkpoint) Tensor(name string) *Tensor { return c.byName[name] }

// Close releases the files. The checkpoint's tensors, and the models that use them, cannot be read afterwards.
func (c *Checkpoint) Close() error {
	var errs []error
	for _, f := range c.close {
		errs = append(errs, f())
	}
	c.close = nil
	return errors.Join(errs...)
}

// Open opens a checkpoint: files named .gguf, .safetensors or .json (an index of safetensors files), and folders of
// such files. In a folder it opens the index, else model.safetensors, else all safetensors files, else the GGUF files.
// One part of a split GGUF file (NAME-00001-of-00003.gguf) opens all parts. It is an error if two files have a tensor
// of the same name.
func Open(paths ...string) (*Checkpoint, error) {
	c := &Checkpoint{byName: map[string]*Tensor{}, split: map[string]bool{}}
	for _, path := range paths {
		if err := c.open(path); err != nil {
			c.Close()
			return nil, err
		}
	}
	c.pair()
	return c, nil
}

func (c *Checkpoint) open(path string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return fmt.Errorf("cannot read weights: %w", err)
	case info.IsDir():
		return c.openFolder(path)
	case strings.HasSuffix(path, ".gguf"):
		if c.split[filepath.Clean(path)] {
			return nil
		}
		files, err := gguf.OpenSplit(path)
		if err != nil {
			return err
		}
		for _, f := range files {
			c.split[filepath.Clean(f.Path)] = len(files) > 1
		}
		return c.addGGUF(files)
	case strings.HasSuffix(path, ".safetensors"):
		f, err := safetensors.Open(path)
		if err != nil {
			return err
		}
		return c.addSafetensors(f)
	case strings.HasSuffix(path, ".json"):
		files, err := safetensors.OpenIndex(path)
		if err != nil {
			return err
		}
		return c.addSafetensors(files...)
	}
	return fmt.Errorf("%s: weights are read only from files that end in .gguf, .safetensors or .json (an index), "+
		"and from folders with such files", path)
}

// openFolder opens a folder in the layout of model hubs.
func (c *Checkpoint) openFolder(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("cannot read weights: %w", err)
	}
	for _, suffix := range []string{".safetensors.index.json", "model.safetensors", ".safetensors", ".gguf"} {
		found := false
		for _, e := range entries {
			fits := strings.HasSuffix(e.Name(), suffix)
			if suffix == "model.safetensors" { // others have the same weights under other names, or adapters
				fits = e.Name() == suffix
			}
			if fits && !e.IsDir() {
				found = true
				if err := c.open(filepath.Join(dir, e.Name())); err != nil {
					return err
				}
			}
		}
		if found {
			return nil
		}
	}
	return fmt.Errorf("%s: the folder holds no .safetensors.index.json, .safetensors or .gguf file", dir)
}

func (c *Checkpoint) addSafetensors(files ...*safetensors.File) error {
	for _, f := range files {
		c.close = append(c.close, f.Close)
	}
	for _, f := range files {
		c.Files = append(c.Files, f.Path)
		if err := c.readConfig(filepath.Join(filepath.Dir(f.Path), "config.json")); err != nil {
			return err
		}
		for _, t := range f.Tensors {
			err := c.add(&Tensor{Name: t.Name, Type: string(t.Type), Dims: t.Dims, DataType: t.Type.DataType(),
				Size: t.Size,
				Path: f.Path, Readable: t.Type.Readable(), Float32: t.Float32, Bytes: t.Bytes})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *Checkpoint) addGGUF(files []*gguf.File) error {
	for _, f := range files {
		c.close = append(c.close, f.Close)
	}
	arch := llamacpp.Read(files)
	for _, f := range files {
		c.Files = append(c.Files, f.Path)
		for _, t := range f.Tensors {
			err := c.add(&Tensor{Name: t.Name, Type: t.Type.String(), Dims: t.Dims, DataType: t.Type.DataType(),
				Size: t.Size,
				Path: f.Path, Readable: t.Type.Readable(), Arch: arch, Format: t.Format, Panels: t.Format.Panels(),
				Float32: t.Float32, Bytes: t.Bytes})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *Checkpoint) add(t *Tensor) error {
	if other := c.byName[t.Name]; other != nil {
		if other.Path == t.Path {
			return fmt.Errorf("%s is given twice", t.Path)
		}
		return fmt.Errorf("tensor %q is in %s and in %s: name only one of them", t.Name, other.Path, t.Path)
	}
	c.byName[t.Name] = t
	c.Tensors = append(c.Tensors, t)
	return nil
}

// maxConfig is the limit on the size of config.json, in bytes.
const maxConfig = 16 << 20

// readConfig reads the model type from the configuration beside a safetensors file, if it exists.
func (c *Checkpoint) readConfig(path string) error {
	text, err := regular.ReadFile(path, maxConfig)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var config struct {
		ModelType string `json:"model_type"`
		Tied      *bool  `json:"tie_word_embeddings"`
	}
	if err == nil {
		err = json.Unmarshal(text, &config)
	}
	if err != nil {
		return fmt.Errorf("cannot read the configuration beside the weights, %s: %w", path, err)
	}
	if config.ModelType != "" {
		c.ModelType = config.ModelType
	}
	c.Untied = c.Untied || config.Tied != nil && !*config.Tied
	return nil
}
