package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/internal/cputime"
	"google.golang.org/protobuf/encoding/protowire"
)

// message is an encoded protobuf message that grows field by field.
type message []byte

func (m message) text(field protowire.Number, s string) message {
	return protowire.AppendString(protowire.AppendTag(m, field, protowire.BytesType), s)
}

func (m message) number(field protowire.Number, v int64) message {
	return protowire.AppendVarint(protowire.AppendTag(m, field, protowire.VarintType), uint64(v))
}

func (m message) add(field protowire.Number, of ...message) message {
	for _, x := range of {
		m = m.text(field, string(x))
	}
	return m
}

// nodeOf encodes a node, "y z = Op(a b)" or "y = domain:Op(a)", with encoded attributes.
func nodeOf(text string, attributes ...message) message {
	left, right, _ := strings.Cut(text, " = ")
	op, inputs, _ := strings.Cut(strings.TrimSuffix(right, ")"), "(")
	var m message
	for _, name := range strings.Fields(inputs) {
		m = m.text(1, strings.TrimPrefix(name, "_")) // "_" is an omitted input
	}
	for _, name := range strings.Fields(left) {
		m = m.text(2, name)
	}
	if domain, name, ok := strings.Cut(op, ":"); ok {
		m, op = m.text(7, domain), name
	}
	return m.text(4, op).add(5, attributes...)
}

func graphAttribute(name string, g message) message {
	return message{}.text(1, name).add(6, g).number(20, 5)
}

// valueOf encodes the declaration of a tensor of an element type and dimensions.
func valueOf(name string, elements int64, dims ...int64) message {
	var shape message
	for _, d := range dims {
		shape = shape.add(1, message{}.number(1, d))
	}
	return message{}.text(1, name).add(2, message{}.add(1, message{}.number(1, elements).add(2, shape)))
}

func intsOf(name string, v ...int64) message {
	var raw []byte
	for _, x := range v {
		raw = binary.LittleEndian.AppendUint64(raw, uint64(x))
	}
	return message{}.number(1, int64(len(v))).number(2, 7).text(8, name).text(9, string(raw))
}

// bodyOf encodes a graph with the named outputs.
func bodyOf(outputs string, nodes ...message) message {
	m := message{}.add(1, nodes...).text(2, "g")
	for _, name := range strings.Fields(outputs) {
		m = m.add(12, message{}.text(1, name))
	}
	return m
}

// ifs encodes a graph of If, whose branch is a graph of If, and so on, around the innermost one. Lengths are known in
// advance, so no level copies the others.
func ifs(depth int, innermost message) message {
	open := func(m message, field protowire.Number, size int) message {
		return protowire.AppendVarint(protowire.AppendTag(m, field, protowire.BytesType), uint64(size))
	}
	var heads []message
	var tails []message
	size := len(innermost)
	for range depth {
		attribute := open(message{}.text(1, "then_branch"), 6, size)
		kind := message{}.number(20, 5)
		node := open(nodeOf("y = If(c)"), 5, len(attribute)+size+len(kind))
		graph := open(nil, 1, len(node)+len(attribute)+size+len(kind))
		head := slices.Concat(graph, node, attribute)
		tail := slices.Concat(kind, bodyOf("y"))
		heads, tails = append(heads, head), append(tails, tail)
		size += len(head) + len(tail)
	}
	slices.Reverse(heads)
	return slices.Concat(slices.Concat(heads...), innermost, slices.Concat(tails...))
}

// modelOf encodes a model of opset 20 whose graph reads x, float32[2], and returns y.
func modelOf(graph message, functions ...message) message {
	graph = graph.add(11, valueOf("x", 1, 2)).add(12, valueOf("y", 1))
	opset := message{}.number(2, 20)
	return message{}.number(1, 10).add(7, graph).add(8, opset, message{}.text(1, "f").number(2, 1)).add(25,
		functions...)
}

func functionOf(name string, nodes ...message) message {
	m := message{}.text(1, name).text(4, "x").text(5, "y").add(7, nodes...)
	return m.add(9, message{}.number(2, 20), message{}.text(1, "f").number(2, 1)).text(10, "f")
}

// hostile is an invalid model, or one that needs huge results.
type hostile struct {
	model   message
	refused string // the error of every command, with exit code 2
	running string // the error of run and diff only, with exit code 1
	inlined string // an error that the others may then return, with exit code 2
}

