package notation

import "github.com/mojo-patch/mojo-patch/onnx"

// Commutative lists the standard ops whose two inputs may be exchanged.
var Commutative = onnx.Words("Add Mul And Or Xor Equal Max Min Sum Mean BitwiseAnd BitwiseOr BitwiseXor")

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
var floatAttributes = onnx.Words(`
	alpha beta epsilon bias lambd gamma momentum clip low high mean scale softcap cubic_coeff_a extrapolation_value
	spatial_scale value_float ratio max min mask_filter_value swiglu_limit activation_alpha activation_beta
`)

// AttributeType returns the type of an attribute that is given as a number, by its name.
func AttributeType(name string) onnx.AttributeType {
	if floatAttributes[name] {
		return onnx.AttrFloat
	}
	return onnx.AttrInt
}
