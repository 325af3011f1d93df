package generate

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/prompts"
	"github.com/mojo-patch/mojo-patch/llm/generate"
)

// printer writes texts to stdout as they come: the first unfinished text at once, the others in turn after it.
type printer struct {
	a       *cli.App
	texts   *prompts.Texts
	run     *generate.Run
	now     int      // the prompt whose text is written
	waiting []string // text of the other prompts so far
	begun   []bool
	ended   []bool
	open    bool // a line was begun on stdout
}

// token prints a token, or keeps it until its text's turn.
func (p *printer) token(t generate.Token) error {
	if p.a.JSON {
		return nil
	}
	if p.waiting == nil {
		n := len(p.texts.IDs)
		p.waiting, p.begun, p.ended = make([]string, n), make([]bool, n), make([]bool, n)
	}
	text := t.Text
	if p.texts.Tokenizer == nil {
		if text = strconv.FormatInt(t.ID, 10); p.begun[t.Prompt] {
			text = " " + text
		}
	}
	p.begun[t.Prompt] = true
	p.waiting[t.Prompt] += text
	p.ended[t.Prompt] = t.Stop != ""
	return p.write()
}

func (p *printer) write() error {
	for p.now < len(p.waiting) {
		if p.waiting[p.now] != "" {
			p.open = true
			if _, err := io.WriteString(p.a.Out, p.waiting[p.now]); err != nil {
				return err
			}
			p.waiting[p.now] = ""
		}
		if !p.ended[p.now] {
			return nil
		}
		if _, err := io.WriteString(p.a.Out, "\n"); err != nil {
			return err
		}
		p.now, p.open = p.now+1, false
	}
	return nil
}

// end prints the remaining text of an interrupted generation.
func (p *printer) end() {
	for i := range p.ended {
		if !p.ended[i] && (p.waiting[i] != "" || i == p.now && p.open) {
			io.WriteString(p.a.Out, p.waiting[i]+"\n")
		}
	}
}

// interrupted marks a sequence that did not reach its end.
const interrupted = "interrupted"

type generated struct {
	Prompt    string    `json:"prompt,omitempty"`
	PromptIDs []int64   `json:"prompt_ids"`
	IDs       []int64   `json:"ids"`
	Text      *string   `json:"text,omitempty"`
	Stop      string    `json:"stop"`
	Margins   []float32 `json:"margins,omitempty"`
}

// report prints the results of a generation.
func (f *options) report(a *cli.App, g *opened, texts *prompts.Texts, run *generate.Run) error {
	var list []generated
	for i, s := range run.Sequences() {
		e := generated{PromptIDs: s.Prompt, IDs: s.IDs, Stop: string(s.Stop), Margins: s.Margins}
		if e.IDs == nil {
			e.IDs = []int64{}
		}
		if e.Stop == "" {
			e.Stop = interrupted
		}
		if texts.Prompts != nil {
			e.Prompt = texts.Prompts[i]
		}
		if texts.Tokenizer != nil {
			e.Text = &s.Text
		}
		list = append(list, e)
		name := ""
		if len(run.Sequences()) > 1 {
			name = fmt.Sprintf("prompt %d: ", i)
		}
		a.Say("%s%s in the prompt, %d generated, ended by: %s", name, cli.Counted(len(s.Prompt), "token"), len(s.IDs),
			e.Stop)
	}
	if groups := run.Groups(); len(groups) > 1 {
		list := strings.Trim(strings.ReplaceAll(fmt.Sprint(groups), "] [", ", then "), "[]")
		a.Say("the prompts ran in %d groups, one after another: %s", len(groups), list)
	}
	buffers := run.Buffers()
	if buffers.Count > 0 {
		rows := ""
		if buffers.Rows {
			rows = ", a number of them for each prompt"
		}
		what := fmt.Sprintf("%s of %d tokens%s", cli.Counted(buffers.Count, "buffer"), buffers.Slots, rows)
		if buffers.Block > 0 {
			what = fmt.Sprintf("%s of %s of %d tokens", cli.Counted(buffers.Count, "pool"),
				cli.Counted(buffers.Slots/buffers.Block, "block"), buffers.Block)
		}
		a.Say("keys and values in %s, written in place: %.1f MB, grown %s", what, float64(buffers.Bytes)/1e6,
			cli.Counted(buffers.Grown, "time"))
	}
	t := run.Times()
	a.Say("prefill %s", pace(t.PromptTokens, t.Prefill))
	a.Say("decode %s", pace(t.DecodedTokens, t.Decode))
	tried := run.Speculation()
	if tried.Steps > 0 && f.advance > 0 {
		a.Say("%.2f tokens per step: %d of %s in advance accepted", float64(t.DecodedTokens)/float64(tried.Steps),
			tried.Accepted, cli.Counted(tried.Proposed, "token"))
	}
	if graph := g.session.RecordsGraphs() && buffers.Steps > 0; graph && buffers.Fed {
		a.Say("a decode step is a CUDA graph, and the device chooses the token")
	} else if graph {
		a.Say("a decode step is a CUDA graph")
	}
	times := generateTimes{
		Open: inMilliseconds(g.took), PromptTokens: t.PromptTokens, Prefill: inMilliseconds(t.Prefill),
		PrefillRate: rate(t.PromptTokens, t.Prefill), GeneratedTokens: t.GeneratedTokens,
		DecodedTokens: t.DecodedTokens, Decode: inMilliseconds(t.Decode),
		DecodeRate: rate(t.DecodedTokens, t.Decode),
	}
	result := Result{cli.JSONSchema, g.path, g.what, list, run.Groups(), times, nil, nil}
	if f.advance > 0 {
		result.Speculation = &tried
	}
	if buffers.Count > 0 {
		result.Buffers = &buffers
	}
	return a.Result(result)
}

func inMilliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1e3 }

// rate returns tokens per second, or 0 if there are none.
func rate(tokens int, d time.Duration) float64 {
	if tokens == 0 || d <= 0 {
		return 0
	}
	return float64(tokens) / d.Seconds()
}

func pace(tokens int, d time.Duration) string {
	if tokens == 0 {
		return "none"
	}
	return fmt.Sprintf("%s in %.1f ms, %.1f tokens/s", cli.Counted(tokens, "token"), inMilliseconds(d), rate(tokens, d))
}

// fits warns if the tokenizer seems to belong to another model.
func warnOther(t *prompts.Texts, a *cli.App, g *opened) {
	size, vocabulary := int64(0), g.Vocabulary()
	if t.Tokenizer != nil {
		size = int64(t.Tokenizer.Size())
	}
	// Models pad their vocabulary to round numbers.
	if size > 0 && vocabulary > 0 && (size > vocabulary+vocabulary/100 || size < vocabulary*9/10) {
		a.Say("%s has %d tokens, but %s has %d: it seems to be the tokenizer of another model", t.Path, size, g.path,
			vocabulary)
	}
}

// Result is the result of generate.
type Result struct {
	Schema    int         `json:"schema"`
	Model     string      `json:"model"`
	Backend   string      `json:"backend"`
	Sequences []generated `json:"sequences"`
	// Groups are the prompts that were computed together, by index.
	Groups  [][]int           `json:"groups"`
	Times   generateTimes     `json:"times"`
	Buffers *generate.Buffers `json:"buffers,omitempty"` // absent if the model has none
	// absent without --speculate and --draft
	Speculation *generate.Speculation `json:"speculation,omitempty"`
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
