package linear

// SpanLimits are the limits of the search for many tokens.
var SpanLimits = &spanLimits
