# The kernels for onnxruntime's CANN provider, which open CANN's libraries when they are made, and their tests on an
# emulation of CANN. The stock onnxruntime for CANN has a Python environment of its own. So have Qualcomm's and Intel's.
CANN_LIBRARY := $(BUILD)/libmojo_ops_cann.so
CANN_VENV := $(BUILD)/cann-venv
CANN_TESTS := cann_operator_test.py cann_refusal_test.py cann_device_test.py cann_emulation_test.py
# `make TARGETS_VENV=DIR` takes another environment.
TARGETS_VENV := $(BUILD)/targets-venv

.PHONY: test-cann test-targets

$(CANN_LIBRARY): FORCE $(KERNELS)
	@$(call logged,cann,"$(CMAKE)" --build $(BUILD)/kernels --target mojo_ops_cann --parallel $(JOBS))
	@cmp -s $(BUILD)/kernels/$(@F) $@ || { cp -f $(BUILD)/kernels/$(@F) $@.tmp && mv -f $@.tmp $@; }

# It has no pip of its own.
$(CANN_VENV)/.installed: $(REQUIREMENTS)/cann.txt | $(VENV)/bin/python
	@test -x $(CANN_VENV)/bin/python || $(PYTHON) -m venv --without-pip $(CANN_VENV)
	@echo "installing $< into $(CANN_VENV)"
	@$(VENV)/bin/python -m pip --python $(CANN_VENV)/bin/python $(PIP_INSTALL) -r $<
	@PYTHONDONTWRITEBYTECODE= $(CANN_VENV)/bin/python $(IMPORT_ONCE)
	@touch $@

test-cann: $(CANN_LIBRARY) $(BIN) $(CANN_VENV)/.installed | $(CMAKE_STAMP) ## the CANN kernels, on an emulation of CANN
	@$(call logged,cann,"$(CMAKE)" -S fused/kernels -B $(BUILD)/kernels)
	@$(call logged,cann,"$(CMAKE)" --build $(BUILD)/kernels --target cann_emulation --parallel $(JOBS))
	@for folder in cann cann-split; do for test in $(CANN_TESTS); do \
		echo "$$test, with the libraries of $$folder"; \
		$(CANN_VENV)/bin/python fused/kernels/tests/$$test $(BUILD)/kernels/$$folder --failfast || exit 1; \
	done; done
	@fused/kernels/tests/cann.sh $(BUILD) $(BIN) $(CANN_VENV)/bin/python

$(TARGETS_VENV)/.installed: $(REQUIREMENTS)/targets.txt
	@test -x $(TARGETS_VENV)/bin/python || $(PYTHON) -m venv $(TARGETS_VENV)
	@echo "installing $< into $(TARGETS_VENV); onnxruntime-qnn has a license of Qualcomm's own"
	@$(TARGETS_VENV)/bin/python -m pip install --disable-pip-version-check -q -r $<
	@touch $@

test-targets: test-cann $(TARGETS_VENV)/.installed ## run the bundled models for Ascend, QNN, OpenVINO (870 MB)
	@cp $(BUILD)/ascend.txt docs/targets/ascend.txt
	@$(TARGETS_VENV)/bin/python bench/targets/on_openvino.py $(BIN) models -o docs/targets/openvino.txt
	@$(TARGETS_VENV)/bin/python bench/targets/on_qnn.py $(BIN) models -o docs/targets/qnn.txt
