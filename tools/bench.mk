# Benchmarks, and tests that take too long or too much room for `make test`.
.PHONY: bench-kernels bench-attention bench-apply bench-smollm2 bench-cache bench-genai bench-serving weights wide
.PHONY: spellings reliability freeze bench-polygraphy

BENCHES := bench-kernels bench-attention bench-apply
BENCH_THREADS ?= 1,2
BENCH_MODELS ?= models/llama-dynamo-fp32.onnx models/llama-ts-fp32.onnx
PEERS_PYTHON ?= $(CURDIR)/$(VENV)/bin/python
BENCH_MOE = $(VENV)/bin/python fused/kernels/bench/bench_moe.py $(LIBRARY)

bench-kernels: all $(VENV)/.installed ## time the kernels against what they replace
	$(VENV)/bin/python fused/kernels/bench/bench_kernels.py $(LIBRARY) --threads $(BENCH_THREADS)
	$(BIN) apply models/deepseek3-batched_mm-ts-fp32.onnx -o $(BUILD)/mixture.onnx >/dev/null
	for e in 64 128; do $(BENCH_MOE) --experts $$e --body $(BUILD)/mixture.onnx || exit 1; done
	$(BENCH_MOE) --dtype bfloat16 --tokens 1,8

BENCH_ATTENTION = $(VENV)/bin/python fused/kernels/bench/bench_attention.py $(LIBRARY)
bench-attention: all $(VENV)/.installed ## time attention over the floor and onnxruntime's ops, at 200 random shapes too
	for t in 1 2; do for s in smollm2 llama-8b; do \
		$(BENCH_ATTENTION) --shape $$s --threads $$t --dtype float32,float16,bfloat16 || exit 1; done; done
	for t in 1 2; do \
		$(VENV)/bin/python fused/kernels/bench/compare_attention.py $(LIBRARY) --threads $$t || exit 1; done

freeze: all $(FETCHED) ## ZOO=DIR: compare what every mode writes with the record; WRITE=1 records it
	@$(TEST_ENV) $(GO) run ./bench/freeze $(if $(WRITE),-write) models $(if $(ZOO),"$(abspath $(ZOO))")

POLYGRAPHY_VENV := $(BUILD)/polygraphy-venv
$(POLYGRAPHY_VENV)/.installed: $(REQUIREMENTS)/polygraphy.txt
	@test -x $(POLYGRAPHY_VENV)/bin/python || $(PYTHON) -m venv $(POLYGRAPHY_VENV)
	@$(POLYGRAPHY_VENV)/bin/python -m pip $(PIP_INSTALL) -r $<
	@touch $@

