//go:build crosscheck

package apply

import (
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/crosscheck"
)

// Only builds that request it link onnx-go: the license of its dependency gorgonia.org/tensor forbids direct profit.
func init() {
	SecondReader = func(path string, m *onnx.Model) (string, error) {
		r, err := crosscheck.File(path, m)
		if err != nil {
			return "", err
		}
		return r.String(), nil
	}
}
