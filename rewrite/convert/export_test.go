package convert

// These serve the tests of package convert_test, which import packages that may come to import this one.
var (
	Read         = read
	Evaluated    = evaluated
	Equal        = equal
	Rewritten    = rewritten
	Narrowed     = narrowed
	Near         = near
	LastPosition = lastPosition
)