bench-polygraphy: $(POLYGRAPHY_VENV)/.installed ## shard the bundled models beside Polygraphy, and check both results
	@$(GO) run ./bench/polygraphy $(POLYGRAPHY_VENV)/bin/polygraphy models/*.onnx

bench-apply: all $(FETCHED) $(VENV)/.installed ## time apply on large graphs
	$(TEST_ENV) $(GO) run ./bench/apply -tool $(BIN) -python $(PEERS_PYTHON) $(BENCH_MODELS)

# What make bench-smollm2 times mojo-patch against. Without llama.cpp the others are timed, and its error is printed.
PEERS_VENV := $(BUILD)/peers-venv
SMOLLM2 := $(BUILD)/smollm2
LOADS ?= 6
# ggml's products on AMX crash (llama.cpp 20824 and 26954): without them where the processor has it.
LLAMA_CPU := $(if $(shell grep -sw amx_int8 /proc/cpuinfo),-DGGML_NATIVE=OFF -DGGML_AVX512=ON -DGGML_AVX512_VBMI=ON \
	-DGGML_AVX512_VNNI=ON -DGGML_AVX512_BF16=ON -DGGML_AMX_INT8=OFF -DGGML_AMX_TILE=OFF,-DGGML_NATIVE=ON)

$(PEERS_VENV)/.installed: $(REQUIREMENTS)/peers.txt $(REQUIREMENTS)/llama.txt | $(CMAKE_STAMP)
	@test -x $(PEERS_VENV)/bin/python || $(PYTHON) -m venv $(PEERS_VENV)
	@echo "installing $(REQUIREMENTS)/peers.txt and, compiled for this CPU, llama.txt into $(PEERS_VENV)"
	@$(PEERS_VENV)/bin/python -m pip $(PIP_INSTALL) -r $(REQUIREMENTS)/peers.txt
	@PATH="$(dir $(CMAKE)):$$PATH" CMAKE_ARGS="$(LLAMA_CPU) -DLLAVA_BUILD=OFF" \
		$(PEERS_VENV)/bin/python -m pip $(PIP_INSTALL) -r $(REQUIREMENTS)/llama.txt || \
		echo "llama.cpp cannot be compiled here (see above)" >&2
	@touch $@

bench-smollm2: all $(FETCHED) $(PEERS_VENV)/.installed ## time SmolLM2 beside other tools and llama.cpp (4 GB)
	@$(TEST_ENV) $(PEERS_VENV)/bin/python bench/smollm2/run.py \
		--tool $(abspath $(BIN)) --library $(abspath $(LIBRARY)) \
		--gguf "$$(PYTHON="$(PYTHON)" tools/fetch-smollm2.sh $(SMOLLM2))" \
		--folder $(SMOLLM2) --loads $(LOADS) --json $(SMOLLM2)/bench.json

bench-cache: all $(FETCHED) $(PEERS_VENV)/.installed ## time SmolLM2's decoding with its cache in place
	@$(TEST_ENV) $(PEERS_VENV)/bin/python bench/smollm2/lengths.py \
		--tool $(abspath $(BIN)) --library $(abspath $(LIBRARY)) \
		--gguf "$$(PYTHON="$(PYTHON)" tools/fetch-smollm2.sh $(SMOLLM2))" --folder $(SMOLLM2)/lengths

# onnxruntime-genai, with what its model builder needs: torch, which brings libraries of several GB.
GENAI_VENV := $(BUILD)/genai-venv
$(GENAI_VENV)/.installed: $(REQUIREMENTS)/genai.txt
	@test -x $(GENAI_VENV)/bin/python || $(PYTHON) -m venv $(GENAI_VENV)
	@echo "installing $< into $(GENAI_VENV)"
	@$(GENAI_VENV)/bin/python -m pip $(PIP_INSTALL) -r $<
	@touch $@

bench-genai: all $(FETCHED) $(GENAI_VENV)/.installed ## time SmolLM2 in onnxruntime-genai (10 GB)
	@$(TEST_ENV) $(GENAI_VENV)/bin/python bench/smollm2/genai.py --tool $(abspath $(BIN)) \
		--gguf "$$(PYTHON="$(PYTHON)" tools/fetch-smollm2.sh $(SMOLLM2))" \
		--folder $(SMOLLM2)/genai --builder $(abspath $(GENAI_VENV))/bin/python

# One prompt after another through optimum: bench/serving/optimum_rates.py, in an environment with optimum.txt.
SERVING := $(SMOLLM2)/serving
bench-serving: all $(FETCHED) $(RAY_VENV)/.installed ## time SmolLM2 behind Ray Serve over one and two replicas
	@rm -rf $(SERVING) && mkdir -p $(SERVING)/bin && cp -R python/src/mojo_patch $(SERVING)/
	@cp $(LIBRARY) $(SERVING)/mojo_patch/ && ln -s $(abspath $(BIN)) $(SERVING)/bin/
	@$(BIN) weights load models/smollm2/graph.onnx --map models/smollm2/map.json -o $(SERVING)/exported.onnx \
		--from "$$(PYTHON="$(PYTHON)" tools/fetch-smollm2.sh $(SMOLLM2))"
	@$(TEST_ENV) $(BIN) apply $(SERVING)/exported.onnx -o $(SERVING)/patched.onnx --last-logits
	@$(TEST_ENV) $(BIN) apply $(SERVING)/exported.onnx -o $(SERVING)/rows.onnx --last-logits --cache static \
		--past-length=rows
	@$(TEST_ENV) $(BIN) apply $(SERVING)/exported.onnx -o $(SERVING)/paged.onnx --last-logits --cache paged=16
	@$(TEST_ENV) PYTHONPATH="$(CURDIR)/$(SERVING)" $(RAY_VENV)/bin/python bench/serving/ray_serve.py \
		$(SERVING)/exported.onnx $(SERVING)/patched.onnx $(SERVING)/rows.onnx $(SERVING)/paged.onnx
	@$(TEST_ENV) PYTHONPATH="$(CURDIR)/$(SERVING)" $(RAY_VENV)/bin/python bench/serving/engine_rates.py \
		$(SERVING)/rows.onnx $(SERVING)/paged.onnx

weights: all $(FETCHED) ## stack 6 GB of experts' weights (13 GB of disk), and open a model of 3,072 experts
	@$(TEST_ENV) $(GO) run ./bench/weights -tool $(BIN)

wide: all $(FETCHED) ## run models at the widths of released ones (40 GB of disk, 12 GB of memory)
	@$(TEST_ENV) $(GO) run ./bench/wide -tool $(BIN)

SPELLINGS ?= 300
spellings: ## patch SPELLINGS (300) spellings of every block, and as many changes of meaning, and count
	$(GO) run ./bench/spellings -n $(SPELLINGS)
	$(GO) run ./bench/spellings -composed -n $(SPELLINGS)

KILLS ?= 200
reliability: all $(NODE_TESTS)/.done ## kill apply KILLS times (200), fill the disk, refuse outputs: docs/reliability.md
	@MOJO_ONNX_NODE_TESTS="$(CURDIR)/$(NODE_TESTS)" $(GO) run ./bench/reliability -tool $(BIN) -kills $(KILLS) models
