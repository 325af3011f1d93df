package export

import (
	"errors"
	"fmt"
	"strings"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/session"
	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/internal/atomicfile"
	"github.com/mojo-patch/mojo-patch/llm/serving"
	"github.com/spf13/cobra"
)

type exportGenAIFlags struct {
	out        string
	kernelsLib string
	isEngine   bool
	engine     serving.EngineOptions
	options    serving.GenAIOptions
}

// GenAI describes a folder for onnxruntime-genai.
type GenAI struct {
	Schema int    `json:"schema"`
	Folder string `json:"folder"`
	*serving.GenAIFolder
}

func newExportGenAI(a *cli.App) *cobra.Command {
	f := &exportGenAIFlags{}
	c := &cobra.Command{
		Use:   "genai MODEL --tokenizer DIR -o FOLDER",
		Short: "Write a decoder as a folder for onnxruntime-genai",
		Long: `genai writes a decoder for onnxruntime-genai (0.18): model.onnx and its weights, the library of the
kernels, genai_config.json, and the tokenizer's files. og.Model(FOLDER) needs nothing else, and the
folder can be moved.

Inputs and outputs get genai's names. In a model with --cache static, past and present are one buffer
(past_present_share_buffer); genai appends to other caches. The graph computes past_length, which genai
does not provide, from the mask.

A batch may have prompts of any lengths if the model was patched with --cache static
--past-length=rows: genai puts padding after them. Any other model would count the padding as tokens;
it is declared for one sequence, and onnxruntime rejects more. With --last-logits too, the logits are
the logits of each prompt's last token.

With --engine the folder is for og.Engine, which runs many sequences in one step: they join and leave
between steps, and prompts are computed in chunks beside them. The model is one of apply --cache paged,
with --target ort too for onnxruntime's PagedAttention, which only CUDA has. Layers with a window keep a
ring of blocks of each sequence, unless all layers have one.

DIR is a Hugging Face checkpoint or a part of one: tokenizer.json (or .gz), tokenizer_config.json, and
config.json and generation_config.json for end tokens, context and sampling.`,
		Example: `  mojo-patch apply model.onnx -o patched.onnx --for genai
  mojo-patch export genai patched.onnx --tokenizer checkpoint -o folder
  mojo-patch export genai patched.onnx --tokenizer checkpoint -o folder --provider cuda --context-length 4096
  mojo-patch apply model.onnx -o paged.onnx --cache paged --last-logits
  mojo-patch export genai paged.onnx --engine --tokenizer checkpoint -o folder --blocks 512`,
		Args:              cli.ModelArgs(1, 1),
		ValidArgsFunction: cli.CompleteModels(1),
		RunE:              func(_ *cobra.Command, args []string) error { return f.export(a, args[0]) },
	}
	fl := c.Flags()
	fl.StringVarP(&f.out, "output", "o", "", "new folder to write")
	fl.StringVar(&f.options.Tokenizer, "tokenizer", "", "folder with tokenizer.json and config.json")
	fl.StringVar(&f.options.Provider, "provider", "cpu", "provider that genai runs the model on: cpu or cuda")
	fl.BoolVar(&f.options.CUDAGraph, "cuda-graph", false,
		"with --provider cuda: record a decode step as a CUDA graph")
	fl.Int64Var(&f.options.ContextLength, "context-length", 0,
		"most tokens of a sequence (default: from config.json or the buffers)")
	fl.BoolVar(&f.isEngine, "engine", false, "write a model with a paged cache for og.Engine")
	fl.Int64Var(&f.engine.MaxBatch, "max-batch-size", 32, "most sequences that run together")
	fl.Int64Var(&f.engine.Blocks, "blocks", 0,
		"blocks of each pool (default on CUDA: as many as 60% of the free memory holds)")
	fl.StringVar(&f.kernelsLib, "kernels-lib", "",
		"the kernel library or its folder (default: $MOJO_OPS_LIBRARY, beside the program, or where pip installed it)")
	cli.CompleteFile(c, "kernels-lib", session.LibraryExtensions...)
	cli.CompleteValues(c, "provider", exportProviders, false)
	cli.Rules(c, "max-batch-size blocks requires engine")
	a.JSONFlag(c, "export-genai")
	return c
}

func (f *exportGenAIFlags) export(a *cli.App, path string) error {
	device, err := exportDevice(f.options.Provider)
	switch {
	case err != nil:
		return err
	case f.out == "":
		return errors.New("-o FOLDER is missing")
	case f.options.Tokenizer == "":
		return errors.New("--tokenizer DIR is missing: name the folder with tokenizer.json and config.json")
	case f.options.CUDAGraph && device != fused.CUDA:
		return errors.New("--cuda-graph requires --provider cuda")
	case f.options.ContextLength < 0:
		return fmt.Errorf("--context-length %d: must be 1 or more", f.options.ContextLength)
	case f.engine.MaxBatch < 1 || f.engine.Blocks < 0:
		return errors.New("--max-batch-size must be 1 or more, and --blocks 0 or more")
	case f.isEngine && f.engine.Blocks == 0 && device != fused.CUDA:
		return errors.New("--engine without --provider cuda requires --blocks N, the number of blocks of each pool")
	}
	if f.isEngine {
		f.options.Engine = &f.engine
	}
	if err := cli.NewFolder(f.out); err != nil {
		return err
	}
	m, err := a.Read(path)
	if err != nil {
		return err
	}
	defer m.Close()
	if f.options.Library, err = libraryFor(m, device, f.kernelsLib); err != nil {
		return err
	}
	var made *serving.GenAIFolder
	err = atomicfile.WriteFolder(f.out, func(folder string) error {
		var err error
		made, err = serving.WriteGenAI(folder, m, f.options)
		return err
	})
	if err != nil {
		return err
	}
	if made.FusedOps == 0 && !f.isEngine {
		a.Say("no fused ops: %s is exported without change; to patch it first, use mojo-patch apply", path)
	}
	batch := "batches of prompts of any lengths"
	switch {
	case f.isEngine:
		batch = fmt.Sprintf("up to %s, which join and leave between steps", cli.Counted(int(f.engine.MaxBatch),
			"sequence"))
	case made.OneBecause != "":
		batch = "one sequence: " + made.OneBecause
	}
	a.Say("cache     %s, %s of up to %d tokens", made.Cache, cli.Counted(made.Layers, "layer"), made.ContextLength)
	a.Say("batch     %s", batch)
	if len(made.Computed) > 0 {
		a.Say("computed  %s", strings.Join(made.Computed, ", "))
	}
	a.Say("wrote %s: %s, %s", f.out, cli.Counted(made.FusedOps, "fused op"), strings.Join(made.Files, ", "))
	return a.Result(&GenAI{Schema: cli.JSONSchema, Folder: f.out, GenAIFolder: made})
}
