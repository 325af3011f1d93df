package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/mojo-patch/mojo-patch/llm/generate"
)

// printer writes texts to stdout as they come: the first unfinished text at once, the others in turn after it.
type printer struct {
	a       *app
	texts   *texts
	run     *generate.Run
	now     int      // the prompt whose text is written
	waiting []string // text of the other prompts so far
	begun   []bool
	ended   []bool
	open    bool // a line was begun on stdout
}

// token prints a token, or keeps it until its text's turn.
func (p *printer) token(t generate.Token) error {
	if p.a.json {
		return nil
	}
	if p.waiting == nil {
		n := len(p.texts.ids)
		p.waiting, p.begun, p.ended = make([]string, n), make([]bool, n), make([]bool, n)
	}
	text := t.Text
	if p.texts.tokenizer == nil {
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
			if _, err := io.WriteString(p.a.out, p.waiting[p.now]); err != nil {
				return err
			}
			p.waiting[p.now] = ""
		}
		if !p.ended[p.now] {
			return nil
		}
		if _, err := io.WriteString(p.a.out, "\n"); err != nil {
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
			io.WriteString(p.a.out, p.waiting[i]+"\n")
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
func (f *generateFlags) report(a *app, g *opened, texts *texts, run *generate.Run) error {
	var list []generated
	for i, s := range run.Sequences() {
		e := generated{PromptIDs: s.Prompt, IDs: s.IDs, Stop: string(s.Stop), Margins: s.Margins}
		if e.IDs == nil {
			e.IDs = []int64{}
		}
		if e.Stop == "" {
			e.Stop = interrupted
		}
		if texts.prompts != nil {
			e.Prompt = texts.prompts[i]
		}
		if texts.tokenizer != nil {
			e.Text = &s.Text
		}
		list = append(list, e)
		name := ""
		if len(run.Sequences()) > 1 {
			name = fmt.Sprintf("prompt %d: ", i)
		}
		a.say("%s%s in the prompt, %d generated, ended by: %s", name, counted(len(s.Prompt), "token"), len(s.IDs),
			e.Stop)
	}
	if groups := run.Groups(); len(groups) > 1 {
		list := strings.Trim(strings.ReplaceAll(fmt.Sprint(groups), "] [", ", then "), "[]")
		a.say("the prompts ran in %d groups, one after another: %s", len(groups), list)
	}
	buffers := run.Buffers()
	if buffers.Count > 0 {
		rows := ""
		if buffers.Rows {
			rows = ", a number of them for each prompt"
		}
		a.say("keys and values in %s of %d tokens%s, written in place: %.1f MB, grown %s",
			counted(buffers.Count, "buffer"), buffers.Slots, rows, float64(buffers.Bytes)/1e6,
			counted(buffers.Grown, "time"))
	}
	t := run.Times()
	a.say("prefill %s", pace(t.PromptTokens, t.Prefill))
	a.say("decode %s", pace(t.DecodedTokens, t.Decode))
	if graph := g.session.RecordsGraphs() && buffers.Steps > 0; graph && buffers.Fed {
		a.say("a decode step is a CUDA graph, and the device chooses the token")
	} else if graph {
		a.say("a decode step is a CUDA graph")
	}
	times := generateTimes{
		Open: inMilliseconds(g.took), PromptTokens: t.PromptTokens, Prefill: inMilliseconds(t.Prefill),
		PrefillRate: rate(t.PromptTokens, t.Prefill), GeneratedTokens: t.GeneratedTokens,
		DecodedTokens: t.DecodedTokens, Decode: inMilliseconds(t.Decode),
		DecodeRate: rate(t.DecodedTokens, t.Decode),
	}
	result := generateResult{jsonSchema, g.path, g.what, list, run.Groups(), times, nil}
	if buffers.Count > 0 {
		result.Buffers = &buffers
	}
	return a.result(result)
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
	return fmt.Sprintf("%s in %.1f ms, %.1f tokens/s", counted(tokens, "token"), inMilliseconds(d), rate(tokens, d))
}
