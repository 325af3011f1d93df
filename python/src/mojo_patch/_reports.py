"""The program's reports as dataclasses, with the fields of its JSON."""

from __future__ import annotations

import html
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import Any, Dict, Iterable, List, Optional, Sequence, Type, TypeVar, Union, cast, get_type_hints

T = TypeVar("T")


def read(kind: Type[T], data: Dict[str, Any], text: str = "") -> T:
    """Returns a report made of the program's JSON. Fields that a newer program adds are left out.

    text is the report for people, which the program prints beside the JSON.
    """
    values = {name: _value(hint, data[name]) for name, hint in _fields(cast(Any, kind)).items() if name in data}
    report = kind(**values)
    if isinstance(report, Printed):
        object.__setattr__(report, "_text", text)
    return report


@lru_cache(maxsize=None)
def _fields(kind: Any) -> Dict[str, Any]:
    return get_type_hints(kind)


def _value(hint: Any, value: Any) -> Any:
    """Converts a JSON value to the type of its field."""
    inner: Any = getattr(hint, "__args__", ())
    origin = getattr(hint, "__origin__", None)
    if value is None:
        return [] if origin is list else None
    if origin is Union:  # Optional
        return _value(inner[0], value)
    if origin is list:
        return [_value(inner[0], v) for v in value]
    if hint is float:
        return float(value)  # NaN and infinities are strings in JSON
    return read(hint, value) if hasattr(hint, "__dataclass_fields__") else value


def _name(path: str) -> str:
    return path.replace("\\", "/").rpartition("/")[2]


class Printed:
    """A report that notebooks and terminals show in short form."""

    _text = ""

    def summary(self) -> str:
        """Returns the report in a few words."""
        raise NotImplementedError

    def table(self) -> List[Sequence[object]]:
        """Returns the rows of the table that a notebook shows. The first row has the headings."""
        raise NotImplementedError

    def to_dict(self) -> Dict[str, Any]:
        """Returns the report as the dictionaries and lists of its JSON."""
        return asdict(cast(Any, self))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.summary()}>"

    def __str__(self) -> str:
        """Returns the text that the command prints for people, or else the summary and the table."""
        if self._text:
            return self._text
        rows = [[str(c) for c in row] for row in self.table()]
        widths = [max(map(len, column)) for column in zip(*rows)]
        lines = ["  ".join(c.ljust(w) for c, w in zip(row, widths)).rstrip() for row in rows]
        return "\n".join([self.summary(), *lines])

    def _repr_html_(self) -> str:
        rows = [_row("th" if i == 0 else "td", cells) for i, cells in enumerate(self.table())]
        return f"<p>{html.escape(self.summary())}</p><table>{''.join(rows)}</table>"


def _row(tag: str, cells: Iterable[object]) -> str:
    inner = "".join(f'<{tag} style="text-align: left">{html.escape(str(c))}</{tag}>' for c in cells)
    return f"<tr>{inner}</tr>"


@dataclass(frozen=True)
class ModelFile:
    """A model file. exporter is the producer that the file names, with its version; fused_ops counts the nodes that are
    fused ops. bytes is the size of the file and of its external data."""

    path: str
    nodes: int
    opset: int
    exporter: str = ""
    sha256: str = ""
    fused_ops: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class OpCount:
    """How many nodes of an op a model had before it was patched, and has after it."""

    op: str
    before: int
    after: int


@dataclass(frozen=True)
class PatternCount:
    """How many sites of a pattern were found, by result."""

    name: str
    found: int
    fused: int
    refused: int
    open: int = 0


@dataclass(frozen=True)
class Weights:
    """The weights of experts: how many were expected, packed, missing and not expected."""

    expected: int
    packed: int
    missing: int
    unexpected: int
    stored: int
    bytes: int
    unexpected_names: List[str] = field(default_factory=list)


@dataclass(frozen=True)
class Check:
    """The worst difference between the nodes of a site and its replacement."""

    max_abs: float
    max_rel: float
    tolerance: float
    tolerance_rel: float
    structural_max_rel: float
    cases: int
    kernel_max_rel: Optional[float] = None
    repairs: str = ""
    overflow: List[str] = field(default_factory=list)
    ties: List[str] = field(default_factory=list)
    shared: bool = False


