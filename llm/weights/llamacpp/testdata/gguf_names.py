"""Prints llm/weights/llamacpp/gguf_names.txt, llama.cpp's names of modules, from gguf-py: pip install gguf==0.19.0."""
import importlib.metadata
from collections import Counter, defaultdict

from gguf.constants import MODEL_ARCH, MODEL_ARCH_NAMES, MODEL_TENSORS, TENSOR_NAMES
from gguf.tensor_mapping import TensorNameMap

names = defaultdict(
    dict
)  # module of PyTorch -> architecture -> name in the file; the last entry holds, as in TensorNameMap
for arch in MODEL_ARCH:
    blocks = dict(TensorNameMap.block_mappings_cfg)
    blocks.update(TensorNameMap.arch_block_mappings_cfg.get(arch, {}))
    for table in (TensorNameMap.mappings_cfg, blocks):
        for tensor, modules in table.items():
            name = TENSOR_NAMES[tensor]
            if tensor in MODEL_TENSORS.get(arch, ()) and not name.startswith(("v.", "mm.", "a.", "enc.", "dec.")):
                for module in modules:
                    names[module][MODEL_ARCH_NAMES[arch]] = name

print("# Modules of PyTorch and their names in GGUF files, "
    f"from gguf-py {importlib.metadata.version('gguf')} (MIT license)")
print("# by testdata/gguf_names.py. A line: the name, then the modules; or, of one architecture that differs: @, the")
print("# architecture, the name, the module. N is the number of the layer.")
common, other = defaultdict(list), []
for module, by_arch in names.items():
    most = Counter(by_arch.values()).most_common(1)[0][0]
    common[most].append(module)
    other += [f"@{arch} {name} {module}" for arch, name in by_arch.items() if name != most]
for line in [f"{name} {' '.join(sorted(modules))}" for name, modules in sorted(common.items())] + sorted(other):
    print(line.replace("{bid}", "N"))
