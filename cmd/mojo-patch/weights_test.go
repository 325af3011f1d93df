package main

import (
	"encoding/binary"
	"math"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/llm/checkpoints"
	"github.com/mojo-patch/mojo-patch/llm/weights/gguf"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/rogpeppe/go-internal/testscript"
	"github.com/x448/float16"
)

// writeCheckpoint writes the weights of an exported Llama of 4 heads as a checkpoint: checkpoint MODEL FILE [CHANGE
// NAME …]. CHANGE is drop, add, halve (half of the rows), large (an element of 1e6), or q8_0 (a GGUF file has matrices
// of that name in this type).
func writeCheckpoint(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 || len(args)%2 != 0 {
		ts.Fatalf("usage: checkpoint MODEL FILE [CHANGE NAME ...]")
	}
	m, err := onnx.Read(ts.MkAbs(args[0]))
	ts.Check(err)
	defer m.Close()
	list, err := checkpoints.Llama(m)
	ts.Check(err)
	var quantised []string
	for change := range slices.Chunk(args[2:], 2) {
		if change[0] == "q8_0" {
			quantised = append(quantised, change[1])
			continue
		}
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
		for i, t := range list {
			named := func(s string) bool { return strings.Contains(t.Name, s) }
			if len(t.Dims) == 2 && slices.ContainsFunc(quantised, named) {
				list[i] = q8(t)
			}
		}
		ts.Check(checkpoints.GGUF(ts.MkAbs(args[1]), metadata, list))
		return
	}
	ts.Check(checkpoints.Safetensors(ts.MkAbs(args[1]), list))
}

// q8 is a tensor rounded to Q8_0.
func q8(t checkpoints.Tensor) checkpoints.Tensor {
	t.Type = uint32(gguf.Q8_0)
	for block := range slices.Chunk(t.Data, 32) {
		greatest := float32(0)
		for _, x := range block {
			greatest = max(greatest, x, -x)
		}
		d := float16.Fromfloat32(greatest / 127)
		t.Raw = binary.LittleEndian.AppendUint16(t.Raw, d.Bits())
		for _, x := range block {
			q := 0.0
			if greatest > 0 {
				q = math.Round(float64(x / d.Float32()))
			}
			t.Raw = append(t.Raw, byte(int8(min(max(q, -127), 127))))
		}
	}
	return t
}