func hostileModels() map[string]hostile {
	y := nodeOf("y = Relu(x)")
	list := map[string]hostile{
		"no graph":      {model: message{}.number(1, 10), refused: "no graph"},
		"a cycle":       {model: modelOf(bodyOf("", nodeOf("a = Abs(b)"), nodeOf("b = Abs(a)"), y)), refused: "cycle"},
		"its own input": {model: modelOf(bodyOf("", nodeOf("a = Abs(a)"), y)), refused: "reads its own output"},
		"written twice": {model: modelOf(bodyOf("", y, nodeOf("y = Abs(x)"))), refused: `"y" is defined twice`},
		"missing input": {model: modelOf(bodyOf("", nodeOf("y = Add(x nothing)"))),
			refused: `reads "nothing", which nothing defines`},
		"missing output": {model: modelOf(bodyOf("z", y)), refused: `no node makes the output "z" of graph "g"`},
		"recursion": {model: modelOf(bodyOf("", nodeOf("y = f:a(x)")), functionOf("a", nodeOf("y = f:a(x)"))),
			refused: "calls itself"},
		"mutual recursion": {model: modelOf(bodyOf("", y), functionOf("a", nodeOf("y = f:b(x)")),
			functionOf("b", nodeOf("y = f:a(x)"))), refused: "calls itself"},
		"function twice": {model: modelOf(bodyOf("", y), functionOf("a", y), functionOf("a", y)),
			refused: "defined twice"},
		"overflowing dims": {
			model: modelOf(bodyOf("", y).add(5, message{}.number(1, 1<<40).number(1, 1<<40).number(2, 1).text(8,
				"w").text(9, "1234"))), refused: "overflow"},
		"claims 2^60": {model: modelOf(
			bodyOf("", y).add(5, message{}.number(1, 1<<58).number(2, 1).text(8, "w").text(9, "1234"))),
			refused: "raw_data holds 4"},
		"negative dimension": {
			model:   modelOf(bodyOf("", y).add(5, message{}.number(1, -4).number(2, 1).text(8, "w").text(9, "1234"))),
			refused: "negative dimension"},
		"negative length": {
			model: modelOf(bodyOf("", y).add(5, message{}.number(1, 1).number(2, 1).text(8, "w").number(14, 1).
				add(13, message{}.text(1, "location").text(2, "model.onnx"),
					message{}.text(1, "length").text(2, "-4")))),
			refused: `length "-4"`},
	}
	deep := ifs(10_000, bodyOf("y", nodeOf("y = Relu(x)")))
	list["graphs 10,000 deep"] = hostile{model: modelOf(deep), refused: "nested more than 128 deep"}

	chain := func(n int, body func(i int) []message) message {
		var list []message
		for i := range n {
			list = append(list, functionOf(fmt.Sprint("f", i), body(i)...))
		}
		list = append(list, functionOf(fmt.Sprint("f", n), y))
		return modelOf(bodyOf("", nodeOf("y = f:f0(x)")), list...)
	}
	list["functions 10,000 deep"] = hostile{running: "nested deeper than 64", inlined: "cannot inline functions",
		model: chain(10_000, func(i int) []message {
			return []message{nodeOf(fmt.Sprintf("y = f:f%d(x)", i+1))}
		})}
	list["functions that double 40 times"] = hostile{running: "hardly end", inlined: "cannot inline functions",
		model: chain(40, func(i int) []message {
			return []message{nodeOf(fmt.Sprintf("a = f:f%d(x)", i+1)), nodeOf(fmt.Sprintf("y = f:f%d(a)", i+1))}
		})}

	huge := func(op string, ints ...message) hostile {
		return hostile{running: "elements",
			model: modelOf(bodyOf("", nodeOf("a = "+op),
				nodeOf("y = Cast(a)", message{}.text(1, "to").number(3, 1).number(20, 2))).add(5, ints...))}
	}
	list["ConstantOfShape"] = huge("ConstantOfShape(s)", intsOf("s", 1<<30, 1<<30))
	list["ConstantOfShape of 2^40"] = huge("ConstantOfShape(s)", intsOf("s", 1<<40))
	list["Expand"] = huge("Expand(x s)", intsOf("s", 1<<60, 2))
	list["Tile"] = huge("Tile(x s)", intsOf("s", 1<<60))
	list["Tile past the largest number"] = huge("Tile(x s)", intsOf("s", 1<<63-1))
	list["Pad"] = huge("Pad(x s)", intsOf("s", 1<<60, 1<<60))
	list["Pad past the largest number"] = huge("Pad(x s)", intsOf("s", 1<<62, 1<<62))
	scalar := func(name string, v int64) message {
		return message{}.number(2, 7).text(8, name).text(9, string(binary.LittleEndian.AppendUint64(nil, uint64(v))))
	}
	list["Range"] = huge("Range(a0 a1 a2)", scalar("a0", 0), scalar("a1", 1<<60), scalar("a2", 1))
	list["OneHot"] = hostile{running: "expected a size",
		model: huge("OneHot(i n i)", intsOf("i", 0, 1), scalar("n", 1<<60)).model}
	chainOf := []message{}
	last := "x"
	grow := func(to, from string) message { // enough that the tensors before the limit stay small
		return nodeOf(fmt.Sprintf("%s = Concat(%s)", to, strings.Repeat(from+" ", 64)),
			message{}.text(1, "axis").number(3, 0).number(20, 2))
	}
	for i := range 40 {
		next := fmt.Sprint("t", i)
		chainOf = append(chainOf, grow(next, last))
		last = next
	}
	list["Concat, 40 times"] = hostile{running: "elements",
		model: modelOf(bodyOf("", append(chainOf, nodeOf("y = Relu("+last+")"))...))}

	loop := func(trips int64, body message) hostile {
		body = body.add(11, valueOf("i", 7), valueOf("c", 9), valueOf("v", 1))
		return hostile{running: "hardly end",
			model: modelOf(bodyOf("", nodeOf("y = Loop(n _ x)", graphAttribute("body", body))).add(5,
				scalar("n", trips)))}
	}
	list["Loop of 2^60"] = loop(1<<60, bodyOf("c v"))
	nested := bodyOf("c w", grow("w", "v"))
	for range 30 {
		inner := nested.add(11, valueOf("i", 7), valueOf("c", 9), valueOf("v", 1))
		nested = bodyOf("c w", nodeOf("w = Loop(n c v)", graphAttribute("body", inner)))
	}
	h := loop(1<<60, nested)
	h.running = "elements"
	list["Loops 30 deep"] = h
	return list
}

