package target

import (
	"errors"
	"fmt"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// ortPagedAttention writes com.microsoft's PagedAttention. It takes 16-bit types, and onnxruntime has kernels for them
// only on CUDA, so the model then runs only there.
func ortPagedAttention(c *Call) error {
	a := fused.Read[fused.PagedAttention](c.Site.Attributes)
	t := c.Type(fused.PagedAttentionQ)
	q, pool, values := c.Dims(fused.PagedAttentionQ), c.Dims(fused.PagedAttentionKeyCache),
		c.Dims(fused.PagedAttentionValueCache)
	switch {
	case t != onnx.Float16 && t != onnx.BFloat16:
		return fmt.Errorf("PagedAttention takes float16 and bfloat16, not %s", t)
	case c.Input(fused.PagedAttentionSink) != nil:
		return fmt.Errorf("PagedAttention takes sinks in %s, and they are float32", t)
	case !a.Causal:
		return errors.New("PagedAttention is written only for attention to earlier keys")
	case a.HeadOrder == "cyclic":
		return errors.New("PagedAttention needs adjacent heads to share keys")
	case a.Scale == 0:
		return errors.New("PagedAttention reads a scale of 0 as its default")
	case len(q) != 3 || len(pool) != 4 || len(values) != 4 || q[1] < 1 || q[2] < 1 || pool[2] < 1:
		return errors.New("PagedAttention: the number or the width of the heads is unknown")
	case q[2]%8 != 0:
		return fmt.Errorf("PagedAttention takes heads whose width is a multiple of 8, not %d", q[2])
	case values[3] != q[2]:
		return fmt.Errorf("PagedAttention takes keys and values of one width, not %d and %d", q[2], values[3])
	case pool[1] < 16 || pool[1]&(pool[1]-1) != 0:
		return fmt.Errorf("PagedAttention takes blocks of 16, 32, 64, … tokens, not %d (--cache paged=N)", pool[1])
	}
	rows := func(v *onnx.Value, width ...int64) *onnx.Value {
		return c.Op1("Reshape", []*onnx.Value{v, c.Integers(append([]int64{0}, width...)...)})
	}
	inputs := []*onnx.Value{rows(c.Input(fused.PagedAttentionQ), q[1]*q[2]),
		rows(c.Input(fused.PagedAttentionK), pool[2]*q[2]), rows(c.Input(fused.PagedAttentionV), pool[2]*q[2])}
	for i := fused.PagedAttentionKeyCache; i <= fused.PagedAttentionBlockTable; i++ {
		inputs = append(inputs, c.Input(i))
	}
	if slots := c.Input(fused.PagedAttentionSlotMapping); slots != nil {
		inputs = append(inputs, nil, nil, slots) // after the tables of a rotation
	}
	attrs := []*onnx.Attribute{onnx.IntAttr("num_heads", q[1]), onnx.IntAttr("kv_num_heads", pool[2]),
		onnx.FloatAttr("scale", a.Scale)}
	if a.Window > 0 {
		attrs = append(attrs, onnx.IntAttr("local_window_size", a.Window))
	}
	if a.Softcap > 0 {
		attrs = append(attrs, onnx.FloatAttr("softcap", a.Softcap))
	}
	out := c.Add(onnx.Microsoft, "PagedAttention", 3, inputs, attrs...)
	c.Output(0, rows(out[0], q[1], q[2]))
	c.Output(1, out[1])
	c.Output(2, out[2])
	return nil
}
