package main

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// counts are the tensors compared byte for byte.
type counts struct {
	untouched      int
	untouchedBytes int64
	packed         int
	packedBytes    int64
}

// compare compares the weights of a patched model with the original's: weights of the same name, and weights of
// experts that were packed into one initializer.
func compare(before, after string, s sizes) (counts, error) {
	var c counts
	a, err := onnx.Read(before)
	if err != nil {
		return c, err
	}
	defer a.Close()
	b, err := onnx.Read(after)
	if err != nil {
		return c, err
	}
	defer b.Close()
	for _, v := range b.Graph.Initializers() {
		old := a.Graph.Value(v.Name)
		if old == nil || old.Const == nil {
			continue
		}
		x, err := old.Const.Bytes()
		if err != nil {
			return c, err
		}
		y, err := v.Const.Bytes()
		if err != nil {
			return c, err
		}
		if !bytes.Equal(x, y) {
			return c, fmt.Errorf("weight %q has changed", v.Name)
		}
		if strings.Contains(v.Name, ".experts.") {
			return c, fmt.Errorf("weight %q is in the patched model still", v.Name)
		}
		c.untouched++
		c.untouchedBytes += int64(len(x))
	}
	layer := 0
	for _, n := range b.Graph.Nodes {
		if n.OpType != fused.MoEName {
			continue
		}
		if p := n.AttrString(fused.AttrPacking, "") + " " + n.AttrString(fused.AttrGateUpLayout, "") + " " +
			n.AttrString(fused.AttrDownLayout, ""); p != "halves in_out in_out" {
			return c, fmt.Errorf("node %q has its weights as %s, which this program does not know", n.Name, p)
		}
		for input, parts := range map[int][]string{3: {"w1", "w3"}, 4: {"w2"}} {
			t := n.Input(input).Constant()
			if t == nil {
				return c, fmt.Errorf("input %d of node %q is not an initializer", input, n.Name)
			}
			if err := sideBySide(t, a, layer, s.experts, parts); err != nil {
				return c, err
			}
			c.packed++
			c.packedBytes += t.Size()
		}
		layer++
	}
	if layer != s.layers {
		return c, fmt.Errorf("%d of %d layers have a fused mixture", layer, s.layers)
	}
	return c, nil
}

// sideBySide compares the rows of a packed weight with its parts.
func sideBySide(packed *onnx.Tensor, m *onnx.Model, layer, experts int, parts []string) error {
	rest, err := packed.Bytes()
	if err != nil {
		return err
	}
	for e := range experts {
		var sources [][]byte
		rows, width := 0, 0
		for _, p := range parts {
			t := m.Graph.Value(expertWeight(layer, e, p)).Const
			b, err := t.Bytes()
			if err != nil {
				return err
			}
			sources = append(sources, b)
			rows = int(t.Dims[0])
			width = len(b) / rows
		}
		for r := range rows {
			for i, b := range sources {
				if len(rest) < width || !bytes.Equal(rest[:width], b[r*width:(r+1)*width]) {
					return fmt.Errorf("row %d of %s is not at its place in %q", r, expertWeight(layer, e, parts[i]),
						packed.Name)
				}
				rest = rest[width:]
			}
		}
	}
	if len(rest) > 0 {
		return fmt.Errorf("%q has %d bytes too many", packed.Name, len(rest))
	}
	return nil
}
