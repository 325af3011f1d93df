package session

import (
	"fmt"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/internal/english"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// widenedBytes returns the bytes of quantized weights as float32. If no kernel is registered, onnxruntime folds the
// definition's dequantization into float32 as it loads a model. QMoE is excluded: its definition dequantizes a token's
// experts as it runs.
func widenedBytes(m *onnx.Model) (bytes int64) {
	type reader struct {
		codes *onnx.Value
		op    string
	}
	seen := map[reader]bool{}
	for _, g := range m.Graphs() {
		for _, n := range g.Nodes {
			r := reader{n.Input(fused.LinearCodes), n.OpType}
			if n.Domain != fused.Domain || r.op != fused.LinearName && r.op != fused.EmbeddingName ||
				!r.codes.IsConstant() || seen[r] {
				continue
			}
			seen[r] = true
			bytes += 4 * max(n.AttrInt(fused.AttrN, 0), 0) * max(n.AttrInt(fused.AttrK, 0), 0)
		}
	}
	return bytes
}

// widening returns the part of a message that reports this size, or "".
func widening(m *onnx.Model) string {
	if bytes := widenedBytes(m); bytes > 0 {
		return fmt.Sprintf(", and onnxruntime expands quantized weights to %s of float32 as it loads",
			english.Bytes(bytes))
	}
	return ""
}

// SayWidened reports this size for a written model, as a warning if the kernels are not found here.
func SayWidened(a *cli.App, m *onnx.Model, kernelsLib string) {
	bytes := widenedBytes(m)
	if bytes == 0 {
		return
	}
	warning, where := "", "the kernels are not registered"
	if _, err := fused.FindLibrary(kernelsLib); err != nil {
		warning, where = "warning: the kernel library was not found here: ", "it is not registered"
	}
	a.Say("%sif %s, onnxruntime expands quantized weights to %s of float32 as the model loads", warning, where,
		english.Bytes(bytes))
}
