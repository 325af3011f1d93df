package generate

import (
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/ort"
)

// Remembered is the number of tokens that a model which chooses remembers.
const Remembered = remembered

// OpenChoosing opens the model at path as a model that chooses, on any provider.
func OpenChoosing(path string, options ...ort.Option) (*Generator, error) {
	b, err := choosing(path)
	if err != nil {
		return nil, err
	}
	m, err := onnx.Read(path)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	session, err := ort.OpenBytes(b, path, options...)
	if err != nil {
		return nil, err
	}
	g, err := New(m, session)
	if err != nil {
		return nil, err
	}
	g.own = true
	return g, nil
}

// AddChooser adds the nodes that choose tokens to a model.
func AddChooser(m *onnx.Model) error { return addChooser(m) }

// CanSample is Generator.canSample.
func (g *Generator) CanSample(prompts [][]int64) bool { return g.canSample(prompts) }
