package main

import (
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/llm/checkpoints"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/rogpeppe/go-internal/testscript"
)

// writeCheckpoint writes the weights of an exported Llama of 4 heads as a checkpoint: checkpoint MODEL FILE [CHANGE
// NAME …], where a change is drop, add, halve (half of the rows), or large (an element of 1e6).
func writeCheckpoint(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 || len(args)%2 != 0 {
		ts.Fatalf("usage: checkpoint MODEL FILE [CHANGE NAME ...]")
	}
	m, err := onnx.Read(ts.MkAbs(args[0]))
	ts.Check(err)
	defer m.Close()
	list, err := checkpoints.Llama(m)
	ts.Check(err)
	for change := range slices.Chunk(args[2:], 2) {
		i := slices.IndexFunc(list, func(t checkpoints.Tensor) bool { return t.Name == change[1] })
		if i < 0 && change[0] != "add" {
			ts.Fatalf("no tensor %s", change[1])
		}
		switch change[0] {
		case "drop":
			list = slices.Delete(list, i, i+1)
		case "add":
			list = append(list, checkpoints.Tensor{Name: change[1], Dims: []int64{2}, Data: []float32{1, 2}})
		case "halve":
			list[i].Dims = []int64{list[i].Dims[0] / 2, list[i].Dims[1]}
			list[i].Data = list[i].Data[:len(list[i].Data)/2]
		case "large":
			list[i].Data[0] = 1e6
		default:
			ts.Fatalf("unknown change %s", change[0])
		}
	}
	if strings.HasSuffix(args[1], ".gguf") {
		metadata, list := checkpoints.LlamaGGUF(list, 4, 2)
		ts.Check(checkpoints.GGUF(ts.MkAbs(args[1]), metadata, list))
		return
	}
	ts.Check(checkpoints.Safetensors(ts.MkAbs(args[1]), list))
}