@dataclass(frozen=True)
class Site:
    """A place in the graph where a pattern matched, or (status "missed") nearly did.

    status is "fused", "refused", "open" or "missed"; reason says in one line why the site did not change.
    """

    pattern: str
    status: str
    nodes: List[str]
    id: str = ""
    op: str = ""
    node: str = ""
    types: List[str] = field(default_factory=list)
    reason: str = ""
    code: str = ""
    at: str = ""
    figures: Dict[str, Any] = field(default_factory=dict)
    check: Optional[Check] = None
    weights: Optional[Weights] = None
    emits: List[str] = field(default_factory=list)
    kernel: str = ""
    device: str = ""


@dataclass(frozen=True)
class KernelUse:
    """Whether a kernel can be used here, and how many sites it took."""

    id: str
    device: str
    available: bool
    selected: bool
    sites: int
    ops: List[str] = field(default_factory=list)
    reason: str = ""


@dataclass(frozen=True)
class Repair:
    """A block that fails for some inputs as it was exported, and works after the patch."""

    pattern: str
    node: str
    text: str


@dataclass(frozen=True)
class DType:
    """A model that was converted to another floating-point type."""

    before: str
    after: str
    casts: int
    float32: int
    out_of_range: List[str] = field(default_factory=list)
    check: Optional[Check] = None


@dataclass(frozen=True)
class ScaledValues:
    """Values, such as a residual stream, that were multiplied by a power of two."""

    value: str
    exponent: int
    values: int
    greatest: float
    greatest_of: str


@dataclass(frozen=True)
class Bridge:
    """A product of a value with a power of two that was added to a model."""

    value: str
    node: str
    exponent: int


@dataclass(frozen=True)
class WideValue:
    """A value that stays in float32, because float16 does not hold it and it cannot be scaled."""

    value: str
    node: str
    op: str
    greatest: float
    reason: str


@dataclass(frozen=True)
class Variant:
    """The difference between the outputs of a model in a type and in float32."""

    type: str
    not_finite: int
    error: float
    safe: bool = False
    first_nan: str = ""
    logits: Optional[LogitDifference] = None


@dataclass(frozen=True)
class Safe:
    """The changes that keep all values of a model in float16's range."""

    inputs: int
    recorded: bool
    headroom: float
    greatest: float
    overflowing: int
    scaled: List[ScaledValues]
    constants: int
    epsilons: int
    lost: int
    stays: List[WideValue]
    greatest_of: str = ""
    bridges: List[Bridge] = field(default_factory=list)
    check: Optional[Check] = None
    compare: List[Variant] = field(default_factory=list)


@dataclass(frozen=True)
class Opset:
    """A model's opset that was raised, or the reason why it was not."""

    before: int
    after: int
    reason: str = ""
    limit: str = ""


@dataclass(frozen=True)
class Lowered:
    """Nodes of one op and types that were lowered for a provider: way is "body", or the types between casts."""

    op: str
    types: List[str]
    way: str
    nodes: int


@dataclass(frozen=True)
class RunsOn:
    """The nodes lowered for a provider of onnxruntime."""

    provider: str
    runtime: str
    opset_before: int
    opset_after: int
    inlined: int
    lowered: List[Lowered]
    check: Optional[Check] = None


@dataclass(frozen=True)
class Inlined:
    """Functions that were replaced by their bodies."""

    functions: int
    calls: int
    branches: int = 0


@dataclass(frozen=True)
class Cache:
    """Caches that became buffers; length is 0 if the callers choose it."""

    form: str
    inputs: List[str]
    bytes_per_token: int
    length_from: str
    length: int = 0
    rows: bool = False
    positions: List[str] = field(default_factory=list)
    readers: List[str] = field(default_factory=list)
    merged: str = ""
    check: Optional[Check] = None


@dataclass(frozen=True)
class Rounding:
    """How pools of codes change numbers: fractions of their bounds, and the outputs relative to their magnitude."""

    keys: float
    values: float
    results: float
    outputs: float


@dataclass(frozen=True)
class Paged:
    """Caches that became pools of blocks; last_only: logits have a row per sequence, instead of per token. type is the
    type of the codes in the pools, whose scales take scale_bytes per block, and "" for the model's own type. window is
    the longest window of attention, 0 without any. stand_ins counts the products that the proof computed by stand-ins.
    """

    form: str
    block: int
    pools: List[str]
    bytes_per_token: int
    packed: List[str]
    removed: List[str]
    last_only: bool
    merged: str = ""
    type: str = ""
    scales: List[str] = field(default_factory=list)
    scale_bytes: int = 0
    window: int = 0
    rounding: Optional[Rounding] = None
    check: Optional[Check] = None
    stand_ins: int = 0


