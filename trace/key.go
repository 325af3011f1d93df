package trace

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
)

func digits(i int) string { return strconv.Itoa(i) }

// nodeKey is equal for nodes of one op with equal attributes. Of graphs in attributes, only the ops count.
func nodeKey(n *onnx.Node) string {
	holds := func(a *onnx.Attribute) bool { return len(a.Subgraphs()) > 0 }
	plain := slices.DeleteFunc(slices.Clone(n.Attributes), holds)
	var b strings.Builder
	domain := n.Domain
	if onnx.IsStandardDomain(domain) {
		domain = ""
	}
	fmt.Fprintf(&b, "%s.%s.%s%d%s", domain, n.OpType, n.Overload, len(n.Outputs), onnx.AttributesKey(plain))
	for _, g := range n.Subgraphs() {
		for _, m := range g.Nodes {
			b.WriteString("{" + nodeKey(m) + "}")
		}
	}
	return b.String()
}

// A constant of more than sampledOver bytes counts by samples of bytesOfSample bytes.
const (
	sampledOver   = 1 << 16
	samples       = 64
	bytesOfSample = 256
)

// tensorKey identifies a constant's type, shape and elements. It samples the elements of a large constant: weights that
// differ only elsewhere are weights of the same place.
func tensorKey(t *onnx.Tensor) string {
	head := fmt.Sprintf("%d%v", t.DataType, t.Dims)
	if t.DataType == onnx.String {
		return head + fmt.Sprintf("%q", t.Strings())
	}
	b, err := t.Bytes()
	if err != nil {
		return head + fmt.Sprintf("%p", t)
	}
	if len(b) <= sampledOver {
		return head + fmt.Sprintf("%x", sha256.Sum256(b))
	}
	h := sha256.New()
	for i := range samples {
		at := i * (len(b) - bytesOfSample) / (samples - 1)
		h.Write(b[at : at+bytesOfSample])
	}
	return head + fmt.Sprintf("%x", h.Sum(nil))
}
