package fused_test

import (
	"fmt"
	"log"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// An op declares its inputs, outputs and attributes.
func ExampleLookup() {
	op := fused.Lookup("GLU")
	for _, line := range op.Formula {
		fmt.Println(line)
	}
	for _, a := range op.Attributes {
		fmt.Println(a.Name, a.Values)
	}
	// Output:
	// g = limit > 0 ? min(gate, limit) : gate;  u = limit > 0 ? clamp(up, -limit, limit) : up
	// activation=silu:      a = g * sigmoid(alpha * g)
	// activation=gelu:      a = 0.5 * g * (1 + erf(g / sqrt(2)))
	// activation=gelu_tanh: a = 0.5 * g * (1 + tanh(sqrt(2/pi) * (g + 0.044715 * g^3)))
	// Y = round_T(round_T(a) * round_T(u + up_offset))
	// activation [silu gelu gelu_tanh]
	// alpha []
	// limit []
	// up_offset []
}

// The definition of an op is a function of standard ops, built for one place of use.
func ExampleOp_Function() {
	f, err := fused.Lookup("GLU").Function(fused.Site{
		Attributes: []*onnx.Attribute{onnx.StringAttr("activation", "silu"), onnx.FloatAttr("alpha", 1),
			onnx.FloatAttr("limit", 0), onnx.FloatAttr("up_offset", 0)},
		Types: []onnx.DataType{onnx.Float, onnx.Float},
		Dims:  [][]int64{{-1, 64}, {-1, 64}},
		Opset: 20,
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(f.Text())
	// Output:
	// <domain: "mojo", overload: "silu", opset_import: ["": 20]>
	// GLU<activation, alpha, limit, up_offset>(gate, up) => (Y) {
	//   gate_32 = Cast<to=1>(gate)
	//   up_32 = Cast<to=1>(up)
	//   alpha = Constant<value_float=@alpha>()
	//   scaled = Mul(gate_32, alpha)
	//   sigmoid = Sigmoid(scaled)
	//   activated = Mul(gate_32, sigmoid)
	//   activated_rounded = CastLike(activated, gate)
	//   activated_rounded_32 = Cast<to=1>(activated_rounded)
	//   product = Mul(activated_rounded_32, up_32)
	//   Y = CastLike(product, gate)
	// }
}
