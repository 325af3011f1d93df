// Package tokenize is the command tokenize.
package tokenize

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/llm/tokenizer"
	"github.com/spf13/cobra"
)

type tokenizeFlags struct {
	tokenizer              string
	decode                 bool
	noSpecial, skipSpecial bool
}

// tokenRow is one token of a text, as in the tokenizer's file, and its JSON form.
type tokenRow struct {
	ID    int64  `json:"id"`
	Token string `json:"token"`
}

// New returns the command tokenize.
func New(a *cli.App) *cobra.Command {
	f := &tokenizeFlags{}
	c := &cobra.Command{
		Use:   "tokenize --tokenizer tokenizer.json [TEXT]",
		Short: "Turn text into token ids, or ids into text",
		Long: `tokenize prints the ids of a text and their tokens, one per line, as a tokenizer.json of Hugging
Face's tokenizers library defines them. With --decode it reads ids, separated by spaces or commas,
and prints their text. Without an argument it reads all of stdin, without change.

It supports byte-level BPE and BPE with byte fallback, and rejects any other kind by name.`,
		Example: `  mojo-patch tokenize --tokenizer models/smollm2 "Hello world"
  mojo-patch tokenize --tokenizer models/smollm2 --decode 19556,905
  mojo-patch tokenize --tokenizer tokenizer.json --json < prompt.txt`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, args []string) error {
			if f.tokenizer == "" {
				return errors.New("--tokenizer is missing: name a tokenizer.json or its folder")
			}
			t, err := tokenizer.Read(f.tokenizer)
			if err != nil {
				return err
			}
			text, err := argumentOrInput(c.InOrStdin(), args)
			if err != nil {
				return err
			}
			if f.decode {
				return writeText(a, t, text, f.skipSpecial)
			}
			return writeTokens(a, t, text, !f.noSpecial)
		},
	}
	c.Flags().StringVar(&f.tokenizer, "tokenizer", "", "the tokenizer.json `FILE`, or the folder with it")
	c.Flags().BoolVar(&f.decode, "decode", false, "read ids and print their text")
	c.Flags().BoolVar(&f.noSpecial, "no-special", false, "do not add the tokens for the beginning and end of a "+
		"sequence")
	c.Flags().BoolVar(&f.skipSpecial, "skip-special", false, "leave special tokens out of the text")
	cli.Rules(c, "skip-special requires decode", "decode excludes no-special")
	a.JSONFlag(c, "tokenize", "detokenize")
	return c
}

// argumentOrInput returns the only argument, or else all of in.
func argumentOrInput(in io.Reader, args []string) (string, error) {
	if len(args) > 0 {
		return args[0], nil
	}
	data, err := io.ReadAll(in)
	if err != nil {
		return "", fmt.Errorf("stdin: %w", err)
	}
	return string(data), nil
}

func writeTokens(a *cli.App, t *tokenizer.Tokenizer, text string, addSpecial bool) error {
	rows := []tokenRow{}
	for _, id := range t.Encode(text, addSpecial) {
		token, _ := t.Token(id)
		rows = append(rows, tokenRow{id, token})
	}
	if a.JSON {
		return a.PrintJSON(Result{cli.JSONSchema, rows})
	}
	for _, r := range rows {
		if _, err := fmt.Fprintf(a.Out, "%7d  %s\n", r.ID, r.Token); err != nil {
			return err
		}
	}
	return nil
}

func writeText(a *cli.App, t *tokenizer.Tokenizer, text string, skipSpecial bool) error {
	var ids []int64
	for _, field := range strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(", \t\r\n[]", r) }) {
		id, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return fmt.Errorf("%q is not a token id", field)
		}
		if _, ok := t.Token(id); !ok {
			return fmt.Errorf("the tokenizer has no id %d", id)
		}
		ids = append(ids, id)
	}
	decoded := t.Decode(ids, skipSpecial)
	if a.JSON {
		return a.PrintJSON(DecodedResult{cli.JSONSchema, decoded})
	}
	_, err := fmt.Fprintln(a.Out, decoded)
	return err
}

// Result is the result of tokenize.
type Result struct {
	Schema int        `json:"schema"`
	Tokens []tokenRow `json:"tokens"`
}

// DecodedResult is the result of tokenize --decode.
type DecodedResult struct {
	Schema int    `json:"schema"`
	Text   string `json:"text"`
}
