package notation

import "github.com/mojo-patch/mojo-patch/onnx"

// Commutative lists the standard ops whose two inputs may be exchanged.
var Commutative = map[string]bool{
	"Add": true, "Mul": true, "And": true, "Or": true, "Xor": true, "Equal": true, "Max": true, "Min": true,
	"Sum": true, "Mean": true, "BitwiseAnd": true, "BitwiseOr": true, "BitwiseXor": true,
}

// Associative lists the ops that a pattern may write with more than two arguments.
var Associative = map[string]bool{"Add": true, "Mul": true}

// Neutral returns the number that an optional Mul or Add captures if the node is missing: x is x * 1 and x + 0.
func (e *Call) Neutral() (x float64, ok bool) {
	if len(e.Args) != 2 || !Associative[e.Op] {
		return 0, false
	}
	if _, ok := e.Args[1].(*Capture); !ok {
		return 0, false
	}
	if e.Op == "Mul" {
		x = 1
	}
	return x, true
}

// floatAttributes are the names of FLOAT attributes, in the standard and in onnxruntime's domain; numbers for other
// attributes are integers.
var floatAttributes = map[string]bool{
	"alpha": true, "beta": true, "epsilon": true, "bias": true, "lambd": true, "gamma": true, "momentum": true,
	"clip": true, "low": true, "high": true, "mean": true, "scale": true, "softcap": true, "cubic_coeff_a": true,
	"extrapolation_value": true, "spatial_scale": true, "value_float": true, "ratio": true, "max": true, "min": true,
	"mask_filter_value": true, "swiglu_limit": true, "activation_alpha": true, "activation_beta": true,
}

// AttributeType returns the type of an attribute that is given as a number, by its name.
func AttributeType(name string) onnx.AttributeType {
	if floatAttributes[name] {
		return onnx.AttrFloat
	}
	return onnx.AttrInt
}
