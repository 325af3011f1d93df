package onnx

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"

	"github.com/mojo-patch/mojo-patch/internal/regular"
)

// File is a file that a model was read from.
type File struct {
	Path string
	Size int64 // bytes; -1 if the file is missing
}

// Files lists the model's file and then the files of its external data, with their sizes. It is empty for a model made
// in memory.
func (m *Model) Files() ([]File, error) {
	if m.Path == "" {
		return nil, nil
	}
	info, err := os.Stat(m.Path)
	if err != nil {
		return nil, fmt.Errorf("cannot take the model's size: %w", err)
	}
	fs := []File{{m.Path, info.Size()}}
	for _, x := range m.files.used() {
		size := x.size
		if x.err != nil {
			size = -1
		}
		fs = append(fs, File{x.path, size})
	}
	return fs, nil
}

// Size returns the total size of the model's file and the files of its external data, in bytes.
func (m *Model) Size() (int64, error) {
	fs, err := m.Files()
	total := int64(0)
	for _, f := range fs {
		total += max(f.Size, 0)
	}
	return total, err
}

// SHA256 returns the hash of a file in hexadecimal, for a model without its external data. It reads the whole file.
func SHA256(path string) (string, error) {
	f, _, err := regular.Open(path)
	if err != nil {
		return "", fmt.Errorf("cannot hash the model: %w", err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("cannot hash %s: %w", path, err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// VerifyChecksums compares the SHA-1 checksums of external data with the files, reading each once. Tensors without a
// checksum pass.
func (m *Model) VerifyChecksums() error {
	var first error
	m.eachTensor(func(t *Tensor) {
		for _, t := range t.Sources() {
			if first != nil || t.External == nil || t.External.Checksum == "" || t.files == nil {
				continue
			}
			if err := t.files.verify(t); err != nil {
				first = fmt.Errorf("tensor %q: %w", t.Name, err)
			}
		}
	})
	return first
}

// eachTensor calls f for every tensor of the model: initializers, attributes, those of functions, and opaque ones.
func (m *Model) eachTensor(f func(*Tensor)) {
	attributes := func(as []*Attribute) {
		for _, a := range as {
			if a.Tensor != nil {
				f(a.Tensor)
			}
			for _, t := range a.Tensors {
				f(t)
			}
		}
	}
	graph := func(g *Graph) {
		for _, v := range g.initializers {
			f(v.Const)
		}
		for _, n := range g.Nodes {
			attributes(n.Attributes)
		}
	}
	m.Graph.Walk(graph)
	for _, fn := range m.Functions {
		for _, a := range fn.Defaults {
			attributes([]*Attribute{a})
			for _, s := range a.Subgraphs() {
				s.Walk(graph)
			}
		}
		fn.Body.Walk(graph)
	}
	for _, t := range m.opaque {
		f(t)
	}
}