@dataclass(frozen=True)
class Latent:
    """Caches that now hold latents; bytes count one token of a sequence, in all of them together."""

    inputs: List[str]
    dropped: List[str]
    bytes_per_token: int
    bytes_before: int
    check: Optional[Check] = None


@dataclass(frozen=True)
class FreedDim:
    """A dimension of the inputs that a model follows. reason says why it is right at other sizes."""

    name: str
    inputs: List[str]
    free: bool
    reason: str
    size: int = 0
    node: str = ""


@dataclass(frozen=True)
class FreedConstant:
    """A constant that is computed from dimensions of the inputs."""

    node: str
    op: str
    constant: str
    was: str
    becomes: str
    dims: List[str]


@dataclass(frozen=True)
class Freed:
    """The dimensions whose sizes at export were baked, and the constants that came from them."""

    dims: List[FreedDim]
    constants: List[FreedConstant]
    check: Optional[Check] = None


@dataclass(frozen=True)
class Merged:
    """Products of one input that became wider products: how many there were, and how many there are now."""

    products: int
    merged: int


@dataclass(frozen=True)
class Sampling:
    """The output with the logits, and the new one with the tokens chosen from them."""

    logits: str
    ids: str


@dataclass(frozen=True)
class Products:
    """Products and tables with quantized weights, for a target. emits counts them by the ops of the target, open by the
    reason why they stayed as they were."""

    emits: Dict[str, int] = field(default_factory=dict)
    open: Dict[str, int] = field(default_factory=dict)
    check: Optional[Check] = None
    notes: List[str] = field(default_factory=list)


@dataclass(frozen=True)
class GivenUp:
    """A search for a pattern that was stopped early at some places. node is the first of the places."""

    pattern: str
    node: str
    places: int


@dataclass(frozen=True)
class Runtime:
    """Whether a runtime opened the patched model; if not, reason says why."""

    name: str
    version: str
    opened: bool
    reason: str = ""


@dataclass(frozen=True)
class LeftOut:
    """Flags of a preset that do not apply to the model."""

    flags: List[str]
    reason: str


@dataclass(frozen=True)
class Preset:
    """The flags that for_ stands for."""

    name: str
    flags: List[str]
    left_out: List[LeftOut] = field(default_factory=list)


@dataclass(frozen=True)
class CannRewrites:
    """The changes for Ascend besides the sites."""

    expanded: int = 0
    matmuls: int = 0


@dataclass(frozen=True)
class LearntPattern:
    """A pattern that was learnt; numbers may be others elsewhere."""

    name: str
    op: str
    sites: List[str]
    numbers: List[str] = field(default_factory=list)


@dataclass(frozen=True)
class UnlearntSite:
    """A fitted block that no pattern was written for."""

    id: str
    node: str
    reason: str


@dataclass(frozen=True)
class Learnt:
    """The patterns learned from the fitted blocks; times are for finding all blocks."""

    fitted: int
    learnt: int
    patterns: List[LearntPattern]
    find_ms: float
    find_learnt_ms: float
    left: List[UnlearntSite] = field(default_factory=list)


@dataclass(frozen=True)
class Times:
    """Milliseconds for each phase."""

    read: float
    infer: float
    match: float
    check: float
    rewrite: float
    write: float
    prepare: float = 0
    inline: float = 0


