# The CUDA kernels. nvcc is the one of the path, or of /usr/local/cuda, or else the one that pip installs into
# build/nvcc.
CUDA_LIBRARY := $(BUILD)/libmojo_ops_cuda.so
# The tests leave 10.0 out, which has no code of its own and takes a third of the time.
CUDA_ARCHS ?= 80 90a $(if $(STEPS),,100)
NVCC_WHEELS := $(abspath $(BUILD))/nvcc
NVCC ?= $(or $(shell command -v nvcc 2>/dev/null),$(wildcard /usr/local/cuda/bin/nvcc),$\
	$(NVCC_WHEELS)/nvidia/cu13/bin/nvcc)
NVCC_STAMP := $(if $(findstring $(NVCC_WHEELS),$(NVCC)),$(NVCC_WHEELS)/.installed)
CUDA_HOME = $(patsubst %/bin/nvcc,%,$(realpath $(NVCC)))
CUDA_MAKE = $(MAKE) --no-print-directory -j$(JOBS) -C fused/kernels/cuda NVCC="$(NVCC)" PYTHON="$(PYTHON)" \
	ARCHS="$(CUDA_ARCHS)" CCACHE="$(CCACHE)" OUT="$(abspath $(BUILD))/cuda"

.PHONY: cuda-programs flashinfer-benches test-cuda gpu-test gpu-zoo flashmla-bench

$(NVCC_WHEELS)/.installed: $(REQUIREMENTS)/cuda.txt
	@echo "no nvcc on this machine: installing it into $(NVCC_WHEELS)"
	@$(PYTHON) -m pip install --disable-pip-version-check -q --upgrade --target $(NVCC_WHEELS) -r $<
	@touch $@

$(CUDA_LIBRARY): FORCE $(KERNELS) | $(NVCC_STAMP)
	@$(CUDA_MAKE)
	@$(call logged,cuda,"$(CMAKE)" -S fused/kernels -B $(BUILD)/kernels \
		-DMOJO_CUDA_KERNELS="$(abspath $(BUILD))/cuda/libmojo_cuda.a" -DMOJO_CUDA_HOME="$(CUDA_HOME)")
	@$(call logged,cuda,"$(CMAKE)" --build $(BUILD)/kernels --target mojo_ops_cuda --parallel $(JOBS))
	@cmp -s $(BUILD)/kernels/$(@F) $@ || { cp -f $(BUILD)/kernels/$(@F) $@.tmp && mv -f $@.tmp $@; }

# After the library, because both compile the same objects into one folder.
cuda-programs: | $(NVCC_STAMP) $(CUDA_LIBRARY) ## build/cuda/tests and build/cuda/bench, programs that need a GPU
	@$(CUDA_MAKE) programs

# FlashInfer's kernels come as sources, which need neither its Python package nor PyTorch.
FLASHINFER := $(abspath $(BUILD))/flashinfer
$(FLASHINFER)/.installed: $(REQUIREMENTS)/flashinfer.txt
	@$(PYTHON) -m pip install --disable-pip-version-check -q --no-deps --upgrade --target $(FLASHINFER) -r $<
	@touch $@

flashinfer-benches: $(FLASHINFER)/.installed | $(NVCC_STAMP) ## attention beside FlashInfer's kernels
	@$(CUDA_MAKE) flashinfer FLASHINFER="$(FLASHINFER)/flashinfer/data"

flashmla-bench: $(FLASHINFER)/.installed | $(NVCC_STAMP) ## FLASHMLA=DIR, a clone: latent attention beside it
	@if [ -z "$(FLASHMLA)" ]; then echo "usage: make flashmla-bench FLASHMLA=DIR CUDA_ARCHS=90a" >&2; exit 2; fi
	@$(CUDA_MAKE) flashmla FLASHMLA="$(abspath $(FLASHMLA))" FLASHINFER="$(FLASHINFER)/flashinfer/data"

test-cuda: $(CUDA_LIBRARY) $(VENV)/.installed ## what of the CUDA library can be tested without a GPU
	@$(call logged,cuda,"$(CMAKE)" --build $(BUILD)/kernels --target mojo_cuda_backend_test \
		mojo_cuda_call_fuzz --parallel $(JOBS))
	@for version in 16 17 18 23 24 latest; do $(BUILD)/kernels/mojo_cuda_backend_test $$version || exit 1; done
	@$(BUILD)/kernels/mojo_cuda_call_fuzz --calls 300
	@echo "the CPU kernels of $(CUDA_LIBRARY), the objects of $(LIBRARY), through onnxruntime"
	@$(VENV)/bin/python fused/kernels/tests/ort_test.py $(CUDA_LIBRARY) --failfast EveryOpTest LoadTest

gpu-test: $(CUDA_LIBRARY) cuda-programs $(BIN) ## with a GPU and onnxruntime-gpu: all tests of the CUDA kernels
	fused/kernels/tests/gpu.sh $(BUILD) $(BIN) $(PYTHON)

gpu-zoo: $(CUDA_LIBRARY) $(BIN) ## on such a machine, ZOO=DIR: every model of DIR patched, against its outputs
	@if [ -z "$(ZOO)" ]; then echo "usage: make gpu-zoo ZOO=DIR" >&2; exit 2; fi
	fused/kernels/tests/gpu.sh $(BUILD) $(BIN) $(PYTHON) "$(abspath $(ZOO))"
