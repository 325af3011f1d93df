package fused

import (
	"fmt"
	"testing"
)

// TestValuesAreDeclared makes attributes of values, and refuses those that the op does not declare so.
func TestValuesAreDeclared(t *testing.T) {
	of := func(op string, v Values) (got string) {
		defer func() {
			if recover() != nil {
				got = "refused"
			}
		}()
		for _, a := range v.Of(op) {
			got += fmt.Sprint(a.Name, "=", a.Int, "|", a.Float, "|", a.String, " ")
		}
		return got
	}
	for _, tt := range []struct {
		op   string
		v    Values
		want string
	}{
		{"RMSNorm", Values{"scale_after_cast": true, "axis": -1, "epsilon": 0.5},
			"axis=-1|0| epsilon=0|0.5| scale_after_cast=1|0| "},
		{"LayerNormalization", Values{"stash_type": int64(1), "axis": -1}, "axis=-1|0| stash_type=1|0| "},
		{"RMSNorm", Values{"axis": -1, "epsilon": 0.5}, "refused"},
		{"RMSNorm", Values{"axis": -1, "epsilon": 1, "scale_after_cast": true}, "refused"},
		{"RMSNorm", Values{"axis": -1, "epsilon": 0.5, "scale_after_cast": true, "eps": 1.0}, "refused"},
		{"RMSNorm", Values{"axis": -1, "epsilon": float32(1), "scale_after_cast": true}, "refused"},
		{"GLU", Values{"activation": "silu", "alpha": 1.0, "limit": -1.0, "up_offset": 0.0}, // a model's number
			"activation=0|0|silu alpha=0|1| limit=0|-1| up_offset=0|0| "},
		{"GLU", Values{"activation": "relu", "alpha": 1.0, "limit": 0.0, "up_offset": 0.0}, "refused"},
	} {
		if got := of(tt.op, tt.v); got != tt.want {
			t.Errorf("%s %v: %s, want %s", tt.op, tt.v, got, tt.want)
		}
	}
}
