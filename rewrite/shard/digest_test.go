package shard

import (
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// TestDigest: the ranks of models that differ only in a weight have different digests, so their kernels refuse each
// other.
func TestDigest(t *testing.T) {
	digest := func(change bool) string {
		m := built(t)["experts with biases"] // of 8 KB
		if change {
			for _, v := range m.Graph.Initializers() {
				if len(v.Const.Dims) == 3 {
					zeros := make([]byte, v.Const.Size())
					v.Const, _ = onnx.NewTensor(v.Const.Name, v.Const.DataType, v.Const.Dims, zeros)
					break
				}
			}
		}
		p, err := New(m, Options{Ranks: 2, Experts: Split})
		if err != nil {
			t.Fatal(err)
		}
		return p.Digest
	}
	if a, b := digest(false), digest(false); a != b {
		t.Errorf("the digests %s and %s of one model differ", a, b)
	}
	if a, b := digest(false), digest(true); a == b {
		t.Errorf("models with other weights have the digest %s", a)
	}
}
