package onnx

import (
	"os"

	"google.golang.org/protobuf/proto"
)

// Write writes the model to path.
func Write(path string, m *Model) error {
	b, err := proto.Marshal(m.message())
	if err != nil {
		return err
	}
	return os.WriteFile(path, b, 0o666)
}