@dataclass(frozen=True, repr=False)
class Report(Printed):
    """The blocks that apply found in a model, and their results.

    fused counts the sites that became one op, without moved transpositions (KeyTranspose). refused counts the sites
    that failed a check and did not change. assumed lists changes besides the sites that were made without a proof,
    unproven changes that were not made because no proof succeeded. ops has the nodes before and after, by op, if a
    model was written.
    """

    schema: int
    input: ModelFile
    patterns: List[PatternCount]
    sites: List[Site]
    kernels: List[KernelUse]
    changed: bool
    time_ms: Times
    fused: int = 0
    refused: int = 0
    output: Optional[ModelFile] = None
    preset: Optional[Preset] = None
    ops: List[OpCount] = field(default_factory=list)
    target: str = ""
    backend: str = ""
    passed_over: List[str] = field(default_factory=list)
    free: Optional[Freed] = None
    dtype: Optional[DType] = None
    safe: Optional[Safe] = None
    opset: Optional[Opset] = None
    runs_on: Optional[RunsOn] = None
    inlined: Optional[Inlined] = None
    logits: str = ""
    latent: Optional[Latent] = None
    cache: Optional[Cache] = None
    paged: Optional[Paged] = None
    merged: Optional[Merged] = None
    sampling: Optional[Sampling] = None
    products: Optional[Products] = None
    learnt: Optional[Learnt] = None
    repairs: List[Repair] = field(default_factory=list)
    given_up: List[GivenUp] = field(default_factory=list)
    unverified: int = 0
    drawn: int = 0
    weights: Optional[Weights] = None
    cann: Optional[CannRewrites] = None
    foreign: Dict[str, int] = field(default_factory=dict)
    variants: List[str] = field(default_factory=list)
    rounded_activations: int = 0
    rounded_by_onnxruntime: int = 0
    assumed: List[str] = field(default_factory=list)
    unproven: List[str] = field(default_factory=list)
    dry_run: bool = False
    peak_rss_bytes: int = 0
    crosscheck: str = ""
    runtime: Optional[Runtime] = None

    @property
    def left(self) -> List[Site]:
        """The sites that stayed as they were: refused, open (the target has no such op) or missed (nearly a match)."""
        return [s for s in self.sites if s.status != "fused"]

    def summary(self) -> str:
        """Returns the report in a few words."""
        nodes = f"{self.input.nodes} nodes"
        if self.output is not None:
            nodes = f"{self.input.nodes} \N{RIGHTWARDS ARROW} {self.output.nodes} nodes"
        parts = [nodes, f"{self.fused} fused", f"{self.refused} refused"]
        others = len(self.left) - self.refused
        if others:
            parts.append(f"{others} left")
        return f"{_name(self.input.path)}: {', '.join(parts)}"

    def table(self) -> List[Sequence[object]]:
        """Returns the number of sites of each pattern, and the reasons why sites were left."""
        rows: List[Sequence[object]] = [("pattern", "found", "fused", "why others stayed")]
        for p in self.patterns:
            left = [s for s in self.left if s.pattern == p.name]
            if p.found or left:
                reasons = dict.fromkeys(f"{s.status}: {s.reason}" for s in left)
                rows.append((p.name, p.found, p.fused, "; ".join(reasons)))
        return rows


@dataclass(frozen=True)
class Element:
    """The element of an output with the greatest difference."""

    index: List[int]
    got: float
    want: float


@dataclass(frozen=True)
class NonFinite:
    """How many elements are NaN, and how many infinite."""

    nan: int
    inf: int


@dataclass(frozen=True)
class Tolerance:
    """The differences that a comparison accepts."""

    abs: float
    rel: float
    ulp: float
    share: float = 0


@dataclass(frozen=True)
class LogitDifference:
    """Logits compared as distributions."""

    classes: int
    positions: int
    undefined: int
    mean_kl: float
    max_kl: float
    top1: float
    passed: bool
    worst_position: List[int] = field(default_factory=list)


@dataclass(frozen=True)
class OutputDifference:
    """An output compared with the one that was expected."""

    name: str
    dtype: str
    shape: List[int]
    elements: int
    max_abs: float
    mean_abs: float
    max_rel: float
    mean_rel: float
    max_ulp: float
    max_want: float
    cosine: float
    relative_l2: float
    got: NonFinite
    want: NonFinite
    within: int
    share: float
    tolerance: Tolerance
    passed: bool
    got_dtype: str = ""
    worst: Optional[Element] = None
    logits: Optional[LogitDifference] = None


@dataclass(frozen=True)
class CaseDifference:
    """A case of a comparison. error says why it could not be compared."""

    case: int
    outputs: List[OutputDifference]
    time_ms: float = 0
    error: str = ""


@dataclass(frozen=True)
class Comparison:
    """A model compared with another one, or with recorded outputs.

    layers and sensitivity are the program's JSON, unchanged. router_ties counts the tokens whose experts differ only by
    a tie; None if the ties were not asked for.
    """

    model: str
    against: str
    passed: bool
    cases: List[CaseDifference]
    backend: str = ""
    router_ties: Optional[int] = None
    layers: Optional[Dict[str, Any]] = None
    within_own_sensitivity: bool = False
    sensitivity: List[Dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True, repr=False)
