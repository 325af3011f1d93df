package convert

// For the tests of package convert_test, which use packages that may come to use this one.
var (
	Read         = read
	Evaluated    = evaluated
	Equal        = equal
	Rewritten    = rewritten
	Narrowed     = narrowed
	Near         = near
	LastPosition = lastPosition
)
