package main

import (
	"github.com/mojo-patch/mojo-patch/llm/generate"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/mojo-patch/mojo-patch/tune"
)

// Results that commands print under --json, except for reports of packages.

// reportResult is the result of apply and match.
type reportResult struct {
	*rewrite.Report
	// sites that became one op, or would; a moved transposition (KeyTranspose) does not count
	Fused   int `json:"fused"`
	Refused int `json:"refused"` // sites that failed a check and stay as they are
}

func reported(r *rewrite.Report) reportResult { return reportResult{r, r.Blocks(), r.Refused()} }

// comparisons is the result of diff and golden compare.
type comparisons struct {
	Schema      int          `json:"schema"`
	Passed      bool         `json:"passed"`
	Comparisons []comparison `json:"comparisons"`
}

// runResult is the result of run and golden record.
type runResult struct {
	Schema  int       `json:"schema"`
	Model   string    `json:"model"`
	Backend string    `json:"backend"`
	Cases   []runCase `json:"cases"`
}

// runModeResult is the result of run --mode.
type runModeResult struct {
	Schema  int        `json:"schema"`
	Model   string     `json:"model"`
	Backend string     `json:"backend"`
	Mode    string     `json:"mode"`
	Passed  bool       `json:"passed"`
	Ops     []opResult `json:"ops"`
}

// runCase is one run.
type runCase struct {
	Case    int             `json:"case"`
	TimeMS  float64         `json:"time_ms"`
	Outputs []outputSummary `json:"outputs"`
}

// benchResult is the result of bench.
type benchResult struct {
	Schema int  `json:"schema"`
	Bound  bool `json:"bound"`      // inputs and outputs stayed on the device
	Fixed  bool `json:"fixed"`      // outputs had known sizes
	Graph  bool `json:"cuda_graph"` // runs were replayed as a CUDA graph
	// Inputs are the shapes of the inputs, by name.
	Inputs map[string][]int64 `json:"inputs"`
	Models []*timedModel      `json:"models"`
}

// tuneResult is the result of tune.
type tuneResult struct {
	Schema   int             `json:"schema"`
	Shape    tune.Shape      `json:"shape"`
	Output   string          `json:"output"`
	Measured []tune.Measured `json:"measured"`
}

// kernelsResult is the result of kernels.
type kernelsResult struct {
	Schema  int         `json:"schema"`
	Kernels []kernelRow `json:"kernels"`
}

// doctorResult is the result of doctor.
type doctorResult struct {
	Schema    int              `json:"schema"`
	Version   string           `json:"version"` // of the tool
	Findings  []finding        `json:"findings"`
	Providers []providerReport `json:"providers"`
}

// versionResult is the result of version.
type versionResult struct {
	Schema  int    `json:"schema"`
	Version string `json:"version"` // of the tool
	Go      string `json:"go"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
}

// tokenizeResult is the result of tokenize.
type tokenizeResult struct {
	Schema int        `json:"schema"`
	Tokens []tokenRow `json:"tokens"`
}

// detokenizeResult is the result of tokenize --decode.
type detokenizeResult struct {
	Schema int    `json:"schema"`
	Text   string `json:"text"`
}

// shownWeights is the result of weights show.
type shownWeights struct {
	Schema  int            `json:"schema"`
	Files   []string       `json:"files"`
	Tensors []*shownTensor `json:"tensors"`
	Total   shownTotal     `json:"total"`
	Types   []*shownTotal  `json:"types"`
}

// generateResult is the result of generate.
type generateResult struct {
	Schema    int         `json:"schema"`
	Model     string      `json:"model"`
	Backend   string      `json:"backend"`
	Sequences []generated `json:"sequences"`
	// Groups are the prompts that were computed together, by index.
	Groups  [][]int           `json:"groups"`
	Times   generateTimes     `json:"times"`
	Buffers *generate.Buffers `json:"buffers,omitempty"` // absent if the model has none
}

// generateTimes are the times of a generation.
type generateTimes struct {
	Open            float64 `json:"open_ms"`
	PromptTokens    int     `json:"prompt_tokens"`
	Prefill         float64 `json:"prefill_ms"`
	PrefillRate     float64 `json:"prefill_tokens_per_second"`
	GeneratedTokens int     `json:"generated_tokens"`
	DecodedTokens   int     `json:"decoded_tokens"` // by decode steps
	Decode          float64 `json:"decode_ms"`
	DecodeRate      float64 `json:"decode_tokens_per_second"`
}

// generateComparison is the result of generate with --compare or --golden.
type generateComparison struct {
	Schema   int                    `json:"schema"`
	Model    string                 `json:"model"`
	Compared string                 `json:"compared,omitempty"` // the model that it is compared with
	Golden   string                 `json:"golden,omitempty"`   // or the recording
	Backend  string                 `json:"backend"`
	Passed   bool                   `json:"passed"`
	Prompts  []*generate.Comparison `json:"prompts"`
}
