package op

// A Role is the meaning of an input in an op that chooses experts, computes experts, or attends. Checks of sites choose
// test values by role.
type Role int

// The roles. NoRole is for inputs of other ops, and for numbers that become shapes. Some roles occur only in sites.
const (
	NoRole         Role = iota
	RoleTokens          // a row for each token
	RoleWeights         // of a token's experts
	RoleIDs             // the numbers of a token's experts
	RoleGates           // the weights of all experts, zero for those that a token does not go to
	RoleMatrix          // of an expert, or of all
	RoleBias            // of an expert, or of all
	RoleLogits          // of a router, one for each expert
	RoleCorrection      // a bias that only affects the choice
	RoleBase            // rows that the experts' results are added to
	RoleQueries         // of attention
	RoleKeys            // of attention, new or old
	RoleValues          // of attention, new or old
	RoleKeyExists       // 0 for keys of padding
	RoleKeyHidden       // not 0 for keys of padding
	RoleKeyLengths      // 0 for keys of padding, which only follows prompts
	RoleScoreBias       // added to the scores of attention
	RoleLinearKeys      // of linear attention
	RoleDecay           // the factors of a state
	RoleDecayLog        // the logarithms of the factors of a state
	RoleShare           // the shares of a state's values that new ones replace
	RoleShapeAlone      // an input of the model with a dimension of the match: only its shape is read
)