// TestHostileModels runs every command on models that are invalid, or that claim to be huge or endless. Each must end
// soon and say why, and write nothing if it refuses the model.
func TestHostileModels(t *testing.T) {
	for name, h := range hostileModels() {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && h.running != "" {
				t.Skip("takes a few seconds")
			}
			dir := t.TempDir()
			path, out := filepath.Join(dir, "model.onnx"), filepath.Join(dir, "out.onnx")
			if err := os.WriteFile(path, h.model, 0o666); err != nil {
				t.Fatal(err)
			}
			for _, args := range [][]string{
				{"inspect", path},
				{"inspect", path, "-v"},
				{"match", path, "--assume-available", "--check-kernels", "off"},
				{"apply", path, "-o", out, "--assume-available", "--check-kernels", "off"},
				{"run", path, "--evaluator"},
				{"diff", path, path, "--evaluator"},
			} {
				want, say := cli.ExitDone, ""
				runs := args[0] == "run" || args[0] == "diff"
				if h.refused != "" {
					want, say = cli.ExitUsage, h.refused
				} else if runs {
					want, say = cli.ExitFailed, h.running
				}
				if args[0] == "diff" && h.running == "hardly end" {
					continue // takes as long as run
				}
				start := cputime.Used()
				var stdout, stderr bytes.Buffer
				code := execute(args, &stdout, &stderr)
				if h.inlined != "" && !runs && code == cli.ExitUsage {
					want, say = code, h.inlined
				}
				if code != want || !strings.Contains(stderr.String(), say) {
					t.Errorf("%s exits with %d, want %d and %q: %s", args[0], code, want, say,
						first(stderr.String(), 600))
				}
				if took := cputime.Used() - start; took > time.Minute {
					t.Errorf("%s takes %v", args[0], took)
				}
			}
			if left, err := os.ReadDir(dir); h.refused != "" && (err != nil || len(left) > 1) {
				t.Errorf("left %v (%v)", left, err)
			}
		})
	}
}

func first(s string, n int) string { return s[:min(n, len(s))] }