class Difference(Printed):
    """The result of diff: a comparison for each model that was compared."""

    schema: int
    passed: bool
    comparisons: List[Comparison]

    def summary(self) -> str:
        """Returns the result in a few words."""
        cases = [c for comparison in self.comparisons for c in comparison.cases]
        outputs = [o for c in cases for o in c.outputs]
        worst = max(outputs, key=lambda o: o.max_abs, default=None)
        parts = ["passed" if self.passed else "FAILED", f"{len(cases)} case{'s' if len(cases) != 1 else ''}"]
        if worst is not None:
            parts.append(f"greatest difference {worst.max_abs:.3g} ({worst.name})")
        return ", ".join(parts)

    def table(self) -> List[Sequence[object]]:
        """Returns a row for each output of each case."""
        rows: List[Sequence[object]] = [("model", "case", "output", "type", "max abs", "max rel", "result")]
        for comparison in self.comparisons:
            for case in comparison.cases:
                if case.error:
                    rows.append((_name(comparison.model), case.case, "", "", "", "", case.error))
                for o in case.outputs:
                    result = "passed" if o.passed else "FAILED"
                    rows.append((_name(comparison.model), case.case, o.name, o.dtype, f"{o.max_abs:.3g}",
                                 f"{o.max_rel:.3g}", result))
        return rows


@dataclass(frozen=True)
class Port:
    """An input or an output of a model."""

    name: str
    type: str


@dataclass(frozen=True)
class InitializerTotal:
    """The initializers of one type."""

    dtype: str
    tensors: int
    elements: int
    bytes: int


@dataclass(frozen=True)
class LocalFunction:
    """A function that a model carries, and how many nodes call it."""

    domain: str
    name: str
    nodes: int
    calls: int
    overload: str = ""


@dataclass(frozen=True)
class Warning:
    """A fault of the exported model, and whether apply repairs it."""

    pattern: str
    node: str
    text: str
    mended: bool


@dataclass(frozen=True, repr=False)
class Inspection(Printed):
    """The contents of a model."""

    schema: int
    path: str
    ir_version: int
    opsets: Dict[str, int]
    exporter: str
    nodes: int
    functions: int
    parameters: int
    parameter_bytes: int
    inputs: List[Port]
    outputs: List[Port]
    ops: Dict[str, int]
    domains: Dict[str, int]
    initializers: List[InitializerTotal]
    local_functions: List[LocalFunction]
    fused: Dict[str, int]
    patterns: List[PatternCount]
    sites: List[Site]
    raised: Optional[Opset] = None
    inlined: Optional[Inlined] = None
    warnings: List[Warning] = field(default_factory=list)

    def summary(self) -> str:
        """Returns the contents in a few words."""
        found = sum(p.found for p in self.patterns)
        return (f"{_name(self.path)}: {self.nodes} nodes, opset {self.opsets.get('ai.onnx', '?')}, "
                f"{self.parameters:,} parameters, {found} blocks found")

    def table(self) -> List[Sequence[object]]:
        """Returns the number of nodes of each op."""
        return [("op", "nodes"), *sorted(self.ops.items(), key=lambda item: (-item[1], item[0]))]


@dataclass(frozen=True)
class KernelTrial:
    """A kernel for one op and combination of types, tried here.

    status is "runs", "fails", "unknown" (it cannot be tried here) or "standard" (an op of onnxruntime's own).
    """

    kernel: str
    op: str
    device: str
    forms: int
    status: str
    types: List[str] = field(default_factory=list)
    max_rel: Optional[float] = None
    reason: str = ""
    shapes: List[List[int]] = field(default_factory=list)
    nodes: int = 0


@dataclass(frozen=True)
class GenAIFolder:
    """A folder for onnxruntime-genai. computed are model inputs that its graph computes from genai's inputs."""

    folder: str
    files: List[str]
    fused_ops: int
    layers: int
    cache: str  # "shared": past and present are one buffer, "appended", or "paged"
    context_length: int
    batch: str  # "any" or "one"
    eos_token_id: List[int]
    one_because: str = ""
    computed: List[str] = field(default_factory=list)
    schema: int = 1


@dataclass(frozen=True)
class Tensor:
    """An input or output of a request. For a batched model dims exclude the batch; -1 is any size."""

    name: str
    data_type: str
    dims: List[int]


@dataclass(frozen=True)
class State(Tensor):
    """An input that takes an output of the previous request."""

    output: str = ""


@dataclass(frozen=True)
class TritonModel:
    """A model in a repository of Triton Inference Server. states are kept by the server for each sequence."""

    repository: str
    name: str
    files: List[str]
    fused_ops: int
    max_batch_size: int
    inputs: List[Tensor]
    outputs: List[Tensor]
    one_by_one: str = ""
    states: List[State] = field(default_factory=list)
    schema: int = 1
