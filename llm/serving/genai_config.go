package serving

import (
	"path/filepath"
	"slices"
)

// genAIConfig is genai_config.json as onnxruntime-genai 0.18 reads it and its model builder writes it.
type genAIConfig struct {
	Model  genAIModel   `json:"model"`
	Search genAISearch  `json:"search"`
	Engine *genAIEngine `json:"engine,omitempty"`
}

type genAIModel struct {
	Type          string       `json:"type"` // "decoder": any decoder architecture
	BOS           int64        `json:"bos_token_id"`
	EOS           []int64      `json:"eos_token_id"`
	Pad           int64        `json:"pad_token_id"`
	ContextLength int64        `json:"context_length"`
	VocabSize     int64        `json:"vocab_size"`
	Decoder       genAIDecoder `json:"decoder"`
}

type genAIDecoder struct {
	Filename       string            `json:"filename"`
	SessionOptions genAISession      `json:"session_options"`
	HeadSize       int64             `json:"head_size"`
	HiddenSize     int64             `json:"hidden_size"`
	AttentionHeads int64             `json:"num_attention_heads"`
	HiddenLayers   int               `json:"num_hidden_layers"`
	KeyValueHeads  int64             `json:"num_key_value_heads"`
	Inputs         map[string]string `json:"inputs"`
	Outputs        map[string]string `json:"outputs"`
	StateGroups    []genAIStates     `json:"state_groups,omitempty"`
	Window         *genAIWindow      `json:"sliding_window,omitempty"`
}

type genAISession struct {
	LogID            string                         `json:"log_id"`
	CustomOpsLibrary string                         `json:"custom_ops_library,omitempty"` // within the folder
	ProviderOptions  []map[string]map[string]string `json:"provider_options"`
}

// genAISearch holds the defaults that a program may change.
type genAISearch struct {
	DoSample               bool    `json:"do_sample"`
	MaxLength              int64   `json:"max_length"`
	NumBeams               int     `json:"num_beams"`
	PastPresentShareBuffer bool    `json:"past_present_share_buffer"`
	ChunkSize              int64   `json:"chunk_size,omitempty"` // the tokens of a prompt per run; 0: all
	RepetitionPenalty      float64 `json:"repetition_penalty"`
	Temperature            float64 `json:"temperature"`
	TopK                   int64   `json:"top_k"`
	TopP                   float64 `json:"top_p"`
}

func (d *decoder) genAIConfig(h *hub, f *GenAIFolder, o GenAIOptions) genAIConfig {
	heads, width := int64(1), int64(1) // without keys and values, of no consequence
	if len(d.Caches) > 0 {
		axis := 1
		if d.paged != nil {
			axis = 2
		}
		heads, width = d.Caches[0].Past.Dims[axis].Value, d.Caches[0].Past.Dims[3].Value
	}
	inputs := map[string]string{genaiIDs: genaiIDs, "past_key_names": layerNames[0].past,
		"past_value_names": layerNames[1].past}
	outputs := map[string]string{genaiLogits: genaiLogits, "present_key_names": layerNames[0].present,
		"present_value_names": layerNames[1].present}
	if len(d.states) > 0 {
		inputs["past_conv_names"], inputs["past_recurrent_names"] = stateNames[0].past, stateNames[1].past
		outputs["present_conv_names"], outputs["present_recurrent_names"] = stateNames[0].present, stateNames[1].present
	}
	for _, v := range d.g.Inputs {
		if v.Name == genaiMask || v.Name == genaiPositions || slices.Contains(engineNames, v.Name) {
			inputs[v.Name] = v.Name
		}
	}
	c := genAIConfig{
		Model: genAIModel{
			Type: "decoder", BOS: or(h.BOS, 0), EOS: h.EOS, Pad: h.pad, ContextLength: f.ContextLength,
			VocabSize: d.vocabulary(),
			Decoder: genAIDecoder{
				Filename: modelFile,
				SessionOptions: genAISession{LogID: "onnxruntime-genai",
					ProviderOptions: []map[string]map[string]string{}},
				HeadSize: width, KeyValueHeads: heads, HiddenLayers: f.Layers,
				HiddenSize: h.HiddenSize, AttentionHeads: h.AttentionHeads,
				Inputs: inputs, Outputs: outputs,
			},
		},
		Search: genAISearch{DoSample: h.DoSample, MaxLength: f.ContextLength, NumBeams: 1,
			PastPresentShareBuffer: d.buffers || d.paged != nil, ChunkSize: d.tokensPerRun(),
			RepetitionPenalty: or(h.RepetitionPenalty, 1), Temperature: or(h.Temperature, 1),
			TopK: or(h.TopK, 50), TopP: or(h.TopP, 1)},
	}
	if d.paged != nil {
		c.Engine, c.Model.Decoder.StateGroups = d.engineConfig(*o.Engine), d.stateGroups()
		if c.Model.Decoder.Window = d.window; d.window != nil {
			c.Search.ChunkSize = engineChunk
		}
	}
	session := &c.Model.Decoder.SessionOptions
	if o.Library != "" {
		session.CustomOpsLibrary = filepath.Base(o.Library)
	}
	if o.Provider == "cuda" {
		graph := "0"
		if o.CUDAGraph {
			graph = "1"
		}
		session.ProviderOptions = append(session.ProviderOptions,
			map[string]map[string]string{o.Provider: {"enable_cuda_graph": graph}})
	}
	return c
}

// or returns the value of a pointer, or a default for nil.
func or[T any](p *T, otherwise T) T {
	if p == nil {
		return otherwise
	}
	return *p
}
