package infer

// scatterRules: ops that write into a copy of their first input.
var scatterRules = each(unary, "Scatter", "ScatterElements", "ScatterND", "TensorScatter")
